"""Two trainers wait 70 ms of each step for what four rollouts generate in 100 ms: nobody is slow among his own."""

from __future__ import annotations

import random
from pathlib import Path

from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, said_of, written


def test_how_long_a_role_waits_for_another_one_is_said_of_a_healthy_job(tmp_path: Path) -> None:
    chance, banks, made, free = random.Random(0), [BankFiles() for _ in range(6)], [0] * 4, [0] * 2
    for step in range(80):
        for rollout, begin in enumerate(made):
            made[rollout] = begin + round(100 * (1 + chance.gauss(0, 0.01)) * MS)
            banks[2 + rollout].range("generate", begin, made[rollout], stage="generate", own=True, step=step)
        came = max(made)
        for trainer, begin in enumerate(free):
            banks[trainer].range("wait_for_samples", begin, came, stage="wait_for_samples", own=True, step=step)
            free[trainer] = came + 30 * MS + chance.randrange(30_000)
            banks[trainer].range("actor_update", came, free[trainer], stage="actor_update", own=True, step=step)
    roles = [{"role": "trainer"}] * 2 + [{"role": "rollout"}] * 4
    ranks = [0, 1, 0, 1, 2, 3]
    lives = [Life(rank, bank, 0, max(made), role) for rank, bank, role in zip(ranks, banks, roles)]
    run = written(tmp_path / "run", *lives)

    assert said_of(run) == Said(
        "Verdict: healthy as far as is seen: nothing above 1 % of a step; no rank was seen to make others wait in the "
        "70 steps that were judged; trainer waits for rollout in 70 % of its steps’ time.",
        next="", codes=(0, 0), kind="healthy", blames=False,
    )  # fmt: skip
