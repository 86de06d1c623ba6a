"""Slow in several stages of a step, between which nobody waits: one rank in all of them, or each in another one."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Callable

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, said_of, written

RANKS, STEPS = 8, 100
OWN_MS = {"reference": 40.0, "reward": 40.0, "actor_generate": 60.0}


def trained(factor: Callable[[str, int], float]) -> list[Life]:
    """140 ms alone in three stages, then 40 ms together."""
    chance, banks, now = random.Random(0), [BankFiles() for _ in range(RANKS)], [0] * RANKS
    for step in range(STEPS):
        for rank, (stage, ms) in ((rank, each) for rank in range(RANKS) for each in OWN_MS.items()):
            end = now[rank] + round(ms * factor(stage, rank) * (1 + chance.gauss(0, 0.01)) * MS)
            banks[rank].range(stage, now[rank], end, stage=stage, own=True, step=step)
            now[rank] = end
        over = max(now) + 40 * MS
        for rank in range(RANKS):
            banks[rank].range("actor_update", now[rank], over, stage="actor_update", own=True, step=step)
            now[rank] = over + chance.randrange(20_000)
    return [Life(rank, bank, 0, now[rank], {}) for rank, bank in enumerate(banks)]


def test_one_rank_that_is_a_little_slow_in_each_stage_is_named_with_what_all_of_that_costs(tmp_path: Path) -> None:
    """15 % of 140 ms: 21 of 201 ms; in none of them as much as 5 %."""
    said = said_of(written(tmp_path / "run", *trained(lambda stage, rank: 1.15 if rank == 6 else 1.0)))

    assert said.first.startswith("Verdict: rank 6 takes longer than the others in ")
    named = said.first.partition(" in ")[2].partition(":")[0]
    assert set(named.split(", ")) == set(OWN_MS)
    assert " without it a step takes 181 ms, not 201 ms: 10 % less" in said.first


def test_of_two_that_hide_each_other_it_is_said_what_both_cost(tmp_path: Path) -> None:
    """Each takes 24 ms more: without one of them the other takes as long."""
    slow = {("reference", 1): 1.6, ("actor_generate", 5): 1.4}
    said = said_of(written(tmp_path / "run", *trained(lambda stage, rank: slow.get((stage, rank), 1.0))))

    assert said.first.startswith("Verdict: rank ") and " takes longer than the others in " in said.first
    together = re.search(r"; (\d+) % without all that take longer\.$", said.first)
    assert together is not None and int(together[1]) == pytest.approx(100 * 24 / 205, abs=1)


def test_of_two_of_which_neither_hides_the_other_the_costlier_comes_first(tmp_path: Path) -> None:
    """One takes 30 ms more before all meet, the other 24 ms more behind that: each costs what it takes more."""
    said = said_of(written(tmp_path / "run", *_trained_with_a_meeting_between({0: (2, 30), 1: (5, 24)})))

    words, _, cost = said.first.partition(": without it a step takes ")
    assert words == "Verdict: rank 2 takes longer than the others in actor_generate"
    figures = re.fullmatch(r"(\d+) ms, not (\d+) ms: \d+ % less, in steps 2 to 99\.", cost)
    assert figures is not None
    assert (int(figures[1]), int(figures[2])) == (pytest.approx(229, abs=2), pytest.approx(259, abs=2))


def _trained_with_a_meeting_between(more_ms: dict[int, tuple[int, int]]) -> list[Life]:
    """`more_ms`: in which of the two halves of a step who takes how much more."""
    chance, banks, now = random.Random(0), [BankFiles() for _ in range(RANKS)], [0] * RANKS
    halves = (("actor_generate", 100, "reward", 10), ("reference", 60, "actor_update", 35))
    for step in range(STEPS):
        for half, (own, own_ms, meeting, meets_ms) in enumerate(halves):
            slow, more = more_ms[half]
            ready = [
                at + round((own_ms + more * (rank == slow) + chance.gauss(0, 0.5)) * MS) for rank, at in enumerate(now)
            ]
            over = max(ready) + meets_ms * MS
            for rank, bank in enumerate(banks):
                bank.range(own, now[rank], ready[rank], stage=own, own=True, step=step)
                now[rank] = over + chance.randrange(20_000)
                bank.range(meeting, ready[rank], now[rank], stage=meeting, own=True, step=step)
    return [Life(rank, bank, 0, now[rank], {}) for rank, bank in enumerate(banks)]
