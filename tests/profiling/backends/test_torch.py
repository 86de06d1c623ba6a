"""The torch backend on the real torch.profiler: its traces are opened and counted."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mstxkit.profiling import presets

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")

SCRIPT = """
import gc, json, os, sys, threading
from pathlib import Path
from mstxkit import faults, mstx_range, sinks, stage
from mstxkit.profiling import backends, presets
sinks.install_all()
import torch
from torch.profiler import profile
folder = Path(sys.argv[1])
backend, refused = backends.choose_backend()
def begun(name, below=None): return backend.start(presets.load_preset(name), folder / (below or name))
def said(outcome): return {**outcome._asdict(), "folder": outcome.folder and str(outcome.folder)}
told = {"backend": [backend.name, refused]}

weights = torch.nn.Linear(8, 8)
def update(steps):
    with stage("actor_update"):
        for _ in range(steps):
            with mstx_range("micro batch", domain="mine"):
                weights(torch.ones(4, 8)).sum().backward()

update(1)
for name in presets.list_presets():
    session = begun(name)
    update(3)
    size = session.bytes_so_far()
    told[name] = {**said(session.stop([5])), "size": size}
update(1)

gc.disable()
session = begun("full", "swapped")
update(1)
session.stop()
try:
    torch.utils.swap_tensors(weights.weight, torch.nn.Parameter(torch.ones(8, 8)))
    told["swapped"] = True
except RuntimeError as exc:
    told["swapped"] = str(exc)
gc.enable()

with profile() as users:
    told["while theirs"] = said(begun("full", "refused").stop())
    update(1)
told["theirs"] = [event.key for event in users.key_averages()].count("actor_update")
elsewhere = []
users = profile(); users.start()
thread = threading.Thread(target=lambda: elsewhere.append(begun("full", "refused").stop()))
thread.start(); thread.join()
users.stop()
told["theirs elsewhere"] = said(elsewhere[0])

session = begun("light", "after")
update(1)
told["after"] = said(session.stop())
told["empty"] = said(begun("light", "empty").stop())
told["still"] = torch._C._autograd._profiler_enabled()
print(json.dumps({**told, "faults": faults.counts}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    folder = tmp_path_factory.mktemp("torch")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "below": folder}


def events(told: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(told[name]["folder"]).read_text())["traceEvents"]
    return [event for event in found if event.get("ph") == "X"]


def test_torch_is_chosen_where_nothing_else_is(told: dict[str, Any]) -> None:
    other = "not imported in this process"

    assert told["backend"] == ["torch", {"torch_npu": other, "mindspore": other}]
    assert (told["faults"], told["still"]) == ({}, False)


def test_parameters_can_be_swapped_right_after_a_session(told: dict[str, Any]) -> None:
    """As FSDP2 does to move them. torch's profiler has weak references to every tensor while it has its events."""
    assert told["swapped"] is True


@pytest.mark.parametrize("name", presets.list_presets())
def test_a_trace_holds_the_stage_once_with_all_that_ran_in_it(told: dict[str, Any], name: str) -> None:
    found = events(told, name)
    names = [event["name"] for event in found]

    assert names.count("actor_update") == 1
    assert names.count("mine::micro batch") == 3
    assert names.count("aten::linear") == 3
    (stage,) = (event for event in found if event["name"] == "actor_update")
    inside = [event for event in found if event["name"] == "aten::linear"]
    assert all(stage["ts"] <= one["ts"] <= one["ts"] + one["dur"] <= stage["ts"] + stage["dur"] for one in inside)


@pytest.mark.parametrize("name", presets.list_presets())
def test_shapes_and_stacks_are_there_where_a_preset_has_them(told: dict[str, Any], name: str) -> None:
    preset, found = presets.load_preset(name), events(told, name)
    linear = next(event for event in found if event["name"] == "aten::linear")

    assert ("Input Dims" in linear["args"]) is preset.shapes
    assert any(event.get("cat") == "python_function" for event in found) is preset.stacks


def test_allocations_are_there_where_a_preset_has_them(told: dict[str, Any]) -> None:
    def allocations(name: str) -> int:
        return Path(told[name]["folder"]).read_text().count('"[memory]"')

    assert [name for name in presets.list_presets() if allocations(name)] == ["memory"]


@pytest.mark.parametrize("name", presets.list_presets())
def test_an_outcome_names_its_trace(told: dict[str, Any], name: str) -> None:
    outcome = told[name]
    trace = Path(outcome["folder"])

    assert (outcome["problems"], outcome["steps"], outcome["size"]) == ([], [5], None)
    assert outcome["bytes"] == trace.stat().st_size
    assert list(trace.parent.iterdir()) == [trace]
    assert outcome["start_ns"] < outcome["end_ns"]


def test_a_trace_without_an_event_has_recorded_nothing(told: dict[str, Any]) -> None:
    (problem,) = told["empty"]["problems"]

    assert problem.startswith("nothing was recorded: ")
    assert not told["empty"]["is_whole"]
    assert told["after"]["is_whole"]


@pytest.mark.parametrize("whose", ["while theirs", "theirs elsewhere"])
def test_a_torch_profiler_of_the_program_is_left_alone(told: dict[str, Any], whose: str) -> None:
    assert told[whose]["problems"] == ["refused: another torch profiler records in this process already"]
    assert told["theirs"] == 1
