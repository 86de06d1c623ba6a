"""The torch sink on the real torch.profiler: what the exported trace shows."""

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
import asyncio, json, sys, threading
from mstxkit import faults, mark, mstx_range, sinks
sinks.install_all()
said = [sinks.describe_all()["torch"]]
import torch
from torch.profiler import ProfilerActivity, profile

async def task(number, ended):
    with mstx_range(f"task {number}"):
        await (asyncio.sleep(0.002) if number == 2 else ended[number + 1].wait())
    ended[number].set()

async def tasks():
    ended = [asyncio.Event() for number in range(3)]
    await asyncio.gather(*(task(number, ended) for number in range(3)))

def elsewhere(work):
    thread = threading.Thread(target=work)
    thread.start(); thread.join()

def inside():
    with mstx_range("outer", domain="mine"):
        with mstx_range("inner", tokens=3): torch.ones(3)
    mark("instant")
    asyncio.run(tasks())
    try:
        with mstx_range("raises"): raise KeyError
    except KeyError: pass
    moved = mstx_range("ends on another thread"); moved.__enter__()
    elsewhere(lambda: moved.__exit__(None, None, None))
    def work():
        with mstx_range("on another thread"): pass
    elsewhere(work)
    with mstx_range("last"): pass

before, after = mstx_range("ends inside"), mstx_range("ends after")
said.append(sinks.describe_all()["torch"])
before.__enter__()
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    said.append(sinks.describe_all()["torch"])
    before.__exit__(None, None, None)
    inside()
    after.__enter__()
after.__exit__(None, None, None)
with mstx_range("too late"): pass
said.append(sinks.describe_all()["torch"])
profiler.export_chrome_trace(sys.argv[1])
names = [event.key for event in profiler.key_averages()]

with torch.autograd.profiler.profile() as older:
    with mstx_range("under the older profiler"): pass
try:
    with profile(activities=[ProfilerActivity.CPU]): raise LookupError("of the user")
except LookupError as exc: said.append(str(exc))
said.append(sinks.describe_all()["torch"])
sinks.uninstall_all()
undone = torch.autograd.profiler._run_on_profiler_start.__module__
with profile(activities=[ProfilerActivity.CPU]) as unheard:
    with mstx_range("after uninstall"): pass
print(json.dumps({"said": said, "names": names, "older": [event.key for event in older.key_averages()],
    "unheard": [event.key for event in unheard.key_averages()], "undone": undone, "faults": faults.counts}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script printed, and its trace: name to list of (begin, end) in us."""
    folder = tmp_path_factory.mktemp("torch")
    trace, script = folder / "trace.json", folder / "script.py"
    script.write_text(SCRIPT)
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, str(script), str(trace)], env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    slices: dict[str, list[tuple[float, float]]] = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("ph") == "X":
            slices.setdefault(event["name"], []).append((event["ts"], event["ts"] + event["dur"]))
    return {**told, "slices": slices}


def test_ranges_and_marks_show_in_the_exported_trace(told: Any) -> None:
    assert {"mine::outer", "inner", "instant", "raises", "last"} <= set(told["slices"])
    (outer,), (inner,) = told["slices"]["mine::outer"], told["slices"]["inner"]
    assert outer[0] <= inner[0] <= inner[1] <= outer[1]


def test_interleaved_tasks_show_as_slices_that_overlap(told: Any) -> None:
    tasks = [told["slices"][f"task {number}"][0] for number in range(3)]

    assert [task[0] for task in tasks] == sorted(task[0] for task in tasks)
    assert [task[1] for task in tasks] == sorted((task[1] for task in tasks), reverse=True)


def test_a_range_that_ends_on_another_thread_is_shown_up_to_the_end_of_the_trace(told: Any) -> None:
    """torch has no way to end it there; nothing breaks, and the ranges after it are right."""
    (moved,), (last,) = told["slices"]["ends on another thread"], told["slices"]["last"]

    assert moved[0] < last[0] < last[1] <= moved[1]


def test_only_what_began_while_the_profiler_ran_is_in_it(told: Any) -> None:
    assert "ends after" in told["slices"]
    assert not {"ends inside", "too late", "on another thread"} & set(told["slices"])


def test_the_older_profiler_gets_ranges_too(told: Any) -> None:
    assert "under the older profiler" in told["older"]


def test_ranges_are_in_the_summary(told: Any) -> None:
    assert {"mine::outer", "inner"} <= set(told["names"])


def test_its_state_follows_the_profiler_also_when_the_body_raises(told: Any) -> None:
    ready, on = "ready: no torch profiler runs", "on: a torch profiler runs"

    assert told["said"] == ["waiting for torch", ready, on, ready, "of the user", ready]
    assert told["faults"] == {}


def test_uninstalled_torch_is_as_it_was(told: Any) -> None:
    assert told["undone"] == "torch.autograd.profiler"
    assert "after uninstall" not in told["unheard"]
