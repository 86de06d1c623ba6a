"""A rank is slow in a job that runs, and takes requests."""

from __future__ import annotations

from pathlib import Path

from builders import escalated_run
from builders.situations import Said, running, said_of, trained


def test_next_asks_for_a_profile_of_it_and_of_a_healthy_one(tmp_path: Path) -> None:
    run = running(tmp_path / "run", *trained(lambda step, rank: 150.0 if rank == 1 else 100.0))
    for rank in range(2):
        escalated_run.say(run, rank, world_size=2)

    assert said_of(run) == Said(
        "Verdict: rank 1 takes longer than the others in actor_generate: without it a step takes 142 ms, "
        "not 191 ms: 26 % less, in steps 2 to 58.",
        next="mstxkit escalate RUN --stage actor_generate --ranks 1,0", codes=(0, 1), kind="compute", blames=True,
    )  # fmt: skip
