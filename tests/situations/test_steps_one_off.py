"""Ranks that count their steps one off: what they do in a step is compared with what others do one step later.

In a job of equals the one that counted otherwise was said to take longer: 29 % of each step.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, called, said_of, written

OWN, TOGETHER, STEPS = "actor_generate", "actor_update", 60


@pytest.mark.parametrize("first", [{2: 1}, {0: 1, 1: 1, 3: 1}, {2: 1, 3: 1}], ids=["ahead", "behind", "half"])
def test_who_counts_one_off_is_not_called_slow(tmp_path: Path, first: dict[int, int]) -> None:
    run = written(tmp_path / "run", *_train(4, first))

    assert said_of(run).kind == "healthy"
    assert "counted steps one off, compared with nobody" in called("report", str(run)).output


def test_of_two_ranks_neither_is_called_slow(tmp_path: Path) -> None:
    assert not said_of(written(tmp_path / "run", *_train(2, {1: 1}))).blames


def test_who_is_slow_beside_it_is_named(tmp_path: Path) -> None:
    words = said_of(written(tmp_path / "run", *_train(4, {2: 1}, slow=1))).first

    assert words.startswith("Verdict: rank 1 takes longer than the others in actor_generate: ")


def test_who_goes_its_own_way_is_compared_all_the_same(tmp_path: Path) -> None:
    """Nobody waits: a slow rank is done with a step when the others are done with one after it, in few steps only."""
    words = said_of(written(tmp_path / "run", *_train(4, {}, slow=1, waits=False))).first

    assert words.startswith("Verdict: rank 1 takes longer than the others in actor_generate: ")


def _train(ranks: int, first: dict[int, int], slow: int | None = None, waits: bool = True) -> list[Life]:
    """`first`: the number that a rank gives to its first step. In the second stage all wait for the last of them."""
    chance, banks, now = random.Random(0), [BankFiles() for _ in range(ranks)], [0] * ranks
    for step in range(STEPS):
        ready = []
        for rank, bank in enumerate(banks):
            number, own_ms = step + first.get(rank, 0), 130 if rank == slow else 100
            ready.append(now[rank] + round(own_ms * (1 + chance.gauss(0, 0.01)) * MS))
            bank.range(OWN, now[rank], ready[rank], stage=OWN, own=True, step=number)
        for rank, bank in enumerate(banks):
            end = (max(ready) if waits else ready[rank]) + round((40 + chance.gauss(0, 0.4)) * MS)
            bank.range(TOGETHER, ready[rank], end, stage=TOGETHER, own=True, step=step + first.get(rank, 0))
            now[rank] = end + MS
    return [Life(rank, bank, 0, now[rank], {}) for rank, bank in enumerate(banks)]
