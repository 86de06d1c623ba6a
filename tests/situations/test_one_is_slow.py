"""One rank generates in 150 ms, the others in 100: it is named with what it costs, and what is next can be done."""

from __future__ import annotations

import os
from pathlib import Path

from builders import escalated_run
from builders.situations import Said, running, said_of, trained, written

RANGES = "mstxkit report RUN --stages actor_generate --ranges 20"


def slow(step: int, rank: int) -> float:
    return 150.0 if rank == 1 else 100.0


def named(who: str, cost: str, next_: str = RANGES) -> Said:
    """What is said where that one is slow."""
    words = f"Verdict: {who} takes longer than the others in actor_generate: without it a step takes {cost}."
    return Said(words, next_, codes=(0, 1), kind="compute", blames=True)


def test_who_is_slow_is_named_with_what_it_costs_in_which_steps(tmp_path: Path) -> None:
    """It is from step 30 on."""
    run = written(tmp_path / "run", *trained(lambda step, rank: slow(step, rank) if step >= 30 else 100.0))

    compare = "mstxkit compare RUN --before 2:29 --after 30:59"
    assert said_of(run) == named("rank 1", "141 ms, not 191 ms: 26 % less, in steps 30 to 59 (30 of 58)", compare)


def test_in_a_job_that_takes_requests_next_asks_for_a_profile_of_it_and_of_a_healthy_one(tmp_path: Path) -> None:
    run = running(tmp_path / "run", *trained(slow))
    for rank in range(2):
        escalated_run.say(run, rank, world_size=2)

    escalate = "mstxkit escalate RUN --stage actor_generate --ranks 1,0"
    assert said_of(run) == named("rank 1", "142 ms, not 191 ms: 26 % less, in steps 2 to 58", escalate)


def test_in_a_job_that_ended_months_ago_next_needs_nobody_that_still_runs(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(slow))
    os.utime(run / "run.json", (0, 0))

    assert said_of(run) == named("rank 1", "142 ms, not 191 ms: 26 % less, in steps 2 to 59")


def test_where_nobody_waits_who_is_slower_is_named_though(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(slow, waits=False))

    assert said_of(run) == named("rank 1", "141 ms, not 166 ms: 15 % less, in steps 2 to 59")


def test_one_of_two_roles_that_have_a_rank_1_each_is_named_with_its_role(tmp_path: Path) -> None:
    actors = [life.ending(role="actor") for life in trained()]
    rollouts = trained(lambda step, rank: 160.0 if rank == 1 else 100.0)
    run = written(tmp_path / "run", *actors, *(life.ending(role="rollout") for life in rollouts))

    assert said_of(run) == named("rank 1 rollout", "142 ms, not 201 ms: 30 % less, in steps 2 to 59")


def test_one_without_a_rank_is_called_by_what_it_is_and_its_pid(tmp_path: Path) -> None:
    """A program forks its four processes itself."""
    lives = trained(lambda step, rank: 150.0 if rank == 2 else 100.0, ranks=4, has_ranks=False)
    lives = [life.ending(part=f"process {at}", under="process") for at, life in enumerate(lives, 1)]
    run = written(tmp_path / "run", *lives)

    assert said_of(run) == named("process 3 (pid 4713)", "142 ms, not 191 ms: 26 % less, in steps 2 to 59")
