"""Attempts of a job across hosts: (rank, role, part, attempt) is one process."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mstxkit.reading import attempts

SECOND = 1_000_000_000


def life(rank: int | None, first: float, last: float, *, job: str = "a", **identity: Any) -> tuple[Any, int, int]:
    who = {"rank": rank, "job": job, "part": "trainer", "role": None, "under": "", **identity}
    return who, int(first * SECOND), int(last * SECOND)


def test_torchrun_counts_only_on_the_host_that_failed_and_the_others_are_of_its_attempt() -> None:
    """The agent of host b began its ranks anew too, and told them that nothing had been restarted."""
    before = [life(rank, 1, 30, job="ab"[rank > 1], restart=0) for rank in range(4)]
    after = [life(rank, 33, 90, job="ab"[rank > 1], restart=int(rank < 2)) for rank in range(4)]

    assert attempts.number_attempts([*before, *after]) == [0] * 4 + [1] * 4


def test_a_host_that_takes_anothers_place_is_of_the_attempt_in_which_it_came() -> None:
    before = [life(rank, 1, 30, job="ab"[rank > 1], restart=0) for rank in range(4)]
    after = [life(rank, 30.5, 90, job="ac"[rank > 1], restart=int(rank < 2)) for rank in range(4)]

    assert attempts.number_attempts([*before, *after]) == [0] * 4 + [1] * 4
    assert attempts.number_attempts([*before, *reversed(after)]) == [0] * 4 + [1] * 4


def test_hosts_of_one_start_whose_clocks_disagree_are_one_attempt_where_their_launcher_says_so() -> None:
    hosts = [life(0, 0, 50, job="a", launch="5eed"), life(1, 100, 150, job="b", launch="5eed")]

    assert attempts.number_attempts(hosts) == [0, 0]
    assert attempts.number_attempts([life(0, 0, 50, job="a"), life(1, 100, 150, job="b")]) == [0, 1]


def test_an_actor_that_is_started_again_is_told_from_its_first_life() -> None:
    actor = {"under": "ray", "part": "WorkerDict_0:1"}
    ranks = [life(0, 0, 90, under="ray", part="WorkerDict_0:0"), life(1, 0, 20, **actor), life(1, 25, 90, **actor)]

    assert attempts.number_attempts(ranks) == [0, 0, 1]


def test_workers_of_a_pool_that_follow_each_other_are_of_one_attempt() -> None:
    pool = [life(0, at, at + 5, under="pool", part="pool 1") for at in range(0, 90, 10)]

    assert attempts.number_attempts([life(0, 0, 100), *pool]) == [0] * 10


@given(
    lives=st.lists(
        st.tuples(
            st.sampled_from([None, 0, 1]), st.integers(0, 300), st.integers(0, 60), st.sampled_from("abc"),
            st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, "x", "y"]),
            st.sampled_from(["trainer", "replica 1"]),
        ),
        max_size=30,
    )
)  # fmt: skip
def test_no_rank_has_two_lives_one_after_the_other_in_one_attempt(lives: list[Any]) -> None:
    processes = [
        life(rank, first, first + took, job=job, restart=restart, launch=launch, part=part)
        for rank, first, took, job, restart, launch, part in lives
    ]
    numbers = attempts.number_attempts(processes)

    assert sorted(set(numbers)) == list(range(len(set(numbers))))
    for (who, first, _), number in zip(processes, numbers):
        for (other, _, last), before in zip(processes, numbers):
            if (
                who["rank"] is not None
                and (who["rank"], who["part"]) == (other["rank"], other["part"])
                and last < first
            ):
                assert before < number
