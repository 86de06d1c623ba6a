"""Rank 0 alone logs at the end of each step of 100 ms; the others wait for it in the next step's update."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, said_of, written

RANKS, STEPS = 4, 80


@pytest.mark.parametrize(("log_ms", "less"), [(6, "6 %"), (20, "17 %"), (50, "33 %")])
def test_what_one_rank_does_alone_is_told_with_what_it_costs(tmp_path: Path, log_ms: int, less: str) -> None:
    run = written(tmp_path / "run", *_logging(log_ms))

    assert said_of(run) == Said(
        "Verdict: rank 0 alone is in log_metrics, and all wait: "
        f"without it a step takes 100 ms, not {100 + log_ms} ms: {less} less, in steps 2 to 79.",
        next="mstxkit report RUN --stages log_metrics --ranges 20", codes=(0, 1), kind="serial", blames=True,
    )  # fmt: skip


def _logging(log_ms: int) -> list[Life]:
    chance, banks, at = random.Random(0), [BankFiles() for _ in range(RANKS)], [0] * RANKS
    for step in range(STEPS):
        for rank, bank in enumerate(banks):
            begin, at[rank] = at[rank], at[rank] + round(60 * (1 + chance.gauss(0, 0.01)) * MS)
            bank.range("actor_generate", begin, at[rank], stage="actor_generate", own=True, step=step)
        over = max(at) + 40 * MS
        for rank, bank in enumerate(banks):
            bank.range("actor_update", at[rank], over, stage="actor_update", own=True, step=step)
            at[rank] = over + chance.randrange(30_000)
        begin, at[0] = at[0], at[0] + round(log_ms * (1 + chance.gauss(0, 0.03)) * MS)
        banks[0].range("log_metrics", begin, at[0], stage="log_metrics", own=True, step=step)
    return [Life(rank, bank, 0, at[rank], {}) for rank, bank in enumerate(banks)]
