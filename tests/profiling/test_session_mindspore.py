"""Sessions of this process on the real MindSpore, on a CPU: the same folder and file as elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.mindspore,
    pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="needs mindspore"),
]

SCRIPT = """
import json, sys
from mstxkit import faults
from mstxkit.host import folders
from mstxkit.store import run_file
from mstxkit.profiling import presets
import numpy, mindspore
from mindspore.profiler.profiler_interface import ProfilerInterface
from mstxkit.profiling.backends import find_profiler as backend_here
from mstxkit.profiling.session import OneSession, Order
run, run_id = run_file.open_run_folder(sys.argv[1])
one, told = OneSession(), {"backend": backend_here()[0], "begin": [], "end": []}
def session(preset):
    order = Order(run, run_id, 1, 2, "actor", "actor_update", 7, presets.load_preset(preset), bytes=1 << 30)
    told["begin"].append(one.begin(order))
    ones = mindspore.Tensor(numpy.ones((4, 4), numpy.float32))
    (ones @ ones).sum().asnumpy()
    recorded = one.end("the stage ended", [7])
    told["end"].append(recorded and recorded.problems)
session("light"); session("full")
handler = mindspore.profiler.tensorboard_trace_handler(str(run / "users"), analyse_flag=False)
users = mindspore.profiler.profile(on_trace_ready=handler)
session("full")
told["theirs goes on"] = ProfilerInterface.is_initialized
users.stop()
session("full")
print("told", json.dumps({**told, "open": ProfilerInterface.is_initialized, "faults": faults.counts}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = Path(__file__).resolve().parents[2]
    folder = tmp_path_factory.mktemp("mindspore")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "run")],
        env={**os.environ, "PYTHONPATH": str(root)}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = sorted((folder / "run").rglob("session.json"), key=lambda file: file.parent.name)
    told: dict[str, Any] = json.loads(done.stdout.split("told ", 1)[1].splitlines()[0])
    return {**told, "files": [(json.loads(file.read_text()), file.parent) for file in files]}


def test_sessions_are_recorded_one_after_the_other(told: dict[str, Any]) -> None:
    assert (told["backend"], told["open"], told["faults"]) == ("mindspore", False, {})
    assert [told["begin"][number] for number in (0, 1, 3)] == [None, None, None]
    assert [told["end"][number] for number in (1, 3)] == [[], []]
    assert [session["state"] for session, _ in told["files"]] == ["failed", "recorded", "recorded"]


def test_a_session_of_a_device_that_is_not_there_has_recorded_nothing_and_says_so(told: dict[str, Any]) -> None:
    session, _ = told["files"][0]

    assert (session["preset"], session["state"]) == ("light", "failed")
    assert session["problems"] == told["end"][0]
    assert session["problems"][0].startswith("nothing was recorded: ")


def test_the_data_say_whose_they_are(told: dict[str, Any]) -> None:
    session, folder = told["files"][1]
    metadata = json.loads((folder / session["output"] / "profiler_metadata.json").read_text())

    assert session["output"].endswith("_ascend_ms")
    assert session["backend_version"].startswith("2.")
    assert (metadata["role"], metadata["mstxkit"]["stage"]) == ("actor", "actor_update")


def test_a_profiler_of_the_program_is_left_alone_and_named(told: dict[str, Any]) -> None:
    assert told["begin"][2] == (
        "MindSpore's profiler is on in this process; ask again when it has stopped, or take it out"
    )
    assert (told["end"][2], told["theirs goes on"]) == (None, True)
