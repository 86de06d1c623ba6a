"""All ranks take longer than earlier: from a step on, or for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, called, said_of, trained, written


def test_nobody_is_blamed_and_it_says_since_when(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(lambda step, rank: 100.0 if step < 30 else 180.0))

    assert said_of(run) == Said(
        "Verdict: all take longer in actor_generate than earlier: nothing tells whether they wait for one "
        "of them: 36 % of each step is lost by it, since step 30.",
        next="mstxkit compare RUN --before 2:29 --after 30:59", codes=(0, 0), kind="not_enough_evidence", blames=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own_ms", "takes_ms", "steps"),
    [
        (lambda step: 110.0 if 80 <= step < 120 else 60.0, 151, "in steps 80 to 119 (40 of 198)"),
        (lambda step: 9000.0 if step == 70 else 60.0, 9041, "in step 70 (1 of 198)"),
        (lambda step: 2000.0 if step < 5 else 60.0, 2041, "in steps 2 to 4 (3 of 198)"),
        (lambda step: 400.0 if step % 20 == 3 else 60.0, 118, "in 10 of steps 2 to 199"),
    ],
    ids=["a slow disk for a while", "a pause", "compilation", "now and then"],
)
@pytest.mark.parametrize("ranks", [1, 8])
def test_steps_in_which_all_take_far_longer_than_in_others_are_told(
    tmp_path: Path, ranks: int, own_ms: Callable[[int], float], takes_ms: float, steps: str
) -> None:
    """100 ms a step in the others: 60 alone and 40 together."""
    lives = trained(lambda step, _: own_ms(step), ranks=ranks, steps=range(200))

    words = said_of(written(tmp_path / "run", *lives)).first.split(": ")
    assert words[1] == "actor_generate takes longer than in other steps"
    without, took = words[2].removeprefix("without it a step takes ").split(", not ")
    assert as_ms(took) == pytest.approx(takes_ms, rel=0.03)
    # What one of eight takes more than the one in the middle stays: some percent of what it is.
    assert 98 <= as_ms(without) <= 103 + 0.04 * (takes_ms - 100)
    assert words[3].partition("less, ")[2] == f"{steps}."


def as_ms(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"ms": 1, "s": 1000}[unit]


def test_time_in_no_stage_is_told_so_too(tmp_path: Path) -> None:
    banks, at_ns = [BankFiles(), BankFiles()], 0
    for step in range(100):
        at_ns += (5000 if step == 50 else 1) * MS
        for stage, took_ms in (("actor_generate", 60), ("actor_update", 40)):
            for bank in banks:
                bank.range(stage, at_ns, at_ns + took_ms * MS, stage=stage, own=True, step=step)
            at_ns += took_ms * MS
    run = written(tmp_path / "run", *(Life(rank, bank, 0, at_ns, {}) for rank, bank in enumerate(banks)))

    assert said_of(run).first == (
        "Verdict: the time before actor_generate is longer than in other steps: without it a step takes 101 ms, not "
        "5.10 s: 98 % less, in step 50 (1 of 98)."
    )


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize(
    "tokens",
    [lambda step: 1100 if 80 <= step < 120 else 600, lambda step: 90_000 if step == 70 else 600],
    ids=["for a while", "once"],
)
def test_more_work_in_some_steps_is_no_such_time(tmp_path: Path, ranks: int, tokens: Callable[[int], int]) -> None:
    lives = trained(lambda step, _: tokens(step) / 10, ranks=ranks, steps=range(200), work=lambda step, _: tokens(step))

    assert said_of(written(tmp_path / "run", *lives)).first.startswith(
        ("Verdict: healthy", "Verdict: one process alone")
    )


def test_a_stage_that_is_in_some_steps_only_is_not_said_to_take_longer_there(tmp_path: Path) -> None:
    """It is meant: a third of the time, which stands below the first line."""
    banks, at_ns = [BankFiles(), BankFiles()], 0
    for step in range(200):
        stages = [("actor_generate", 60), ("actor_update", 40), *([("evaluate", 1000)] if step % 20 == 19 else [])]
        for stage, took_ms in stages:
            for bank in banks:
                bank.range(stage, at_ns, at_ns + took_ms * MS, stage=stage, own=True, step=step)
            at_ns += took_ms * MS
    run = written(tmp_path / "run", *(Life(rank, bank, 0, at_ns, {}) for rank, bank in enumerate(banks)))

    assert said_of(run).kind == "healthy"
    assert "34 % evaluate" in called("report", str(run)).output
