"""The mindspore sink on a stand-in with the recorded names and parameters of MindSpore; the record on the real one."""

from __future__ import annotations

import itertools
import json
import sys
from types import ModuleType
from typing import Any, Callable

import pytest

from mstxkit import mark, mstx_range
from mstxkit.sinks import mindspore


class Stream:
    """As `mindspore.runtime.Stream`."""

    def device_stream(self) -> str:
        return "handle"


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def on_npu(
    recorded_mindspore: ModuleType, calls: list[Any], monkeypatch: pytest.MonkeyPatch, installed: ModuleType
) -> Callable[..., Any]:
    """Makes a MindSpore with the given properties, imports it, and gives its NpuProfiler."""

    def imported(ids: Callable[[], int] = itertools.count(1).__next__, **properties: bool) -> Any:
        for name, module in recorded_mindspore.stand_in(calls, ids, **properties).items():
            monkeypatch.setitem(sys.modules, name, module)
        installed.uninstall_all()
        installed.install_all()
        return sys.modules[recorded_mindspore.MODULE].NpuProfiler  # type: ignore[attr-defined]

    return imported


def test_ranges_and_marks_reach_the_c_object_while_a_session_with_mstx_runs(on_npu: Any, calls: list[Any]) -> None:
    profiler, stream = on_npu()(wants_mstx=True), Stream()
    with mstx_range("before"):
        pass
    profiler.start()
    with mstx_range("outer", domain="mine"), mstx_range("on stream", stream=stream):
        mark("m")
        mark("s", stream=stream)
    profiler.stop()
    with mstx_range("after"):
        pass

    assert calls == [
        ("mstx_range_start", "outer", None, "mine"),
        ("mstx_range_start", "on stream", "handle", "default"),
        ("mstx_mark", "m", None, "default"),
        ("mstx_mark", "s", "handle", "default"),
        ("mstx_range_end", 2, "default"),
        ("mstx_range_end", 1, "mine"),
    ]


def test_a_session_without_mstx_gets_nothing(on_npu: Any, calls: list[Any]) -> None:
    profiler = on_npu()(wants_mstx=False)

    profiler.start()
    with mstx_range("x"):
        pass
    profiler.stop()

    assert calls == []


def test_ranges_that_cross_start_and_stop_stay_balanced(on_npu: Any, calls: list[Any]) -> None:
    profiler = on_npu()(wants_mstx=True)
    before, after = mstx_range("ends inside"), mstx_range("ends after")
    before.__enter__()
    profiler.start()
    before.__exit__(None, None, None)
    after.__enter__()
    profiler.stop()
    after.__exit__(None, None, None)

    assert calls == [("mstx_range_start", "ends after", None, "default"), ("mstx_range_end", 1, "default")]


def test_an_id_of_zero_is_not_ended(on_npu: Any, calls: list[Any]) -> None:
    profiler = on_npu(ids=lambda: 0)(wants_mstx=True)

    profiler.start()
    with mstx_range("filtered"):
        pass
    profiler.stop()

    assert [call[0] for call in calls] == ["mstx_range_start"]


@pytest.mark.parametrize(("domains", "extra"), [(True, ("mine",)), (False, ())])
def test_without_the_c_object_the_public_calls_are_used(
    on_npu: Any, calls: list[Any], domains: bool, extra: Any
) -> None:
    """Such as MindSpore 2.5, whose calls know no domain."""
    profiler, stream = on_npu(native=False, domains=domains)(wants_mstx=True), Stream()

    profiler.start()
    with mstx_range("a", domain="mine"), mstx_range("b", domain="mine", stream=stream):
        mark("m", domain="mine")
    profiler.stop()

    assert calls == [
        ("range_start", "a", None, *extra),
        ("range_start", "b", stream, *extra),
        ("mark", "m", None, *extra),
        ("range_end", 2, *extra),
        ("range_end", 1, *extra),
    ]


def test_on_a_cpu_nothing_is_sent(on_npu: Any, calls: list[Any]) -> None:
    profiler = on_npu()(wants_mstx=True)
    sys.modules[mindspore._MODULE].Mstx.NPU_PROFILER = None  # type: ignore[attr-defined]

    profiler.start()
    with mstx_range("x"):
        pass
    profiler.stop()

    assert calls == []


def test_its_state_says_what_it_does(on_npu: Any, installed: ModuleType) -> None:
    waiting = installed.describe_all()["mindspore"]
    profiler = on_npu()(wants_mstx=True)
    ready = installed.describe_all()["mindspore"]
    profiler.start()
    on = installed.describe_all()["mindspore"]
    profiler.stop()

    assert (waiting, ready, on) == (
        "waiting for mindspore",
        "ready: no profiler session with mstx records",
        "on: a profiler session with mstx records",
    )


@pytest.mark.mindspore
def test_the_record_is_that_of_the_real_mindspore(recorded_mindspore: ModuleType) -> None:
    pytest.importorskip("mindspore")

    assert recorded_mindspore.record() == json.loads(recorded_mindspore.RECORD.read_text())


@pytest.mark.mindspore
def test_the_real_profiler_class_of_mindspore_can_be_listened_to(installed: ModuleType) -> None:
    """On a CPU its `start` has nothing to do for mstx, so that nothing may be sent."""
    pytest.importorskip("mindspore")
    from mindspore.profiler.platform import npu_profiler

    profiler = object.__new__(npu_profiler.NpuProfiler)
    profiler._is_env_not_valid = True
    profiler.start()
    state = mindspore.describe_state()
    profiler.stop()

    assert npu_profiler.NpuProfiler.start.__wrapped__ is not None
    assert state == "ready: no profiler session with mstx records"
