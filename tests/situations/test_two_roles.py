"""Rollouts and trainers are two roles, each with a rank 1: that of the rollouts is slow."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_the_slow_rank_is_named_with_its_role(tmp_path: Path) -> None:
    actors = [life.ending(role="actor") for life in trained()]
    rollouts = trained(lambda step, rank: 160.0 if rank == 1 else 100.0)
    run = written(tmp_path / "run", *actors, *(life.ending(role="rollout") for life in rollouts))

    assert said_of(run) == Said(
        "Verdict: rank 1 rollout takes longer than the others in actor_generate: without it a step takes "
        "142 ms, not 201 ms: 30 % less, in steps 2 to 59.",
        next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 1), kind="compute", blames=True,
    )  # fmt: skip
