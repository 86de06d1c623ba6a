"""The torch_npu sink on the real torch_npu and its real profiler, on stand-in CANN libraries.

Each script costs an import of torch_npu, so that several claims share the run of one.
"""

from __future__ import annotations

import importlib.util
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mstxkit.testing import CannRun, Fail, StandIn, run_under_cann

pytestmark = [
    pytest.mark.daily(5),
    pytest.mark.npu,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]

HEAD = """
import asyncio, json, os, sys, threading
from mstxkit import faults, mark, mstx_range, mstx_timer, sinks, stage
sinks.install_all()
import torch, torch_npu
import torch_npu.profiler as P
from torch_npu.profiler import ProfilerActivity

def options(**changes):
    light = {"profiler_level": P.ProfilerLevel.Level_none, "aic_metrics": P.AiCMetrics.AiCoreNone, "mstx": True,
             "export_type": [P.ExportType.Db]}
    return P._ExperimentalConfig(**{**light, **changes})

def window(activities=(ProfilerActivity.NPU,), schedule=None, **changes):
    handler = P.tensorboard_trace_handler("out", analyse_flag=False)
    return P.profile(activities=list(activities), schedule=schedule, on_trace_ready=handler,
                     experimental_config=options(**changes))

def state(): return sinks.describe_all()["torch_npu"].split(":")[0]
"""
TAIL = "\nprint('told', json.dumps([told, faults.counts]))\n"


def run(body: str, folder: Path, **settings: Any) -> tuple[CannRun, Any]:
    """The calls that reached CANN, and what the body put into `told`."""
    script = HEAD + "told = []\n" + textwrap.dedent(body) + TAIL
    done = run_under_cann(script, cwd=folder, **settings)
    assert done.returncode == 0, done.stderr
    told, faults = json.loads(done.stdout.split("told ", 1)[1].splitlines()[0])
    assert faults == {}
    return done, told


def shown(done: CannRun) -> list[tuple[str | None, str, bool]]:
    return [(found.message, found.domain, found.stream) for found in done.ranges()]


WINDOW = """
told.append(state())
with mstx_range("too early"): pass
ends_inside, ends_after = mstx_range("ends inside"), mstx_range("ends after", domain="mine")
ends_inside.__enter__()

@mstx_timer
def score(batch): return batch + 1

@mstx_timer("fetch")
async def fetch(seconds): await asyncio.sleep(seconds)

async def fetch_both(): await asyncio.gather(fetch(0.01), fetch(0.001))

def produce():
    with mstx_range("generator"): yield 1

with window():
    told.append(state())
    ends_inside.__exit__(None, None, None)
    with stage("rollout"), mstx_range("decode", domain="engine", tokens=3):
        score(1)
    mark("plain mark"); mark("mark of a domain", domain="engine")
    asyncio.run(fetch_both())
    try:
        with mstx_range("raises"): raise KeyError
    except KeyError: pass
    list(produce())
    thread = threading.Thread(target=lambda: score(2)); thread.start(); thread.join()
    with mstx_range("=csv injection"), mstx_range("Model.forward"): pass
    with mstx_range("on a stream", stream=torch.npu.current_stream()): pass
    mark("mark on a stream", stream=torch.npu.current_stream())
    with mstx_range("no stream at all", stream="cuda:0"): pass
    pid = os.fork()
    if pid == 0:
        with mstx_range("of the child"): mark("of the child")
        ends_inside.__exit__(None, None, None)
        os._exit(0)
    told.append(os.waitpid(pid, 0)[1])
    ends_after.__enter__()
told.append(state())
ends_after.__exit__(None, None, None)
with mstx_range("too late"): mark("too late")
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[CannRun, Any]:
    return run(WINDOW, tmp_path_factory.mktemp("window"), rate=1e6)


def test_every_kind_of_range_arrives_with_its_name_and_domain(profiled: Any) -> None:
    assert shown(profiled[0]) == [
        ("rollout", "default", False),
        ("decode", "engine", False),
        ("score", "default", False),
        ("fetch", "default", False),
        ("fetch", "default", False),
        ("raises", "default", False),
        ("generator", "default", False),
        ("score", "default", False),
        ("r:=csv injection", "default", False),
        ("r:Model.forward", "default", False),
        ("on a stream", "default", True),
        ("no stream at all", "default", False),
        ("ends after", "mine", False),
    ]


def test_every_range_is_balanced_also_those_that_raise_or_cross_the_stop(profiled: Any) -> None:
    assert profiled[0].unbalanced() == []
    assert profiled[0].named("mstxRangeEnd", "mstxDomainRangeEnd")[-1].domain == "mine"


def test_nothing_is_called_outside_of_the_window(profiled: Any) -> None:
    calls = [call for call in profiled[0].calls if call.call.startswith("mstx")]
    start, stop = profiled[0].named("aclprofStart", "aclprofStop")

    assert start.t_ns < min(call.t_ns for call in calls)
    assert max(call.t_ns for call in calls) < stop.t_ns


def test_marks_arrive_with_their_domain_and_stream(profiled: Any) -> None:
    assert [(call.message, call.domain, call.stream) for call in profiled[0].marks()] == [
        ("plain mark", "default", False),
        ("mark of a domain", "engine", False),
        ("mark on a stream", "default", True),
    ]


def test_interleaved_tasks_keep_their_own_ends(profiled: Any) -> None:
    longer, shorter = (found for found in profiled[0].ranges() if found.message == "fetch")

    assert longer.start_ns < shorter.start_ns < shorter.end_ns < longer.end_ns


def test_a_forked_child_is_silent(profiled: Any) -> None:
    assert profiled[1][2] == 0
    assert len({call.pid for call in profiled[0].calls}) == 1


def test_its_state_follows_the_profiler(profiled: Any) -> None:
    assert [profiled[1][0], profiled[1][1], profiled[1][3]] == ["ready", "on", "ready"]


def test_the_stand_in_has_written_what_a_session_leaves_behind(profiled: Any) -> None:
    (folder,) = profiled[0].prof_folders

    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) > 0


def test_only_sessions_with_npu_and_mstx_that_record_get_ranges(tmp_path: Path) -> None:
    body = """
    def inside(name, profiler, steps=0):
        with profiler:
            for number in range(steps + 1):
                with mstx_range(f"{name} {number}"): told.append(state())
                if steps: profiler.step()
    inside("no mstx", window(profiler_level=P.ProfilerLevel.Level0, mstx=False))
    inside("no npu", window(activities=[ProfilerActivity.CPU]))
    inside("cpu and npu", window(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]))
    inside("scheduled", window(schedule=P.schedule(wait=1, warmup=1, active=2, repeat=1)), steps=4)
    """

    done, told = run(body, tmp_path)

    names = [found.message for found in done.ranges() if not str(found.message).startswith("ProfilerStep#")]
    assert told == ["ready", "ready", "on", "ready", "ready", "on", "on", "ready"]
    assert names == ["cpu and npu 0", "scheduled 2", "scheduled 3"]
    assert done.unbalanced() == []


def test_profilers_made_before_the_sinks_and_failing_ones_are_followed_too(tmp_path: Path) -> None:
    body = """
    sinks.uninstall_all()
    made_before = window()
    sinks.install_all()
    made_before.start()
    with mstx_range("made before"): told.append(state())
    made_before.stop()
    told.append(state())

    outer, inner = window(), window()
    outer.start()
    with mstx_range("across"):
        inner.start()
        with mstx_range("nested"): told.append(state())
        inner.stop()
    with mstx_range("after the inner stop"): told.append(state())
    outer.stop()

    broken = window()
    broken.prof_if.experimental_config = None
    broken.start()
    with mstx_range("never started"): told.append(state())
    broken.stop()
    """

    done, told = run(body, tmp_path)

    assert told == ["on", "ready", "on", "ready", "ready"]
    assert [found.message for found in done.ranges()] == ["made before", "across", "nested"]
    assert done.unbalanced() == []


def test_uninstalled_torch_npu_is_as_it_was(tmp_path: Path) -> None:
    body = """
    import inspect
    from torch_npu.profiler import profiler_interface as module
    names = [(module, "_start_profiler"), (module, "_stop_profiler"), (module._ProfInterface, "stop_trace"),
             (module._ExperimentalConfig, "__call__")]
    told.append(str(inspect.signature(module._ProfInterface.stop_trace)))
    told.append([hasattr(getattr(*name), "__wrapped__") for name in names])
    originals = [getattr(*name).__wrapped__ for name in names]
    sinks.uninstall_all()
    told.append([getattr(*name) is original for name, original in zip(names, originals)])
    with window(), mstx_range("unheard"): pass
    """

    done, told = run(body, tmp_path)

    assert told == ["(self)", [True] * 4, [True] * 4]
    assert done.ranges() == []


def test_the_public_calls_serve_where_the_private_ones_are_missing_or_older(tmp_path: Path) -> None:
    body = """
    mstx, native = torch_npu.npu.mstx, torch_npu._C._mstx
    def once(name):
        with window():
            with mstx_range(name, domain="mine"): mark(name, domain="mine")
            with mstx_range(name + " on a stream", stream=torch.npu.current_stream()): pass
    torch_npu._C._mstx = None
    class public: pass
    seen = []
    def by_hand(message, stream=None, domain="default"): seen.append((message, stream is not None, domain)); return 7
    public.range_start = staticmethod(by_hand)
    public.range_end = staticmethod(lambda token, domain="default": seen.append((token, domain)))
    public.mark = staticmethod(lambda message, stream=None, domain="default": seen.append((message, domain)))
    torch_npu.npu.mstx = public
    once("public")
    public.range_start = staticmethod(lambda message, stream=None: by_hand(message, stream))
    public.range_end = staticmethod(lambda token: seen.append((token,)))
    public.mark = staticmethod(lambda message: seen.append((message,)))
    once("no domains")
    torch_npu.npu.mstx, torch_npu._C._mstx = mstx, native
    told.extend(seen)
    """

    _, told = run(body, tmp_path)

    assert told == [
        ["public", False, "mine"], ["public", "mine"], [7, "mine"],
        ["public on a stream", True, "default"], [7, "default"],
        ["no domains", False, "default"], ["no domains"], [7],
        ["no domains on a stream", True, "default"], [7],
    ]  # fmt: skip


def test_calls_that_fail_harm_nothing(tmp_path: Path) -> None:
    body = """
    with window():
        for number in range(4):
            with mstx_range(f"number {number}"): told.append(number)
    """

    done, told = run(body, tmp_path, fail=[Fail("mstxRangeStartA", 0, at=2)])

    assert told == [0, 1, 2, 3]
    assert [found.message for found in done.ranges()] == ["number 0", "number 2", "number 3"]
    assert done.unbalanced() == []


def test_a_tool_of_a_launcher_and_a_session_never_get_a_range_twice(tmp_path: Path) -> None:
    body = """
    crossing = mstx_range("direct, ends inside"); crossing.__enter__()
    with window():
        told.append(sinks.describe_all()["cann"])
        crossing.__exit__(None, None, None)
        with mstx_range("of the session"): pass
    with mstx_range("direct again"): pass
    """

    done, told = run(body, tmp_path, env={"MSTX_INJECTION_PATH": str(StandIn.build().injection)}, mstx="on")

    assert told == ["gives way to torch_npu"]
    assert shown(done) == [
        (name, "default", False) for name in ("direct, ends inside", "of the session", "direct again")
    ]
    assert done.unbalanced() == []


def test_torch_npus_own_mstx_still_works_because_no_call_came_before_it(tmp_path: Path) -> None:
    body = """
    with mstx_range("before any session"): mark("before any session")
    with window():
        number = torch_npu.npu.mstx.range_start("their own"); told.append(number > 0)
        torch_npu.npu.mstx.range_end(number)
    """

    done, told = run(body, tmp_path)

    assert told == [True]
    assert [found.message for found in done.ranges()] == ["their own"]
