"""What one rank does in every tenth step alone, or takes longer in: the others wait for it inside of a later stage."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, called, said_of, written

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


@pytest.mark.parametrize(
    ("stage", "ms", "is_last", "cost", "why"),
    [
        (  # 101 ms, and 51 a step of one rank: spread over four they were 13
            "evaluate", {0: 500.0}, False, "without it a step takes 113 ms, not 152 ms: 26 % less",
            "all together 153 ms a step for rank 0, late in evaluate in 10 of 98 steps",
        ),
        (  # 101 ms, and 92 a step of one, 31 of three: in the mean 46
            "save_checkpoint", {0: 300.0, 1: 300.0, 2: 300.0, 3: 900.0}, True,
            "without it a step takes 146 ms, not 192 ms: 24 % less",
            "all together 165 ms a step for rank 3, late in save_checkpoint in 9 of 98 steps",
        ),
    ],
    ids=["alone", "longer"],
)  # fmt: skip
def test_what_is_waited_for_in_some_steps_only_is_not_called_healthy(
    tmp_path: Path, stage: str, ms: dict[int, float], is_last: bool, cost: str, why: str
) -> None:
    run = written(tmp_path / "run", *trained(stage, ms, is_last))

    together = "ranks are not done together: they wait for the last of them in actor_update"
    assert said_of(run) == Said(
        f"Verdict: {together}: {cost}, in steps 2 to 99.", f"mstxkit report RUN --stages {stage} --ranges 20", (0, 1),
        "bubble", True,
    )  # fmt: skip
    assert why in called("report", str(run)).output
