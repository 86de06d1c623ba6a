"""Three real processes on duty agree on steps over the real control folder; one of them dies, or never comes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from builders import lives

from mstxkit.escalation import asking
from mstxkit.recorder import adopt
from mstxkit.store import fate
from mstxkit.store.request import Request

_TRIES = 20
# A rank that trains until its standard input is closed. All are in the same step, of 10 ms by the host's clock, as
# collectives keep them in training; one that is late catches up. Messages need no 2 s in these tests.
PROGRAM = """
    import json, os, sys, threading, time, mstxkit
    from mstxkit import capturing
    from mstxkit.recorder import current
    from mstxkit.escalation.duty import beginning, duty
    from builders.rank_on_duty import Recording
    beginning.WAITS_AT_MOST_S = 20  # a busy machine puts no session off
    run, rank, rest = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    policy = duty.policy_of
    duty.policy_of = lambda settings: policy(settings)._replace(transport_s=0.3)
    session = Recording()
    duty.OneSession = lambda: session
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    mstxkit.identify(rank=rank, world_size=3)
    mstxkit.capture(run, poll_every_s=0.02, cooldown_s=0, agreement_s=float(rest[0]))
    def clock(): return time.monotonic_ns() // 10_000_000 % 1_000_000_000
    loops, step = 0, clock()
    while not is_over.is_set():
        while step >= clock(): time.sleep(0.0005)
        step += 1
        if "no steps" not in rest: mstxkit.step(step)
        with mstxkit.stage("every_rank"): time.sleep(0.002)
        if rank < 2:
            with mstxkit.stage("some_ranks"): time.sleep(0.001)
        time.sleep(0.002)
        loops += 1
    capturing.stop_recording()
    print(json.dumps({"orders": [[o.request, o.stage, o.step] for o in session.orders], "wrong": session.wrong,
                      "is_open": session.is_open, "loops": loops}))
"""


class Job:
    """Three ranks that train."""

    def __init__(self, run: Path, agreement_s: float) -> None:
        self.run, self._agreement_s = run, agreement_s
        self.ranks: dict[int, subprocess.Popen[str]] = {}
        self.told: dict[int, Any] = {}

    def start(self, *ranks: int, **how: str) -> None:
        path = os.pathsep.join([str(lives.PACKAGE_PARENT), str(Path(__file__).parents[2])])
        for rank in ranks:
            self.ranks[rank] = lives.start(PROGRAM, self.run, rank, self._agreement_s, *how.values(), PYTHONPATH=path)
        assert lives.wait_until(lambda: {one.rank for one in self.heard() if one.is_alive} >= set(ranks)), self.heard()

    def heard(self) -> list[fate.Heard]:
        try:
            return fate.read_heard(asking.control_of(self.run))
        except Exception:
            return []  # no run yet

    def ask(self, **given: Any) -> Request:
        return asking.ask_ranks(self.run, {"stage": "every_rank", "ranks": [0, 1, 2], **given})

    def reports(self, request: Request) -> dict[int, Any]:
        found = asking.find_request(asking.control_of(self.run), request.id)
        return {one.rank: one for one in fate.Fates(self.heard()).progress(found).reports}

    def states(self, request: Request) -> list[str]:
        return [report.state for _, report in sorted(self.reports(request).items())]

    def ended(self, request: Request) -> list[str]:
        """The states of all ranks, once each is an end: who hears of a step too late waits for the others, in vain."""
        if not lives.wait_until(lambda: all(one.has_ended for one in self.reports(request).values()), within_s=90):
            said = [(one.rank, one.state, one.step, one.ready, one.reason) for one in self.reports(request).values()]
            pytest.fail(f"not ended: {said}")
        return self.states(request)

    def kill(self, rank: int) -> None:
        lives.killed(self.ranks.pop(rank))

    def end(self) -> None:
        for rank, process in list(self.ranks.items()):
            status, out, err = lives.finished(process)
            del self.ranks[rank]
            assert status == 0 and "mstxkit: fault" not in err, err
            self.told[rank] = json.loads(out)
            assert not self.told[rank]["is_open"] and not self.told[rank]["wrong"]

    def steps(self, request: Request) -> dict[int, list[int]]:
        """Rank to the steps of its sessions."""
        return {rank: [step for id, _, step in told["orders"] if id == request.id] for rank, told in self.told.items()}


@pytest.fixture
def new_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def make(agreement_s: float = 20) -> Job:
        made.append(Job(tmp_path / "run", agreement_s))
        return made[-1]

    with lives.own_run(tmp_path):
        yield make
        for job in made:
            job.end()
        while adopt.collect_dead(tmp_path / "run"):
            pass


def test_all_ranks_record_the_same_steps(new_job: Callable[..., Job]) -> None:
    job = new_job()
    job.start(0, 1, 2)
    asked = [done_by_all(job, ranks=ranks) for ranks in ([0, 1, 2], [1, 2])]
    job.end()

    for request in (one for several in asked for one in several):
        assert_same_steps(job, request)


def done_by_all(job: Job, **given: Any) -> list[Request]:
    """Requests until one was recorded on all ranks: on a busy host a commit may come after its step."""
    asked: list[Request] = []
    while not asked or job.states(asked[-1]) != ["done"] * len(job.states(asked[-1])):
        assert len(asked) < _TRIES, job.reports(asked[-1])
        asked.append(job.ask(steps=2, occasion=f"{given} {len(asked)}", **given))
        job.ended(asked[-1])
    return asked


def assert_same_steps(job: Job, request: Request) -> None:
    """On all ranks but those that say that the step had begun, or begun to agree with somebody who died."""
    reports = job.reports(request)
    for rank, steps in job.steps(request).items():
        if rank in reports and reports[rank].state == "done":
            assert steps == [reports[rank].first_step, reports[rank].last_step], (rank, reports)
        else:
            assert steps == []
    assert len({report.first_step for report in reports.values() if report.state == "done"}) <= 1
    assert all("had begun" in report.reason for report in reports.values() if report.state == "expired")


def test_a_rank_that_never_enters_the_stage_keeps_nobody_waiting_for_ever(new_job: Callable[..., Job]) -> None:
    job = new_job(agreement_s=1.0)
    job.start(0, 1, 2)
    request = job.ask(stage="some_ranks")

    assert lives.wait_until(lambda: job.states(request)[:2] == ["expired", "expired"]), job.reports(request)
    assert "rank 2 was not ready within 1 s" in job.reports(request)[0].reason
    job.end()
    assert set(map(tuple, job.steps(request).values())) == {()}


def test_the_agreeing_rank_dies_and_the_others_expire(new_job: Callable[..., Job]) -> None:
    """Before it has agreed: it is killed, and the request comes after that."""
    job = new_job(agreement_s=0.5)
    job.start(0, 1, 2)
    job.kill(0)
    request = job.ask()

    assert lives.wait_until(lambda: job.states(request)[1:] == ["expired", "expired"]), job.reports(request)
    assert "rank 0, which agrees for all that were asked, did not answer" in job.reports(request)[1].reason


def test_a_rank_that_is_not_asked_is_not_needed(new_job: Callable[..., Job]) -> None:
    """Rank 0 is not there at all."""
    job = new_job()
    job.start(1, 2)
    asked = done_by_all(job, ranks=[1, 2])
    job.end()

    for request in asked:
        assert_same_steps(job, request)


def test_the_agreeing_rank_dies_and_comes_back_and_goes_on(new_job: Callable[..., Job]) -> None:
    job = new_job()
    job.start(0, 1, 2)
    job.kill(0)
    request = job.ask(steps=2)
    assert lives.wait_until(lambda: all(job.reports(request)[rank].ready for rank in (1, 2)))
    job.start(0)
    states = job.ended(request)
    done = done_by_all(job)
    job.end()

    assert set(states) <= {"done", "expired"}, job.reports(request)
    for one in (request, *done):
        assert_same_steps(job, one)


def test_ranks_that_count_no_steps_are_told_so(new_job: Callable[..., Job]) -> None:
    job = new_job()
    job.start(0, 1, 2, counts="no steps")
    request, occurrences = job.ask(steps=1), job.ask(occurrences=2, occasion="o")

    assert job.ended(request) == ["expired"] * 3
    assert "ask for occurrences instead" in job.reports(request)[2].reason
    assert job.ended(occurrences) == ["done"] * 3
