"""A framework's own profiling section: it is carried out once, by mstxkit where it takes over, else by the framework.

On the real torch_npu, by the profiles that are there. MindSpeed-RL's functions are those of its source; verl is verl.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.mindspeed_rl_utils import package

pytest.importorskip("polars")

from mstxkit.reading.run import open_run
from mstxkit.testing import run_under_cann

PROGRAM = Path(__file__).resolve().parents[1] / "builders" / "taken_over.py"
ROOT = PROGRAM.parents[2]
VENVS = ROOT / ".venvs"
FILES: dict[str, dict[str, Any]] = {
    "mindspeed_rl": {"profiler_config": {"integrated": {
        "profile": True, "stage": "actor_update", "profile_step_start": 3, "profile_step_end": 4, "profile_ranks": [0],
        "profile_level": "level0",
    }}},
    "verl": {
        "global_profiler": {"tool": "npu", "steps": [3]},
        "actor_rollout_ref": {"actor": {"profiler": {
            "enable": True, "all_ranks": True,
            "tool_config": {"npu": {"discrete": True, "contents": ["npu"], "level": "level0"}},
        }}},
    },
}  # fmt: skip
# verl's section is of a role, with all that it does.
STAGES = {
    "mindspeed_rl": ["actor_update of step 3"],
    "verl": ["actor_compute_log_prob of step 3", "actor_generate of step 3", "actor_update of step 3"],
}
FRAMEWORKS = soak.rounds(["mindspeed_rl", "verl"], ["mindspeed_rl"])

pytestmark = [
    pytest.mark.npu,
    pytest.mark.timeout(400),
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]


def profiled(framework: str, folder: Path, takes_over: bool) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """Profiles of theirs, profiles of ours, and how the planned request ended: states and reasons."""
    own = {"mstxkit": {"takes_over": True}} if takes_over else {}
    file = folder / "training.json"
    file.write_text(json.dumps({**FILES[framework], **own}))
    paths = [package(folder), VENVS / "verl" / "0.9.0", VENVS / "frameworks" / "lib/python3.11/site-packages"]
    done = run_under_cann(
        [sys.executable, str(PROGRAM), framework, str(file), str(folder)], cwd=folder, start_bytes=4096,
        env={"THEIR_PATHS": os.pathsep.join(map(str, paths)), "PYTHONPATH": str(ROOT)}, timeout_s=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.rpartition("TOLD ")[2].splitlines()[0])
    ours = [json.loads(file.read_text()) for file in (folder / "run" / "profiles").rglob("session.json")]
    states = [(row["state"], row["reason"]) for row in open_run(folder / "run").escalations().iter_rows(named=True)]
    return theirs, [f"{one['stage']} of step {one['step']}" for one in ours], states


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_told_to_take_over_mstxkit_records_the_section_and_the_framework_does_not(
    framework: str, tmp_path: Path
) -> None:
    theirs, ours, states = profiled(framework, tmp_path, takes_over=True)

    assert theirs == []
    assert sorted(ours) == STAGES[framework]
    assert {state for state, _ in states} == {"done"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_else_the_framework_records_it_and_mstxkit_says_that_it_stays_away(framework: str, tmp_path: Path) -> None:
    theirs, ours, states = profiled(framework, tmp_path, takes_over=False)

    assert len(theirs) == 1
    assert ours == []
    ((state, reason),) = set(states)
    assert state == "refused"
    assert reason.startswith(f"{framework} is active: it carries out its own section here")
