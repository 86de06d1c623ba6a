"""A run folder into which nothing was recorded."""

from __future__ import annotations

from pathlib import Path

from builders.run_files import new_run
from builders.situations import Said, said_of


def test_it_says_so_and_next_is_the_doctor(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")

    assert said_of(run) == Said(
        "Verdict: nothing was recorded: no range has ended in any process.",
        next="mstxkit doctor", codes=(0, 1), kind="nothing_recorded", blames=True,
    )  # fmt: skip
