"""Sessions of this process on the real torch.profiler: the whole way on any machine, and a trace that is counted."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")

SCRIPT = """
import json, os, sys
from mstxkit import faults, mstx_range, sinks, stage
from mstxkit.host import folders
from mstxkit.store import run_file
from mstxkit.profiling import presets
sinks.install_all()
import torch
from torch.profiler import profile
from mstxkit.profiling.backends import find_profiler as backend_here
from mstxkit.profiling.session import OneSession, Order
run, run_id = run_file.open_run_folder(sys.argv[1])
one, told = OneSession(), {"backend": backend_here()}
def begin(**changes):
    order = Order(run, run_id, 1, 2, "", "actor_update", 7, presets.load_preset("full"), "ab" * 8, "slow", 60.0, 1000)
    return one.begin(order._replace(**changes))
def end(holds=""):
    recorded = one.end("the stage ended", [7], holds)
    return recorded and {**recorded._asdict(), "folder": recorded.folder and str(recorded.folder)}
weights = torch.nn.Linear(8, 8)
def update():
    with stage("actor_update"):
        for _ in range(3):
            with mstx_range("micro batch"):
                weights(torch.ones(4, 8)).sum().backward()

update()
told["full"] = {"begin": begin()}
told["size"] = one.bytes_so_far()
update()
told["full"]["end"] = end("actor_update")
update()

with profile() as users:
    told["theirs"] = {"begin": begin(), "end": end()}
    update()

told["ended"] = {"begin": begin()}
torch.autograd.profiler._disable_profiler()
told["ended"]["end"] = end()

export = profile.export_chrome_trace
def full(*_): raise OSError(28, "No space left on device")
profile.export_chrome_trace = full
told["full disk"] = {"begin": begin(), "end": end()}
profile.export_chrome_trace = export
told["after"] = {"begin": begin(), "work": update(), "end": end()}
told["other"] = {"begin": begin(), "work": weights(torch.ones(4, 8)).sum().backward(), "end": end("actor_update")}
told["still"] = torch._C._autograd._profiler_enabled()
print(json.dumps({**told, "faults": faults.counts}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    folder = tmp_path_factory.mktemp("torch")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "run")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = sorted((folder / "run").rglob("session.json"), key=lambda file: file.parent.name)
    return {**json.loads(done.stdout.splitlines()[-1]), "files": [json.loads(file.read_text()) for file in files]}


def test_the_trace_holds_the_stage_exactly_once_with_all_that_ran_in_it(told: dict[str, Any]) -> None:
    recorded, session = told["full"]["end"], told["files"][0]
    trace = json.loads((Path(recorded["folder"]) / session["output"]).read_text())
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    names = [event["name"] for event in events]

    assert told["backend"][0] == "torch"
    assert (told["full"]["begin"], recorded["problems"]) == (None, [])
    assert [names.count(name) for name in ("actor_update", "micro batch", "aten::linear")] == [1, 3, 3]
    (stage,) = (event for event in events if event["name"] == "actor_update")
    inside = [event for event in events if event["name"] in ("micro batch", "aten::linear")]
    assert all(stage["ts"] <= one["ts"] <= one["ts"] + one["dur"] <= stage["ts"] + stage["dur"] for one in inside)


def test_a_limit_of_bytes_is_said_not_to_hold(told: dict[str, Any]) -> None:
    session = told["files"][0]

    assert told["size"] is None
    assert session["limits"] == {"seconds": 60.0, "bytes": 1000, "bytes_enforceable": False}
    assert any("cannot be enforced: torch keeps data in memory" in note for note in session["notes"])
    assert session["overshoot"]["bytes"] == session["bytes"] - 1000 > 0


def test_the_backend_and_its_version_are_named(told: dict[str, Any]) -> None:
    import importlib.metadata

    session = told["files"][0]

    assert session["backend"] == "torch"
    assert session["backend_version"].startswith(importlib.metadata.version("torch").split("+")[0])


def test_a_profiler_of_the_program_is_left_alone(told: dict[str, Any]) -> None:
    assert told["theirs"] == {
        "begin": "a torch.profiler runs in this process; ask again when it has stopped, or take it out",
        "end": None,
    }


def test_a_session_that_the_program_ended_says_so(told: dict[str, Any]) -> None:
    ended = told["ended"]["end"]

    assert ended["folder"] is None
    assert ended["problems"][0] == "torch had ended before it was told to: somebody else stopped it"
    assert ended["problems"][-1] == "nothing was written"
    assert told["files"][1]["state"] == "failed"


def test_a_full_disk_is_stated_and_costs_no_later_session(told: dict[str, Any]) -> None:
    lost = told["full disk"]["end"]

    assert (lost["folder"], lost["problems"]) == (
        None,
        ["stop: [Errno 28] No space left on device", "nothing was written"],
    )
    assert (told["after"]["begin"], told["after"]["end"]["problems"]) == (None, [])
    assert told["still"] is False


def test_every_session_ends_in_a_stated_state(told: dict[str, Any]) -> None:
    assert [session["state"] for session in told["files"]] == ["recorded", "failed", "failed", "recorded", "failed"]


def test_data_without_the_range_of_the_stage_are_a_failure_that_is_told(told: dict[str, Any]) -> None:
    lost, session = told["other"]["end"], told["files"][-1]

    (problem,) = lost["problems"]
    assert lost["folder"] is None
    assert problem.startswith("its range was not recorded: ")
    assert problem.endswith(" holds events, and none of them is actor_update")
    assert (session["state"], session["problems"]) == ("failed", [problem])


def test_what_the_profiler_imports_at_its_first_start_is_there_before(tmp_path: Path) -> None:
    """Of 800 modules, 1.7 s at best: the thread that trains would wait for them in its first session."""
    program = """
import sys, threading, torch
from mstxkit.profiling import session
before = set(sys.modules)
assert session.import_ahead(begins=False)
assert session.import_ahead() and session.import_ahead()
(thread,) = [t for t in threading.enumerate() if t.name == "mstxkit-imports"]
thread.join()
assert not session.import_ahead()
ahead = set(sys.modules)
profiler = torch.profiler.profile()
profiler.start()
print(len(ahead - before), len({name for name in set(sys.modules) - ahead if name.startswith("torch.")}))
profiler.stop()  # torch 2.13 dies of SIGSEGV at the end of a program that is still profiled
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=True)
    ahead, at_start = map(int, done.stdout.split())

    assert ahead > 100 and at_start < 10
