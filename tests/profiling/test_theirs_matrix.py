"""Sessions of ours among other people's profilers: theirs are whole, what became of ours is stated, nothing is raised.

Each kind of profiler, in each phase that it has, beside an escalation and beside light capture. All of them in `make
soak`, some of them each day. On the real torch_npu by the calls that CANN gets; on torch and MindSpore on a CPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders import soak
from builders.mindspeed_rl_utils import package

from mstxkit.testing import CannCall, run_under_cann

pytestmark = pytest.mark.days("odd")

PROGRAM = Path(__file__).resolve().parents[1] / "builders" / "their_profilers.py"
ROOT = PROGRAM.parents[2]
VENVS = ROOT / ".venvs"
CALLS = ("aclprofInit", "aclprofStart", "aclprofStop", "aclprofFinalize")

SCHEDULED = ("waiting", "warming up", "recording")
PLAIN = ("before", "running", "inside", "made on a thread")
PHASES = {
    "torch": (*PLAIN, *SCHEDULED, "begun on a thread"),
    "torch_npu": (*PLAIN, *SCHEDULED, "begun on a thread"),
    "dynamic": ("running", "inside", *SCHEDULED),
    "mindspeed_rl": ("running", "inside", "waiting", "recording"),
    "verl": ("before", "running", "inside"),
    "mindspore": PLAIN + SCHEDULED,
}
OURS = ("escalation", "light")
Case = tuple[str, str, str]


def cases(*kinds: str) -> list[Case]:
    return [(kind, phase, ours) for kind in kinds for phase, ours in product(PHASES[kind], OURS)]


class Lived(NamedTuple):
    """What became of one case."""

    told: dict[str, Any]
    calls: list[CannCall]


def command(folder: Path, wanted: list[Case], frameworks: str) -> list[str]:
    return [sys.executable, str(PROGRAM), str(folder / "cases"), json.dumps(wanted), frameworks]


def told(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line[5:]) for line in stdout.splitlines() if line.startswith("TOLD ")]


def on_npu(folder: Path, wanted: list[Case]) -> dict[Case, Lived]:
    paths = [package(folder), VENVS / "verl" / "0.9.0", VENVS / "frameworks" / "lib/python3.11/site-packages"]
    run = run_under_cann(
        command(folder, wanted, "torch,torch_npu"), cwd=folder, start_bytes=4096, timeout_s=600,
        env={"THEIR_PATHS": os.pathsep.join(map(str, paths)), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    every = run.named(*CALLS)
    lives = [Lived(t, [c for c in every if t["from_ns"] <= c.t_ns <= t["to_ns"]]) for t in told(run.stdout)]
    return dict(zip(wanted, lives))


def on_cpu(folder: Path, wanted: list[Case], frameworks: str) -> dict[Case, Lived]:
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        command(folder, wanted, frameworks), cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {case: Lived(one, []) for case, one in zip(wanted, told(done.stdout))}


def holds(case: Case, lived: Lived) -> None:
    found, (_, phase, ours) = lived.told, case
    assert "raised" not in found, found["raised"]
    if phase == "begun on a thread":
        is_stated(found, ours)
        return
    assert found["lacks"] == "", "theirs is whole"
    assert {session["state"] for session in found["sessions"]} <= {"recorded"}, "what ours has is kept"
    assert [session["problems"] for session in found["sessions"] if session["problems"]] == []
    assert set(found["faults"]) <= {"light capture"}, "which is told once, where it waits"
    if ours == "escalation":
        (report,) = found["reports"]
        assert (report["state"], report["recorded"]) == ("done", 1)
        assert ("cut short by" in report["reason"]) is (phase == "inside")
    one_at_a_time = [call.call for call in lived.calls]
    assert one_at_a_time == list(CALLS) * (len(one_at_a_time) // 4), "never two at once"
    assert {call.code for call in lived.calls} <= {0}


def is_stated(found: dict[str, Any], ours: str) -> None:
    """A session is ended on its own thread only, so that both may lack data where they share the device."""
    assert {session["state"] for session in found["sessions"]} <= {"recorded", "failed"}
    assert "another thread's profiler" in found["faults"], "in the log"
    if ours == "escalation":
        (report,) = found["reports"]
        assert report["state"] in ("done", "failed")
        assert "'s profile began on another thread" in report["reason"]


NPU = soak.sample(cases("torch", "torch_npu", "dynamic", "mindspeed_rl"), 4)
NPU += cases("verl") if soak.is_soaking() and (VENVS / "verl" / "0.9.0").exists() else []
CPU = soak.sample(cases("torch"), 2)
MINDSPORE = soak.sample(cases("mindspore"), 2)


@pytest.fixture(scope="module")
def beside_npu(tmp_path_factory: pytest.TempPathFactory) -> dict[Case, Lived]:
    return on_npu(tmp_path_factory.mktemp("npu"), NPU)


@pytest.fixture(scope="module")
def beside_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[Case, Lived]:
    return on_cpu(tmp_path_factory.mktemp("torch"), CPU, "torch")


@pytest.fixture(scope="module")
def beside_mindspore(tmp_path_factory: pytest.TempPathFactory) -> dict[Case, Lived]:
    # On a CPU a session of the device has no data, until a profile of theirs has made MindSpore record the host.
    first = cases("mindspore")[0]
    return on_cpu(tmp_path_factory.mktemp("mindspore"), [first, *MINDSPORE], "mindspore")


def is_there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@pytest.mark.npu
@pytest.mark.skipif(not is_there("torch_npu"), reason="needs torch_npu")
@pytest.mark.parametrize("case", NPU, ids="-".join)
def test_on_an_npu_theirs_is_whole_and_ours_is_stated(beside_npu: dict[Case, Lived], case: Case) -> None:
    holds(case, beside_npu[case])


@pytest.mark.skipif(not is_there("torch"), reason="needs torch")
@pytest.mark.parametrize("case", CPU, ids="-".join)
def test_on_a_cpu_theirs_is_whole_and_ours_is_stated(beside_torch: dict[Case, Lived], case: Case) -> None:
    holds(case, beside_torch[case])


@pytest.mark.mindspore
@pytest.mark.skipif(not is_there("mindspore"), reason="needs mindspore")
@pytest.mark.parametrize("case", MINDSPORE, ids="-".join)
def test_on_mindspore_theirs_is_whole_and_ours_is_stated(beside_mindspore: dict[Case, Lived], case: Case) -> None:
    holds(case, beside_mindspore[case])
