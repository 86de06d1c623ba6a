"""The page's close look at a step: it is of one role and one attempt at the step, whoever has the same numbers."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("polars")

from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, anchor, new_run

from mstxkit.reading.page import zoom
from mstxkit.reading.report.choice import EVERYTHING
from mstxkit.reading.run import open_run

SECOND, HOUR = 10**9, 3600 * 10**9
ROLES = ("actor", "rollout")


def run_of(path: Path, attempts: int) -> Path:
    """Two ranks of two roles; each attempt at the job, an hour after the one before, does the same steps."""
    run = new_run(path)
    for attempt in range(attempts):
        for place in range(4):
            bank, began = BankFiles(), attempt * HOUR
            for step in range(4):
                at = began + step * SECOND
                bank.range(f"of {attempt}", at, at + SECOND // 2, stage=f"work_{ROLES[place % 2]}", own=True, step=step)
            about = {"start": f"s{attempt}", "restart": attempt, "start_ns": WALL_OFFSET_NS + began}
            anchors = (anchor(began), anchor(began + 10 * SECOND))
            rank, role = place // 2, ROLES[place % 2]
            files = ProcessFiles(run, 100 + place, rank=rank, role=role, anchors=anchors, **about)
            files.heartbeat_ns = began + 5 * SECOND
            files.seal(bank)
    return run


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_step_has_the_ranges_of_its_role_and_of_its_last_attempt(tmp_path: Path, attempts: int) -> None:
    run = open_run(run_of(tmp_path / "run", attempts))
    look = zoom.of_run(run, run.roles.runs, EVERYTHING, [], ranges=2500)

    assert look is not None and set(look["names"]) == {f"of {attempts - 1}", "work_actor", "work_rollout"}
    for of_role in look["roles"]:
        assert [step["lanes"] for step in of_role["steps"]] == [["rank 0", "rank 1"]] * len(of_role["steps"])
        assert all(largest(step["start"]) < 1 for step in of_role["steps"])


def largest(array: dict[str, Any]) -> float:
    """Of an array as the page has it."""
    return max(memoryview(base64.b64decode(array["b"])).cast(array["k"][0]))


def test_each_step_that_lasts_far_longer_than_others_can_be_looked_at(tmp_path: Path) -> None:
    run, bank, at = new_run(tmp_path / "run"), BankFiles(), 0
    for step in range(40):
        took = (100 if step in (7, 21, 33) else 9 + step % 3) * SECOND // 10
        bank.range("pass", at, at + took - 1000, stage="actor_update", own=True, step=step)
        at += took
    ProcessFiles(run, 100, rank=0, anchors=(anchor(0), anchor(at))).seal(bank)
    opened = open_run(run)
    look = zoom.of_run(opened, opened.roles.runs, EVERYTHING, [], ranges=2500)

    assert look is not None
    assert {7, 21, 33} <= {step["step"] for step in look["roles"][0]["steps"]}
    assert len(look["roles"][0]["steps"]) <= zoom.STEPS_AT_MOST + 12
