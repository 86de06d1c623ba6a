"""In each step another rank has a response that is three times as long as the others."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_a_long_tail_is_told_as_that_and_blames_no_rank(tmp_path: Path) -> None:
    run = written(
        tmp_path / "run",
        *trained(
            lambda step, rank: 300.0 if rank == (5 * step) % 8 else 100.0, ranks=8,
            work=lambda step, rank: 3000 if rank == (5 * step) % 8 else 1000,
        ),
    )  # fmt: skip

    assert said_of(run) == Said(
        "Verdict: there is a long tail in actor_generate: all wait for the last of it: without it a step "
        "takes 142 ms, not 341 ms: 58 % less, in steps 2 to 59.",
        next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 1), kind="tail", blames=True,
    )  # fmt: skip
