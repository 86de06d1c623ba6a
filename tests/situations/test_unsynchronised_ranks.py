"""Ranks never wait for each other, and one is slower."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_who_is_slower_is_named_though_nobody_waits(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(lambda step, rank: 150.0 if rank == 1 else 100.0, waits=False))

    assert said_of(run) == Said(
        "Verdict: rank 1 takes longer than the others in actor_generate: without it a step takes 141 ms, "
        "not 166 ms: 15 % less, in steps 2 to 59.",
        next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 1), kind="compute", blames=True,
    )  # fmt: skip
