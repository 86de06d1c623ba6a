"""The mindspore backend on the real MindSpore, on a CPU: the host side is recorded, and nothing is parsed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mstxkit import presets

pytestmark = [
    pytest.mark.mindspore,
    pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="needs mindspore"),
]

SCRIPT = """
import json, sys
from pathlib import Path
from mstxkit import backends, faults, presets
import numpy, mindspore
from mindspore.profiler.profiler_interface import ProfilerInterface
folder = Path(sys.argv[1])
backend, refused = backends.chosen()
def said(outcome): return {**outcome._asdict(), "folder": outcome.folder and str(outcome.folder)}
told = {"backend": [backend.name, refused]}
ones = mindspore.Tensor(numpy.ones((4, 4), numpy.float32))
for name in presets.known():
    session = backend.start(presets.load(name), folder / name)
    running = ProfilerInterface.is_initialized
    (ones @ ones).sum().asnumpy()
    second = said(backend.start(presets.load(name), folder / "second").stop())
    told[name] = {**said(session.stop([5])), "running": running, "second": second["problems"]}
handler = mindspore.profiler.tensorboard_trace_handler(str(folder / "users"), analyse_flag=False)
users = mindspore.profiler.profile(on_trace_ready=handler)
told["while theirs"] = said(backend.start(presets.load("full"), folder / "refused").stop())
told["theirs goes on"] = ProfilerInterface.is_initialized
users.stop()
told["open"] = ProfilerInterface.is_initialized
session = backend.start(presets.load("full"), folder / "lost")
session._recorder._profiler.action_controller.action_map.clear()
told["lost"] = said(session.stop())
told["still open"] = ProfilerInterface.is_initialized
print(json.dumps({**told, "faults": faults.counts}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    folder = tmp_path_factory.mktemp("mindspore")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", presets.known())
def test_each_preset_is_recorded_raw(told: dict[str, Any], name: str) -> None:
    outcome = told[name]
    folder = Path(outcome["folder"])

    assert (outcome["problems"], outcome["steps"], outcome["running"]) == ([], [5], True)
    assert folder.name.endswith("_ascend_ms")
    assert not (folder / "ASCEND_PROFILER_OUTPUT").exists()
    assert outcome["second"] == ["refused: a session of mindspore records in this process already"]


def test_a_profiler_of_the_program_is_left_alone(told: dict[str, Any]) -> None:
    assert told["while theirs"]["problems"] == [
        "refused: another profiler of MindSpore is open in this process already"
    ]
    assert (told["theirs goes on"], told["open"], told["faults"]) == (True, False, {})


def test_a_profiler_that_does_not_stop_is_closed(told: dict[str, Any]) -> None:
    assert told["lost"]["problems"] == [
        "mindspore did not stop when told to, and was closed by force: data may be missing"
    ]
    assert told["still open"] is False


def test_the_record_is_that_of_the_installed_version(recorded: ModuleType) -> None:
    import mindspore

    if mindspore.__version__ != "2.10.0":
        pytest.skip(f"recorded from 2.10.0, installed is {mindspore.__version__}")
    assert recorded.record(Path(mindspore.__file__).parent) == recorded.recorded("mindspore 2.10.0")
