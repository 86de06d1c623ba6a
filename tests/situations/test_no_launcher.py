"""A program forks its four processes itself: none has a rank."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_who_is_slow_is_called_by_what_it_is_and_its_pid(tmp_path: Path) -> None:
    lives = trained(lambda step, rank: 150.0 if rank == 2 else 100.0, ranks=4, has_ranks=False)
    lives = [life.ending(part=f"process {at}", under="process") for at, life in enumerate(lives, 1)]
    run = written(tmp_path / "run", *lives)

    assert said_of(run) == Said(
        "Verdict: process 3 (pid 4713) takes longer than the others in actor_generate: without it a step "
        "takes 142 ms, not 191 ms: 26 % less, in steps 2 to 59.",
        next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 1), kind="compute", blames=True,
    )  # fmt: skip
