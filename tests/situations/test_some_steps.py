"""What one rank does in every tenth step alone, or takes longer in: the others wait for it inside of a later stage."""

from __future__ import annotations

import random
from pathlib import Path

from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, said_of, written

RANKS, STEPS = 4, 100


def trained(stage: str, ms: dict[int, float], is_last: bool) -> list[Life]:
    """Steps of 60 ms alone and 40 ms together; in every tenth one a stage of so many ms, of those ranks, in between or
    at its end: then the others wait in the next step.
    """
    chance, banks, now = random.Random(0), [BankFiles() for _ in range(RANKS)], [0] * RANKS

    def pass_stage(rank: int, name: str, end: int, step: int) -> None:
        banks[rank].range(name, now[rank], end, stage=name, own=True, step=step)
        now[rank] = end + chance.randrange(20_000)

    for step in range(STEPS):
        of_step = ms if step % 10 == 9 else {}
        for rank in range(RANKS):
            pass_stage(rank, "actor_generate", now[rank] + round(60 * (1 + chance.gauss(0, 0.01)) * MS), step)
        for rank in () if is_last else of_step:
            pass_stage(rank, stage, now[rank] + round(ms[rank] * MS), step)
        end = max(now) + 40 * MS
        for rank in range(RANKS):
            pass_stage(rank, "actor_update", end + chance.randrange(30_000), step)
        for rank in of_step if is_last else ():
            pass_stage(rank, stage, now[rank] + round(ms[rank] * MS), step)
    return [Life(rank, bank, 0, now[rank], {}) for rank, bank in enumerate(banks)]


def test_what_one_rank_alone_does_in_some_steps_only_is_not_called_healthy(tmp_path: Path) -> None:
    """101 ms, and 51 a step of one rank."""
    run = written(tmp_path / "run", *trained("evaluate", {0: 500.0}, is_last=False))

    assert said_of(run) == Said(
        "Verdict: rank 0 alone is in evaluate, and all wait: without it a step takes 101 ms, not 152 ms: 34 % less, "
        "in 10 of steps 2 to 99.",
        "mstxkit report RUN --stages evaluate --ranges 20", (0, 1), "alone", True,
    )  # fmt: skip


def test_who_takes_longer_in_what_all_do_in_some_steps_only_is_named(tmp_path: Path) -> None:
    """101 ms, and 91 a step of one, 31 of three: 60 more."""
    save_ms = {0: 300.0, 1: 300.0, 2: 300.0, 3: 900.0}
    run = written(tmp_path / "run", *trained("save_checkpoint", save_ms, is_last=True))

    assert said_of(run) == Said(
        "Verdict: rank 3 takes longer than the others in save_checkpoint: without it a step takes 131 ms, not 192 ms: "
        "32 % less, in 10 of steps 2 to 99.",
        "mstxkit report RUN --stages save_checkpoint --ranges 20", (0, 1), "straggler", True,
    )  # fmt: skip
