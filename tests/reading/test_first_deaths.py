"""One rank fails, and its launcher ends the others: the first is named, and nobody else, however it died, whatever
started it, and however long the others took.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from builders.told_lives import SECOND, SHELL, Told

from mstxkit.reading import endings
from mstxkit.reading.endings import Fate
from mstxkit.reading.processes import ENDED, KILLED, LEFT, RUNNING
from mstxkit.store.incidents import Incident

AGENT, RANKS, VICTIM = 10, 4, 101
LATER_S = (0.15, 0.4, 1.0, 2.5, 5.0)
# How the first died, and what is known of it.
DEATHS: dict[str, dict[str, Any]] = {
    "SIGSEGV": {"state": KILLED, "fatal": "Segmentation fault"},
    "SIGABRT that only the kernel tells of": {"state": KILLED, "signal": 6},
    "SIGKILL that the kernel tells of": {"state": KILLED, "signal": 9},
    "told by the watchman": {"state": KILLED, "was_told": True},
    "exception": {"state": ENDED, "error": "ValueError"},
}


def srun(told: Told, gone: float) -> None:
    """All others at once, nobody of the run lives to see it."""
    for rank in (0, 2, 3):
        told.add(100 + rank, KILLED, gone, inside=9.9)


def mpirun(told: Told, gone: float) -> None:
    """One after the other, each of them seen by the watchman."""
    for rank in (0, 2, 3):
        told.add(100 + rank, KILLED, gone + rank / 5, inside=9.9, gone=gone + rank / 5)


def torchrun(told: Told, gone: float) -> None:
    told.add(AGENT, ENDED, gone + 1, ppid=SHELL, error="ChildFailedError")
    mpirun(told, gone)


def supervisor(told: Told, gone: float) -> None:
    """A program of the run, which ends in order; its ranks are gone with SIGTERM."""
    told.add(AGENT, ENDED, gone + 1, ppid=SHELL)
    for rank in (0, 2, 3):
        told.add(100 + rank, KILLED, gone, inside=9.9, gone=gone + rank / 100, signal=15)


def ray(told: Told, gone: float) -> None:
    """The driver ends by the death of an actor, and its workers with it."""
    told.add(AGENT, ENDED, gone + 1, ppid=SHELL, error="ActorDiedError", under="ray driver")
    for rank in (0, 2, 3):
        told.add(100 + rank, KILLED, gone, inside=9.9, gone=gone + rank / 100, under="ray", ppid=7)


def restarts(told: Told, gone: float) -> None:
    """The same launcher starts all anew a moment later, and that attempt goes on."""
    srun(told, gone)
    for rank in range(RANKS):
        told.add(200 + rank, RUNNING, gone + 60, start=gone + 0.5, inside=gone + 59, attempt=1)


def other_hosts(told: Told, gone: float) -> None:
    """Half of the ranks are of another host, of which only the last signs of life are known."""
    told.add(100, KILLED, gone, inside=9.9, gone=gone + 0.01)
    told.add(102, KILLED, gone, inside=9.9, host="other").add(103, KILLED, gone, host="other")


LAUNCHERS = (srun, mpirun, torchrun, supervisor, ray, restarts, other_hosts)


@pytest.mark.parametrize(("launcher", "death", "later_s"), list(product(LAUNCHERS, DEATHS, LATER_S)))
def test_the_first_that_failed_is_named_and_who_was_ended_left(launcher: Any, death: str, later_s: float) -> None:
    about = dict(DEATHS[death])
    state, error = about.pop("state"), about.pop("error", None)
    told = Told().add(VICTIM, state, 10, inside=None if error else 9.9, gone=10.0, error=error, **about)
    launcher(told, 10 + later_s)

    by_pid = {pid: (state, how) for pid, state, how in told.ends()}
    wrong = {pid for pid, (state, how) in by_pid.items() if endings.is_wrong(state, how)}
    assert by_pid[VICTIM][0] == state
    assert wrong - {AGENT} == {VICTIM}, by_pid
    assert {by_pid[pid] for pid in (100, 102, 103)} == {(LEFT, endings.WITH_THE_JOB)}


@pytest.mark.parametrize(("launcher", "later_s"), list(product((srun, mpirun, torchrun, restarts), LATER_S)))
def test_where_only_the_order_is_known_the_first_is_killed(launcher: Any, later_s: float) -> None:
    told = Told().add(VICTIM, KILLED, 10, inside=9.9, gone=10.0)
    launcher(told, 10 + later_s)

    assert told.states()[VICTIM] == KILLED


def test_words_say_by_which_signal() -> None:
    told = Told().add(1, KILLED, 5, inside=4, fatal="Segmentation fault").add(2, ENDED, 60)
    told.add(3, KILLED, 5, inside=4, signal=9).add(4, KILLED, 5, inside=4, signal=40)

    assert [how for _, _, how in told.ends()] == ["by SIGSEGV", None, "by SIGKILL", "by signal 40"]


def test_a_job_that_was_signalled_and_killed_as_it_did_not_leave_in_time_left() -> None:
    """As of a scheduler: SIGTERM, and SIGKILL to who is left 30 s later."""
    told = Told().add(1, KILLED, 10, inside=9, gone=10.0, signal=15).add(2, KILLED, 10, inside=9, gone=10.01, signal=15)
    told.add(3, KILLED, 40, inside=9, gone=40.0, signal=9).add(4, KILLED, 40, inside=9, gone=40.02, signal=9)

    assert not any(endings.is_wrong(state, how) for _, state, how in told.ends()[2:])


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_a_job_that_was_killed_as_a_whole_left_also_where_the_watchman_saw_it(spread: float) -> None:
    told = Told()
    for rank in range(4):
        told.add(rank + 1, KILLED, 10, inside=9, gone=10 + spread * rank / 4, signal=9)

    assert set(told.states().values()) == {LEFT}


def test_a_second_crash_is_one_too_and_what_came_long_after_the_first_is_judged_by_itself() -> None:
    told = Told().add(1, KILLED, 10, inside=9, gone=10.0, fatal="Segmentation fault")
    told.add(2, KILLED, 10.5, inside=9, gone=10.5, fatal="Aborted").add(3, KILLED, 11, inside=9, gone=11.0)
    assert told.states() == {1: KILLED, 2: KILLED, 3: LEFT}

    told = Told().add(1, KILLED, 10, inside=9, gone=10.0, signal=9).add(2, KILLED, 30, inside=29, gone=30.0, signal=9)
    told.add(3, ENDED, 600)
    assert told.states() == {1: KILLED, 2: KILLED, 3: ENDED}


def test_a_job_that_is_started_anew_at_once_again_and_again_has_a_first_death_each_time() -> None:
    told = Told()
    for attempt in range(3):
        for rank in range(3):
            at = 5 * attempt + rank / 20
            told.add(10 * attempt + rank, KILLED, at + 2, start=at, inside=at + 1.9, attempt=attempt)

    killed = [pid // 10 for pid, state in told.states().items() if state == KILLED]
    assert killed == [0, 1], "of the last one nobody knows"


def test_an_incident_that_names_a_process_is_believed() -> None:
    told = Told()
    for rank in range(4):
        told.add(rank + 1, KILLED, 10, inside=9)
    processes = [life.process for life in told.lives]
    for process in processes:
        process.identity |= {"start_ns": 1 * SECOND}
        process.heartbeat_ns = 10 * SECOND
    named = {"process": processes[2].name, "fatal": "Bus error"}

    judged = endings.of_run(processes, dict.fromkeys(range(4), 9 * SECOND), [Incident("x", 1, "signal", details=named)])
    assert judged == {0: Fate(LEFT, endings.WITH_THE_JOB), 1: Fate(LEFT, endings.WITH_THE_JOB),
                      2: Fate(KILLED, "by SIGBUS"), 3: Fate(LEFT, endings.WITH_THE_JOB)}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "how", "wrong"),
    [(KILLED, None, True), (ENDED, None, False), (ENDED, "by ValueError", True), (ENDED, "by KeyboardInterrupt", False),
     (LEFT, endings.WITH_THE_JOB, False), (RUNNING, None, False)],
)  # fmt: skip
def test_what_ends_a_report_with_an_error(state: str, how: str | None, wrong: bool) -> None:
    assert endings.is_wrong(state, how) is wrong
