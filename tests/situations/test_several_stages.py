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
