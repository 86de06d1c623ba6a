"""Runs in which there is too little to judge by: it is said what there is not, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.run_files import new_run
from builders.situations import Said, said_of, trained, written

ALL = "mstxkit report RUN --all"
RANGES = "mstxkit report RUN --stages actor_generate --ranges 20"
SLOW: dict[str, Any] = {"own_ms": lambda step, rank: 150.0 if rank == 1 else 100.0}
TOO_FEW = "too few steps to judge who makes others wait: 0 count, 20 are needed"


@pytest.mark.parametrize(
    ("training", "words", "next_", "kind"),
    [
        ({"has_stages": False}, "not judged: no stage is marked", ALL, "not_judged"),
        ({"has_steps": False}, "not judged: no step is counted", ALL, "not_judged"),
        ({**SLOW, "steps": range(3)}, TOO_FEW, RANGES, "too_few_steps"),
    ],
    ids=["no stages", "no steps", "three steps only, in which a rank is slow"],
)
def test_it_says_what_to_mark_or_to_count_or_where_the_time_goes(
    tmp_path: Path, training: dict[str, Any], words: str, next_: str, kind: str
) -> None:
    run = written(tmp_path / "run", *trained(**training))

    assert said_of(run) == Said(f"Verdict: {words}.", next_, codes=(0, 0), kind=kind, blames=False)


def test_where_nothing_was_recorded_it_says_so_and_next_is_the_doctor(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")

    assert said_of(run) == Said(
        "Verdict: nothing was recorded: no range has ended in any process.",
        next="mstxkit doctor", codes=(0, 1), kind="nothing_recorded", blames=True,
    )  # fmt: skip
