"""One process alone: it has its own past to be compared with, and nobody else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, said_of, trained, written

NOTHING_SEEN = "Verdict: one process alone is compared with its own past only, and no stage was seen to become slower."


def test_nothing_is_seen_of_one_that_goes_on_as_it_began(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(ranks=1))

    assert said_of(run) == Said(
        NOTHING_SEEN, next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 0), kind="not_judged",
        blames=False,
    )  # fmt: skip


@pytest.mark.parametrize("has_ranks", [True, False])
def test_it_is_said_in_what_it_has_become_slower_and_since_when(tmp_path: Path, has_ranks: bool) -> None:
    run = written(
        tmp_path / "run", *trained(lambda step, _: 100.0 if step < 30 else 180.0, ranks=1, has_ranks=has_ranks)
    )

    assert said_of(run) == Said(
        "Verdict: the process takes longer in actor_generate than earlier: without it a step takes 141 ms, not 221 ms: "
        "36 % less, in steps 30 to 59 (30 of 58).",
        next="mstxkit compare RUN --before 2:29 --after 30:59", codes=(0, 1), kind="all_slow", blames=True,
    )  # fmt: skip


@pytest.mark.parametrize(("more_ms", "takes", "ratio"), [(50, 150, 33), (300, 400, 75)])
def test_time_in_no_stage_that_becomes_longer_is_told_too(tmp_path: Path, more_ms: int, takes: int, ratio: int) -> None:
    """As where a callback has begun to write to a slow disk, between two steps."""
    bank, at_ns = BankFiles(), 0
    for step in range(100):
        for stage, took_ms in (("actor_generate", 60), ("actor_update", 40)):
            bank.range(stage, at_ns, at_ns + took_ms * MS, stage=stage, own=True, step=step)
            at_ns += took_ms * MS
        at_ns += more_ms * MS if step >= 50 else 0
    run = written(tmp_path / "run", Life(0, bank, 0, at_ns, {}))

    assert said_of(run)[:2] == (
        "Verdict: the process takes longer before actor_generate than earlier: without it a step takes 100 ms, not "
        f"{takes} ms: {ratio} % less, in steps 51 to 99 (49 of 98).",
        "mstxkit compare RUN --before 2:50 --after 51:99",
    )


@pytest.mark.parametrize("spread", [0.05, 0.3, 0.6])
def test_steps_that_take_now_less_now_more_are_no_change(tmp_path: Path, spread: float) -> None:
    chance = random.Random(spread)
    own_ms = [100 * chance.lognormvariate(0, spread) for _ in range(400)]
    run = written(tmp_path / "run", *trained(lambda step, _: own_ms[step], ranks=1, steps=range(400)))

    assert said_of(run).first == NOTHING_SEEN


def test_more_work_is_no_slower_process(tmp_path: Path) -> None:
    tokens = {step: 1000 if step < 100 else 1800 for step in range(200)}
    run = written(
        tmp_path / "run",
        *trained(lambda step, _: tokens[step] / 10, ranks=1, steps=range(200), work=lambda step, _: tokens[step]),
    )

    assert said_of(run).first == NOTHING_SEEN
