"""A job of three steps, in which a rank is slow."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_it_says_that_these_are_too_few_and_where_the_time_goes(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(lambda step, rank: 150.0 if rank == 1 else 100.0, steps=range(3)))

    assert said_of(run) == Said(
        "Verdict: too few steps to judge who makes others wait: 0 count, 20 are needed.",
        next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 0), kind="too_few_steps", blames=False,
    )  # fmt: skip
