"""How the processes of a run ended: who left in order, and who was killed, by their company."""

from __future__ import annotations

from typing import Any

import pytest
from builders.told_lives import AGENT, SECOND, SHELL, Told

from mstxkit.reading import attempts, endings
from mstxkit.reading.endings import Fate
from mstxkit.reading.processes import ENDED, KILLED, LEFT, LOST, RUNNING


def test_who_speaks_for_itself_is_believed() -> None:
    told = Told().add(1, ENDED, 5).add(2, LEFT, 5).add(3, RUNNING, 5).add(4, LOST, 5)

    assert told.ends() == [
        (1, ENDED, None), (2, LEFT, endings.NEXT_PROGRAM), (3, RUNNING, None), (4, LOST, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "inside", "state"), [(0, None, LEFT), (0, 4, KILLED), (3, None, KILLED), (3, 4, KILLED)]
)
def test_os_exit_is_in_order_with_0_outside_of_every_range(status: int, inside: float | None, state: str) -> None:
    told = Told().add(1, KILLED, 5, status=status, inside=inside).add(2, ENDED, 60)

    assert told.ends()[0] == (1, state, f"by os._exit({status})")


def test_alone_it_was_killed_inside_or_outside() -> None:
    assert Told().add(1, KILLED, 5, inside=4).ends() == [(1, KILLED, None)]
    assert Told().add(1, KILLED, 5).states() == {1: KILLED}


def test_out_of_order_it_was_killed_outside_of_any_range_too() -> None:
    told = Told().add(1, KILLED, 20).add(2, ENDED, 60).add(3, RUNNING, 60)

    assert told.ends()[0] == (1, KILLED, endings.WHILE_OTHERS_WENT_ON)


def test_a_job_that_was_signalled_at_once_left_with_what_was_open() -> None:
    told = Told()
    for pid in range(8):
        told.add(pid, KILLED, 20 + pid / 10, inside=19.5 if pid % 2 else None, host="ab"[pid % 2])

    assert {told.ends()[pid][1:] for pid in range(8)} == {(LEFT, endings.WITH_THE_JOB)}


def torchrun(gone: tuple[float | None, ...], error: str | None, agent_at: float = 21.5) -> Told:
    """An agent and its ranks, all gone inside of a range within a second."""
    told = Told().add(AGENT, ENDED, agent_at, ppid=SHELL, error=error)
    for rank, at in enumerate(gone):
        told.add(100 + rank, KILLED, 20 + rank / 10, inside=19, gone=at)
    return told


def test_the_first_of_a_company_was_killed_where_its_launcher_says_that_a_child_died() -> None:
    states = torchrun((20.9, 20.8, 20.95), "ChildFailedError").states()

    assert states == {AGENT: ENDED, 100: LEFT, 101: KILLED, 102: LEFT}


def test_where_nobody_saw_who_was_first_it_is_the_one_that_was_seen_last_the_longest_ago() -> None:
    assert torchrun((None, None), "ChildFailedError").states() == {AGENT: ENDED, 100: KILLED, 101: LEFT}


@pytest.mark.parametrize("error", [None, "SignalException", "KeyboardInterrupt"])
def test_a_launcher_that_was_told_to_end_takes_its_company_along(error: str | None) -> None:
    states = torchrun((20.9, 20.8, 20.95), error).states()

    assert set(states.values()) == {ENDED, LEFT}


def test_a_rank_that_failed_in_its_own_words_took_the_others_along() -> None:
    told = torchrun((20.9, 20.95), "ChildFailedError").add(102, ENDED, 20.5, error="ValueError")

    assert told.states() == {AGENT: ENDED, 100: LEFT, 101: LEFT, 102: ENDED}


def test_a_rank_that_failed_because_another_one_died_does_not_excuse_that() -> None:
    told = torchrun((20.2,), "ChildFailedError").add(102, ENDED, 20.9, error="RuntimeError")

    assert told.states()[100] == KILLED


def test_one_that_was_found_gone_later_counts_from_its_last_sign_of_life() -> None:
    """A rank that dies before its keeper watches it."""
    told = Told().add(AGENT, ENDED, 22, ppid=SHELL, error="ChildFailedError")
    told.add(100, KILLED, 20, gone=20.9).add(101, KILLED, 20.1, inside=20.1, gone=21.2, watched=False)

    assert told.states() == {AGENT: ENDED, 100: LEFT, 101: KILLED}


def test_an_attempt_that_was_followed_by_another_had_a_first_one() -> None:
    told = Told().add(AGENT, ENDED, 90, ppid=SHELL)
    for rank, gone in enumerate((20.7, 20.4)):
        told.add(100 + rank, KILLED, 20, inside=19, gone=gone).add(200 + rank, ENDED, 80, attempt=1)

    assert told.states() == {AGENT: ENDED, 100: LEFT, 101: KILLED, 200: ENDED, 201: ENDED}


def test_without_a_launcher_in_the_run_who_saw_it_was_one_of_them() -> None:
    told = Told().add(100, KILLED, 20.6, inside=19).add(101, KILLED, 20, inside=19, gone=20.3)

    assert told.states() == {100: LEFT, 101: KILLED}


def test_who_began_when_another_one_was_gone_was_not_taken_along_by_it() -> None:
    told = Told().add(AGENT, ENDED, 22, ppid=SHELL)
    for n in range(3):
        told.add(100 + n, KILLED, 20 + n / 2, start=20 + n / 2, inside=20 + n / 2, gone=20.3 + n / 2)

    assert told.states() == {AGENT: ENDED, 100: KILLED, 101: KILLED, 102: KILLED}


def test_a_host_that_ended_later_was_taken_along() -> None:
    told = Told()
    told.add(AGENT, ENDED, 21, ppid=SHELL, error="ChildFailedError").add(100, KILLED, 20, inside=19, gone=20.1)
    told.add(AGENT, ENDED, 51, ppid=SHELL, error="ChildFailedError", host="other")
    told.add(200, KILLED, 50, inside=19, gone=50.1, host="other")

    assert [state for _, state, _ in told.ends()] == [ENDED, KILLED, ENDED, LEFT]


RAY = {"under": "ray", "ppid": 7}


def ray_job(error: str | None = None, driver_at: float = 22) -> Told:
    told = Told().add(1, ENDED, driver_at, ppid=SHELL, error=error, under="ray driver")
    for actor, gone in ((50, 20.5), (51, 20.52)):
        told.add(actor, KILLED, 20, gone=gone, **RAY)
    return told


def test_rays_workers_leave_at_its_shutdown_also_where_the_driver_goes_on_and_inside_of_ranges() -> None:
    assert set(ray_job().states().values()) == {ENDED, LEFT}
    assert set(ray_job(driver_at=600).states().values()) == {ENDED, LEFT}
    assert ray_job().add(52, KILLED, 20, inside=19.9, gone=20.51, **RAY).states()[52] == LEFT


def test_what_an_actor_started_leaves_with_it_killed_at_once() -> None:
    """vLLM's engine and its workers, of a server in an actor; the driver takes its time."""

    def engine_of(job: Told, server: int) -> Told:
        job.add(60, KILLED, 20, gone=20.53, ppid=server, signal=9, under="process")
        return job.add(61, KILLED, 19.9, gone=20.53, ppid=60, signal=9, under="process")

    assert set(engine_of(ray_job(driver_at=24), 51).states().values()) == {ENDED, LEFT}
    assert engine_of(ray_job().add(52, RUNNING, 600, **RAY), 52).states()[60] == KILLED, "its server lived on"
    before = ray_job().add(52, KILLED, 20, gone=21.9, **RAY)
    assert engine_of(before, 52).states()[60] == LEFT, "a worker that exits kills its children first"
    failed = ray_job("RayTaskError", driver_at=21.5).add(52, KILLED, 20, gone=21.9, **RAY)
    assert engine_of(failed, 52).states()[60] == KILLED, "the job failed by that"
    later = ray_job(driver_at=600).add(60, KILLED, 300, gone=300.5, ppid=51, signal=9, under="process")
    assert later.states()[60] == KILLED, "its server was gone long before"


def test_an_actor_that_died_before_was_killed() -> None:
    assert ray_job().add(52, KILLED, 10, inside=9, gone=10.5, **RAY).ends()[-1] == (52, KILLED, None)
    assert ray_job().add(52, KILLED, 10, gone=10.5, **RAY).ends()[-1] == (52, KILLED, endings.WHILE_OTHERS_WENT_ON)


def test_an_actor_whose_death_ended_the_driver_was_killed_and_the_others_left() -> None:
    told = ray_job("ActorDiedError").add(52, KILLED, 20, inside=19.9, gone=20.1, **RAY)

    assert told.states() == {1: ENDED, 50: LEFT, 51: LEFT, 52: KILLED}


def test_workers_of_a_pool_leave_with_it_but_not_inside_of_a_range() -> None:
    told = Told().add(1, RUNNING, 60, ppid=SHELL)
    told.add(2, KILLED, 5, ppid=1, under="pool").add(3, KILLED, 5, ppid=1, under="pool", inside=4)

    assert told.ends()[1:] == [(2, LEFT, endings.WITH_ITS_POOL), (3, KILLED, None)]


def test_a_server_that_waits_in_a_range_when_its_driver_ends_left() -> None:
    def with_entered(at: float) -> str:
        return Told().add(1, ENDED, 21, ppid=SHELL).add(2, KILLED, 20, ppid=1, inside=at).states()[2]

    assert with_entered(at=5) == LEFT
    assert with_entered(at=19.99) == KILLED, "it was just doing something"


def test_every_process_of_any_run_is_judged() -> None:
    told = Told()
    for pid in range(60):
        state = (ENDED, LEFT, RUNNING, LOST, KILLED)[pid % 5]
        told.add(pid, state, pid, ppid=pid % 7, host="ab"[pid % 2], inside=pid - 0.5 if pid % 3 else None)

    assert set(endings.judge_endings(told.lives)) == set(range(60))
    assert all(isinstance(ending, Fate) for ending in endings.judge_endings(told.lives).values())


def started(job: str | None, first: int, last: int, restart: int | None = None) -> tuple[dict[str, Any], int, int]:
    return {"job": job, "restart": restart}, first * SECOND, last * SECOND


def test_hosts_of_one_job_are_one_attempt_and_what_came_after_is_the_next() -> None:
    job = [started("a", 0, 50), started("b", 5, 55), started("a", 20, 50), started("c", 100, 150)]

    assert attempts.number_attempts(job) == [0, 0, 0, 1]


def test_a_launcher_that_starts_anew_counts() -> None:
    agent, later = started("a", 0, 90), started("d", 200, 220)
    ranks = [started("a", 1, 30, 0), started("a", 1, 30, 0), started("a", 32, 80, 1), started("b", 33, 80, 1)]

    assert attempts.number_attempts([agent, *ranks, later]) == [0, 0, 0, 1, 1, 2]


def test_runs_of_before_have_one_attempt() -> None:
    assert attempts.number_attempts([started(None, 0, 5), started(None, 100, 105)]) == [0, 0]
