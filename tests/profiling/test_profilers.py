"""Who else profiles: each owner is found by what it really leaves behind, and told with what to do."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from builders import lives

from mstxkit import faults
from mstxkit.profiling import guard, profilers
from mstxkit.testing import run_under_cann

FRAMEWORKS = ("torch", "torch_npu", "mindspore", "mindspeed_rl", "verl")


def told(environment: dict[str, str] | None = None) -> list[str]:
    return [
        f"{other.who}: {other.sentence}" for other in profilers.find_others({} if environment is None else environment)
    ]


@pytest.fixture(autouse=True)
def _no_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have imported some."""
    for name in [name for name in sys.modules if name.partition(".")[0] in FRAMEWORKS]:
        monkeypatch.delitem(sys.modules, name, raising=False)


def loaded(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def test_where_nobody_profiles_nobody_is_found() -> None:
    assert profilers.find_others({}) == ()


@pytest.mark.parametrize(
    ("environment", "who", "words"),
    [
        ({"PROFILER_SAMPLECONFIG": "{}"}, "msprof", ("owns the device", "start the program without msprof")),
        ({"PROFILING_MODE": "dynamic"}, "msprof", ("'dynamic'", "unset PROFILING_MODE")),
        ({"PROFILING_MODE": ""}, "msprof", ("PROFILING_MODE=''", "unset PROFILING_MODE")),
        ({"MS_PROFILER_OPTIONS": '{"start": true}'}, "MindSpore", ("whole run", "unset MS_PROFILER_OPTIONS")),
        ({"MS_PROFILER_OPTIONS": '{"start": "no"}'}, "MindSpore", ("whole run",)),
    ],
)
def test_an_owner_in_the_environment_is_named_with_what_to_do(
    environment: dict[str, str], who: str, words: tuple[str, ...]
) -> None:
    (other,) = profilers.find_others(environment)

    assert other.who == who
    assert [word for word in words if word not in other.sentence] == []


@pytest.mark.parametrize(
    "environment",
    [
        {"PROFILER_SAMPLECONFIG": ""},
        {"MSMONITOR_USE_DAEMON": "1"},  # these let somebody in, who is waited for once there is a window
        {"KINETO_USE_DAEMON": "1"},
        {"PROF_CONFIG_PATH": "/cfg"},
        {"MS_PROFILER_OPTIONS": ""},
        {"MS_PROFILER_OPTIONS": '{"start": false}'},
        {"MS_PROFILER_OPTIONS": '{"profiler_level": "Level1"}'},
        {"MS_PROFILER_OPTIONS": '{"start": tru'},
        {"MS_PROFILER_OPTIONS": "[true]"},
    ],
)
def test_a_variable_that_starts_nothing_is_no_owner(environment: dict[str, str]) -> None:
    assert profilers.find_others(environment) == ()


def test_all_who_may_profile_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFILER_SAMPLECONFIG", "{}")
    monkeypatch.setenv("PROFILING_MODE", "dynamic")
    refusal = guard.take_device(None)

    assert isinstance(refusal, guard.Refusal)
    assert "PROFILING_MODE" in refusal.sentence and "PROFILER_SAMPLECONFIG" in refusal.sentence
    assert profilers.in_the_way() == "", "no wait helps"


@pytest.mark.parametrize(("count", "found"), [(0, []), (1, ["verl"])])
def test_verls_profiler_counts_its_sessions(monkeypatch: pytest.MonkeyPatch, count: int, found: list[str]) -> None:
    """Stand-in: the real module needs torch_npu and an NPU to count."""
    profiler = SimpleNamespace(_define_count=count)
    loaded(monkeypatch, "verl.utils.profiler.mstx_profile", NPUProfiler=profiler)

    assert [other.who for other in profilers.find_others({})] == found
    assert not found or "global_profiler.steps" in told()[0]


@pytest.mark.parametrize(("initialized", "found"), [(False, []), (True, ["MindSpore"])])
def test_mindspores_profiler_is_seen(monkeypatch: pytest.MonkeyPatch, initialized: bool, found: list[str]) -> None:
    """Stand-in for mindspore 2.10.0, with which it was tried by hand."""
    interface = SimpleNamespace(is_initialized=initialized)
    loaded(monkeypatch, "mindspore.profiler.profiler_interface", ProfilerInterface=interface)

    assert [other.who for other in profilers.find_others({})] == found


def test_a_framework_that_keeps_its_state_elsewhere_is_a_counted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        @property
        def _define_count(self) -> int:
            raise RuntimeError("moved")

    loaded(monkeypatch, "verl.utils.profiler.mstx_profile", NPUProfiler=Odd())
    found = profilers.find_others({"PROFILING_MODE": "dynamic"})

    assert [other.who for other in found] == ["msprof"]
    assert faults.counts == {"guard.others": 1}


def test_a_module_that_is_still_being_imported_is_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "torch.autograd.profiler", "torch_npu.profiler.profiler_interface"):
        loaded(monkeypatch, name)
    loaded(monkeypatch, "verl.utils.profiler.mstx_profile")

    assert (profilers.find_others({}), faults.counts) == ((), {})


def test_nothing_is_imported_to_find_out() -> None:
    asks = "from mstxkit.profiling import guard; guard.take_device(None).release()"

    assert not lives.loads(asks, of="torch torch_npu mindspore verl logging")


TORCH = """
import json, sys, threading
import torch
from mstxkit.profiling import guard
def told():
    result = guard.take_device(None)
    if isinstance(result, guard.Claim):
        result.release()
    return result.sentence if isinstance(result, guard.Refusal) else "free"
def elsewhere():
    found = []
    thread = threading.Thread(target=lambda: found.append(told()))
    thread.start(); thread.join()
    return found[0]
found = [told()]
with torch.profiler.profile():
    found += [told(), elsewhere()]
with torch.autograd.profiler.profile():
    found += [told()]
found += [told()]
print(json.dumps(found))
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_torch_profiler_is_seen_from_every_thread() -> None:
    settings = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", TORCH], env=settings, capture_output=True, text=True, check=True)
    runs = "a torch.profiler runs in this process; ask again when it has stopped, or take it out"

    assert json.loads(done.stdout.splitlines()[-1]) == ["free", runs, runs, runs, "free"]


TORCH_NPU = (
    TORCH.partition("found = [told()]")[0]
    + """
import types, torch_npu
P = torch_npu.profiler
def profile(**more):
    return P.profile(activities=[P.ProfilerActivity.NPU], on_trace_ready=P.tensorboard_trace_handler("out",
        analyse_flag=False), experimental_config=P._ExperimentalConfig(mstx=True), **more)
found = [told()]
session = profile(); session.start()
found += [told(), elsewhere()]
sys.modules["mindspeed_rl"] = types.ModuleType("mindspeed_rl")
found += [told()]
session.stop()
found += [told(), elsewhere()]
session = profile(schedule=P.schedule(wait=1, warmup=1, active=1)); session.start()
found += [told()]          # it waits: nothing shows
session.step()
found += [told()]          # it warms up
session.step(); session.step()
found += [told()]
session.stop()
print("FOUND", json.dumps(found))
"""
)


@pytest.mark.npu
@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu")
def test_torch_npus_profiler_is_seen_from_every_thread_and_while_it_warms_up(tmp_path: Any) -> None:
    run = run_under_cann(TORCH_NPU, cwd=tmp_path)
    line = next((line for line in run.stdout.splitlines() if line.startswith("FOUND")), run.stderr)
    found = json.loads(line[len("FOUND") :])

    recording = f"torch_npu's profiler records in this process into {tmp_path.resolve()}/out/"
    assert [text.startswith(recording) for text in found] == [False, True, True, True, False, False, False, True, False]
    assert [found[i] for i in (0, 4, 5, 6, 8)] == ["free"] * 5
    assert ["MindSpeed-RL" in text for text in found[1:4]] == [False, False, True]
