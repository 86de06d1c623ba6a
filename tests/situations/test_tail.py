"""In each step another rank takes longer than the others: all wait for it, and none of them is slow."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.situations import Said, said_of, trained, written


def tail(cost: str) -> Said:
    words = "Verdict: there is a long tail in actor_generate: all wait for the last of it: without it a step takes "
    ranges = "mstxkit report RUN --stages actor_generate --ranges 20"
    return Said(words + cost, next=ranges, codes=(0, 1), kind="tail", blames=True)


def test_a_long_tail_is_told_as_that_and_blames_no_rank(tmp_path: Path) -> None:
    """The longest response is three times as long as the others."""
    run = written(
        tmp_path / "run",
        *trained(
            lambda step, rank: 300.0 if rank == (5 * step) % 8 else 100.0, ranks=8,
            work=lambda step, rank: 3000 if rank == (5 * step) % 8 else 1000,
        ),
    )  # fmt: skip

    assert said_of(run) == tail("142 ms, not 341 ms: 58 % less, in steps 2 to 59.")


@pytest.mark.parametrize("seed", range(6))
def test_who_is_slow_in_turn_is_not_blamed_for_it(tmp_path: Path, seed: int) -> None:
    """By chance one of four takes 36 ms longer."""
    chance = random.Random(seed)
    slow = [chance.randrange(4) for _ in range(100)]
    lives = trained(lambda step, rank: 60.0 + 36.0 * (slow[step] == rank), ranks=4, steps=range(100))
    run = written(tmp_path / "run", *lives)

    said, told = said_of(run), tail("")
    assert said.first.startswith(told.first)
    assert said.first.endswith(" ms, not 137 ms: 26 % less, in steps 2 to 99.")
    assert said[1:] == told[1:]
