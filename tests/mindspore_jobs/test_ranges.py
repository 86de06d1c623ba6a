"""Ranges in a program that uses the real MindSpore: on both engines, around what it compiles, without torch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
from builders import mindspore_programs, quickstart

import mstxkit
from mstxkit import mark, mstx_range, sinks
from mstxkit.sinks import mindspore as sink

pytestmark = [pytest.mark.daily(3), pytest.mark.mindspore, pytest.mark.timeout(300)]

STEPS = 3
TRAINING = """
import json, sys
import mstxkit
from mstxkit import mstx_range, mstx_timer
from mstxkit.engine.choose import engine

mstxkit.capture(sys.argv[1])
assert "mindspore" not in sys.modules, "mstxkit imports it"

import numpy
import mindspore
from mindspore import nn, ops

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(4, 2)

    @mstx_timer
    def construct(self, x):
        with mstx_range("layer", domain="model"):
            return self.layer(x)

net = Net()
optimizer = nn.SGD(net.trainable_params(), 0.1)

@mstx_timer("loss")
def forward(x, wanted):
    return ops.mse_loss(net(x), wanted)

gradients = mindspore.value_and_grad(forward, None, optimizer.parameters)
x = mindspore.Tensor(numpy.ones((8, 4), numpy.float32))
wanted = mindspore.Tensor(numpy.zeros((8, 2), numpy.float32))
dataset = range(int(sys.argv[2]))
losses = []

def train(batch):
    loss, found = gradients(x, wanted)
    optimizer(found)
    losses.append(float(loss.asnumpy()))

THE_LOOP
print(json.dumps({"native": engine.NATIVE, "torch": "torch" in sys.modules, "losses": losses}))
""".replace("THE_LOOP", *quickstart.blocks("mindspore", "python"))
COMPILED = """
import json, sys
import numpy, mindspore, mstxkit
from mindspore import nn
from mstxkit import mstx_range, mstx_timer

mstxkit.capture(sys.argv[1])

class Net(nn.Cell):
    def construct(self, x):
        return x + 1

class Timed(nn.Cell):
    @mstx_timer
    def construct(self, x):
        return x + 1

def add_one(x):
    return x + 1

class Inside(nn.Cell):
    def construct(self, x):
        with mstx_range("inside"):
            return x + 1

def shape(cell):
    try:
        return list(cell(mindspore.Tensor(numpy.ones((3, 2), numpy.float32))).shape)
    except Exception as exc:
        return type(exc).__name__

mindspore.set_context(mode=mindspore.GRAPH_MODE)
with mstx_range("around"):
    around = shape(Net())
compiled = mstx_timer("jit")(mindspore.jit(add_one))
print(json.dumps([around, shape(compiled), shape(Timed()), shape(Inside())]))
"""


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_training_is_recorded_and_torch_is_not_looked_for(tmp_path: Path, native: str) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is imported')\n")
    path = f"{tmp_path}:{mindspore_programs.ROOT}"

    said = mindspore_programs.run(TRAINING, tmp_path, "run", STEPS, MSTXKIT_NATIVE=native, PYTHONPATH=path).said

    rows = mstxkit.open_run(tmp_path / "run").ranges().to_dicts()
    assert (said["native"], said["torch"], len(said["losses"])) == (native == "1", False, STEPS)
    assert said["losses"] == sorted(said["losses"], reverse=True), "it does not train"
    assert Counter((row["name"], row["domain"], row["stage"]) for row in rows) == {
        ("train_step", "default", "train_step"): STEPS,
        ("loss", "default", "train_step"): STEPS,
        ("Net.construct", "default", "train_step"): STEPS,
        ("layer", "model", "train_step"): STEPS,
    }
    assert {row["step"] for row in rows} == set(range(STEPS))
    assert not any(row["error"] for row in rows)


def test_what_mindspore_compiles_is_marked_around_and_not_inside(tmp_path: Path) -> None:
    """It compiles the source of a decorated function, without the decorator, and refuses our ranges in a graph."""
    said = mindspore_programs.run(COMPILED, tmp_path, "run").said

    rows = mstxkit.open_run(tmp_path / "run").ranges().to_dicts()
    assert said == [[3, 2], [3, 2], [3, 2], "TypeError"]
    assert [row["name"] for row in rows] == ["around", "jit"]


class Native:
    """What is under MindSpore's mstx on an NPU: notes every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def mstx_range_start(self, message: str, stream: Any, domain: str = "default") -> int:
        self.calls.append(("start", message, stream, domain))
        return len(self.calls)

    def mstx_range_end(self, range_id: int, domain: str = "default") -> None:
        self.calls.append(("end", range_id, domain))

    def mstx_mark(self, message: str, stream: Any, domain: str = "default") -> None:
        self.calls.append(("mark", message, stream, domain))


@pytest.fixture
def native(mindspore: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Native]:
    """MindSpore as on an NPU, as far as its mstx goes."""
    from mindspore import context
    from mindspore.profiler.platform import npu_profiler

    native, real = Native(), context.get_context
    monkeypatch.setattr(npu_profiler.Mstx, "NPU_PROFILER", native)
    monkeypatch.setattr(npu_profiler.Mstx, "enable", False)
    monkeypatch.setattr(context, "get_context", lambda key: "Ascend" if key == "device_target" else real(key))
    sinks.install_all()
    yield native
    sinks.uninstall_all()


def profiler(wants_mstx: bool = True) -> Any:
    """A real NpuProfiler, but for CANN, which its constructor starts."""
    from mindspore.profiler.platform.npu_profiler import NpuProfiler

    made: Any = object.__new__(NpuProfiler)
    made._is_env_not_valid, made._profiler = False, None
    made._logger, made._prof_info = SimpleNamespace(info=print), SimpleNamespace(save=print)
    made._prof_ctx = SimpleNamespace(
        npu_profiler_params={"mstx": wants_mstx}, activities=[], data_process=False, rank_id=0, device_id=0,
        ascend_ms_dir="",
    )  # fmt: skip
    return made


def test_its_profiler_gets_from_us_what_its_own_mstx_would_give_it(native: Native, mindspore: Any) -> None:
    class Stream(mindspore.runtime.Stream):
        def device_stream(self) -> str:
            return "handle"

    own, stream, session = mindspore.profiler.mstx, Stream(), profiler()
    session.start()
    with mstx_range("outer", domain="mine"), mstx_range("on stream", stream=stream):
        mark("m", domain="mine")
        mark("s", stream=stream)
    ours = list(native.calls)
    native.calls.clear()
    outer = own.range_start("outer", domain="mine")
    on_stream = own.range_start("on stream", stream)
    own.mark("m", domain="mine")
    own.mark("s", stream)
    own.range_end(on_stream)
    own.range_end(outer, "mine")
    session.stop()

    assert ours == native.calls
    assert len(ours) == 6


def test_nothing_is_sent_outside_a_session_or_in_one_without_mstx(native: Native) -> None:
    for session in (profiler(wants_mstx=False), profiler()):
        session.start()
        with mstx_range("inside"):
            pass
        session.stop()
        with mstx_range("after"):
            pass

    assert [call[1] for call in native.calls if call[0] == "start"] == ["inside"]


def test_a_session_on_a_cpu_leaves_the_sink_ready(mindspore: Any, tmp_path: Path) -> None:
    """There `Mstx.enable` is never set, and there is no C object."""
    sinks.install_all()
    try:
        handler = mindspore.profiler.tensorboard_trace_handler(str(tmp_path), analyse_flag=False)
        session = mindspore.profiler.profile(on_trace_ready=handler)
        with mstx_range("x"):
            state = sink.describe_state()
        session.stop()
    finally:
        sinks.uninstall_all()

    assert mindspore.profiler.mstx.NPU_PROFILER is None
    assert state == "ready: no profiler session with mstx records"
