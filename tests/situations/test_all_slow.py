"""All ranks take longer than earlier: from a step on, or for a while."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders.situations import Said, said_of, trained, written


def test_nobody_is_blamed_and_it_says_since_when(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(lambda step, rank: 100.0 if step < 30 else 180.0))

    assert said_of(run) == Said(
        "Verdict: all take longer in actor_generate than earlier: nothing tells whether they wait for one "
        "of them: 36 % of each step is lost by it, since step 30.",
        next="mstxkit compare RUN --before 2:29 --after 30:59", codes=(0, 0), kind="not_enough_evidence", blames=False,
    )  # fmt: skip


@pytest.mark.parametrize("waits", [True, False], ids=["they meet", "nobody waits"])
@pytest.mark.parametrize("ranks", [1, 8])
def test_what_has_taken_longer_for_a_while_is_told_when_it_is_over(tmp_path: Path, ranks: int, waits: bool) -> None:
    """As where a disk, or a network, was slow for some minutes: 100 ms a step, 150 in 40 of 200 steps."""
    lives = trained(lambda step, _: 110.0 if 80 <= step < 120 else 60.0, ranks=ranks, steps=range(200), waits=waits)
    run = written(tmp_path / "run", *lives)

    words = said_of(run).first.split(": ")
    assert words[1] == "actor_generate takes longer than in other steps"
    without_ms, took_ms = map(int, re.findall(r"(\d+) ms", words[2]))
    assert (without_ms, took_ms) == (pytest.approx(101, abs=2), pytest.approx(151, abs=2))
    assert words[3] == "33 % less, in steps 80 to 119 (40 of 198)."


@pytest.mark.parametrize("ranks", [1, 8])
def test_more_work_for_a_while_is_no_such_time(tmp_path: Path, ranks: int) -> None:
    def tokens(step: int, _: int) -> int:
        return 1100 if 80 <= step < 120 else 600

    lives = trained(lambda step, rank: tokens(step, rank) / 10, ranks=ranks, steps=range(200), work=tokens)

    assert said_of(written(tmp_path / "run", *lives)).first.startswith(
        ("Verdict: healthy", "Verdict: one process alone")
    )
