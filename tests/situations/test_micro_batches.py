"""Four micro-batches a step, each followed by a meeting of all: two stages take turns, and one rank is 30 % slower."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, said_of, written

RANKS, STEPS, MICRO_BATCHES = 4, 80, 4


@pytest.mark.parametrize("slow", [None, 2])
def test_who_is_slow_in_every_turn_is_named(tmp_path: Path, slow: int | None) -> None:
    run = written(tmp_path / "run", *_ranks(slow))

    said = said_of(run)
    if slow is None:
        assert said.first.startswith("Verdict: healthy")
        assert said.codes == (0, 0)
    else:
        who, _, saves = said.first.partition(" in forward_backward: ")
        assert who == "Verdict: rank 2 takes longer than the others"
        assert saves == "without it a step takes 103 ms, not 132 ms: 22 % less, in steps 2 to 79."
        assert said.codes == (0, 1)


def _ranks(slow: int | None) -> list[Life]:
    chance, banks, at = random.Random(0), [BankFiles() for _ in range(RANKS)], [0] * RANKS
    for step in range(STEPS):
        for _ in range(MICRO_BATCHES):
            for rank, bank in enumerate(banks):
                begin, usual_ms = at[rank], 25 * (1.3 if rank == slow else 1)
                at[rank] = begin + round(usual_ms * (1 + chance.gauss(0, 0.02)) * MS)
                bank.range("forward_backward", begin, at[rank], stage="forward_backward", own=True, step=step)
            over = max(at) + MS // 2
            for rank, bank in enumerate(banks):
                bank.range("grad_sync", at[rank], over, stage="grad_sync", own=True, step=step)
                at[rank] = over + chance.randrange(20_000)
    return [Life(rank, bank, 0, at[rank], {}) for rank, bank in enumerate(banks)]
