"""Jobs in which nobody is slow, and those in which nobody can see whether somebody is."""

from __future__ import annotations

import random
from pathlib import Path

from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, called, said_of, trained, written


def healthy(words: str) -> Said:
    return Said(f"Verdict: healthy{words}.", next="", codes=(0, 0), kind="healthy", blames=False)


def test_it_is_healthy_and_says_above_what_nothing_is(tmp_path: Path) -> None:
    """All ranks take now longer and now shorter, by 5 %, and none more than the others."""
    chance = random.Random(3)
    run = written(tmp_path / "run", *trained(lambda step, rank: 100 * (1 + chance.gauss(0, 0.05)), ranks=4))

    assert said_of(run) == healthy(
        ": nothing above 4 % of a step; no rank was seen to make others wait in the 50 steps that were judged"
    )


def test_what_nobody_can_see_is_not_called_healthy(tmp_path: Path) -> None:
    """Four ranks leave each stage at once, as who waits for the others inside of it: one may be slow in it unseen."""
    chance, banks, now = random.Random(0), [BankFiles() for _ in range(4)], 0
    for step in range(60):
        for stage, ms in (("load_batch", 1), ("reward", 30), ("actor_update", 40)):
            end = now + round(ms * (1 + chance.gauss(0, 0.02)) * MS)
            for bank in banks:
                began, over = now + chance.randrange(20_000), end + chance.randrange(20_000)
                bank.range(stage, began, over, stage=stage, own=True, step=step)
            now = end + MS // 20
    run = written(tmp_path / "run", *(Life(rank, bank, 0, now, {}) for rank, bank in enumerate(banks)))

    assert said_of(run) == healthy(
        " as far as is seen: nothing above 1 % of a step; no rank was seen to make others wait in the 50 steps that "
        "were judged"
    )
    hides = "capture(rings=True) alone tells whether a rank is slow inside of actor_update, reward, which all leave"
    assert hides in called("report", str(run)).output


def test_how_long_a_role_waits_for_another_one_is_said_of_a_healthy_job(tmp_path: Path) -> None:
    """Two trainers wait 70 ms of each step for what four rollouts generate in 100 ms."""
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

    assert said_of(run) == healthy(
        " as far as is seen: nothing above 1 % of a step; no rank was seen to make others wait in the 70 steps that "
        "were judged; trainer waits for rollout in 70 % of its steps’ time"
    )
