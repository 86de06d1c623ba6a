"""Micro-batches of uneven length inside of a stage that all leave together: in each collective others wait.

Nobody is slow. What a step loses in it was said to be nothing, "healthy", wherever the rank that came last changed.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, called, said_of, written

RANKS, STEPS, WARM_UP = 8, 80, 2


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_what_is_waited_in_the_collectives_of_a_stage_is_said_first(tmp_path: Path, micro_batches: int) -> None:
    lives, takes_ms, without_ms = _train(micro_batches, uneven_ms=6.0)
    run = written(tmp_path / "run", *lives)

    words, _, cost = said_of(run).first.partition(": without it a step takes ")
    parts = re.fullmatch(r"([\d.]+) ms, not ([\d.]+) ms: \d+ % less, in steps 2 to 79\.", cost)
    assert words == "Verdict: ranks are not done together: they wait for the last of them inside of actor_update"
    assert parts is not None, cost
    assert float(parts[2]) == pytest.approx(takes_ms, rel=0.01)
    # Of several in a row what is taken away of each is shared out by their times: a little less than all of it.
    assert 0.99 * without_ms < float(parts[1]) < 1.05 * without_ms
    waits = f"{100 * (takes_ms - without_ms) / takes_ms:.0f} % of a rank"
    assert re.search(rf"waiting +{waits}", called("report", str(run)).output)


def test_where_they_are_alike_nothing_is_lost(tmp_path: Path) -> None:
    lives, takes_ms, without_ms = _train(4, uneven_ms=0.0)

    assert said_of(written(tmp_path / "run", *lives)).kind == "healthy"
    assert takes_ms < 1.05 * without_ms


def _train(micro_batches: int, uneven_ms: float) -> tuple[list[Life], float, float]:
    """Also how long a step takes, and how long it would where each takes the mean of all: ms, without warm-up."""
    chance, banks, now = random.Random(0), [BankFiles() for _ in range(RANKS)], 0
    takes_ms, without_ms = 0.0, 0.0
    for step in range(STEPS):
        at = [now + chance.randrange(20_000) for _ in banks]
        begun = list(at)
        for _ in range(micro_batches):
            own_ms = [10 + chance.gauss(0, 0.1) + uneven_ms * chance.expovariate(1) for _ in banks]
            ready = [began + round(ms * MS) for began, ms in zip(at, own_ms)]
            over = max(ready) + MS // 2
            for rank, bank in enumerate(banks):
                end = over + chance.randrange(20_000)
                bank.range("all_reduce", ready[rank], end, stage="actor_update", step=step, depth=1)
                at[rank] = end
            if step >= WARM_UP:
                takes_ms, without_ms = takes_ms + max(own_ms) + 0.5, without_ms + sum(own_ms) / RANKS + 0.5
        for rank, bank in enumerate(banks):
            bank.range("actor_update", begun[rank], at[rank], stage="actor_update", own=True, step=step)
        now = max(at) + MS // 10
    counted, idle_ms = STEPS - WARM_UP, 0.1
    lives = [Life(rank, bank, 0, now, {}) for rank, bank in enumerate(banks)]
    return lives, takes_ms / counted + idle_ms, without_ms / counted + idle_ms
