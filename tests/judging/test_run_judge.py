"""Judges of one run, one after the other, each of them killed: every step is judged, and only one judge says so."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from builders import handing_rank

from mstxkit.cluster import agent as agent_module
from mstxkit.cluster.agent import Agent
from mstxkit.judging import run_judge as module
from mstxkit.judging.controller import Controller
from mstxkit.judging.evidence import RoleStep
from mstxkit.judging.run_judge import RunJudge
from mstxkit.judging.steps import Closing
from mstxkit.store import batches, layout, run_file, verdicts
from mstxkit.store.batches import HandingProcess
from mstxkit.store.handed_over import SummaryRing

RANKS, STEP_NS = 3, 20_000_000


class Job:
    """Ranks of one host, whose real agent appends what they hand over to the run, and who judges that."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(agent_module, "EVERY_S", 0.0)
        monkeypatch.setattr(module, "_JOB_EVERY_S", 0.0)
        monkeypatch.setattr(module, "_JOB_AT_REST_S", 0.0)
        self.steps: list[tuple[int, int]] = []
        monkeypatch.setattr(module, "Controller", partial(Controller, on_step=self._judged))
        self.run, self.run_id = run_file.open_run_folder(folder / "run")
        live = folder / "live"
        live.mkdir(mode=0o700)
        self._rings = [SummaryRing(live / f"h-{rank}-1.sums") for rank in range(RANKS)]
        for rank in range(RANKS):
            (live / f"h-{rank}-1.live").touch()
        self._agent = Agent(self.run, self.run_id, live, judges=False)
        self._began_ns, self._step = time.monotonic_ns() - 10**11, 0

    def hand_over(self, steps: int, at_once: int = 40) -> None:
        for first in range(self._step, self._step + steps, at_once):
            for rank, ring in enumerate(self._rings):
                rows = b"".join(self._rows(step, rank) for step in range(first, first + at_once))
                who = {"rank": rank, "role": "actor", "pid": 9, "world_size": RANKS}
                ring.put(rows, {"stages": list(handing_rank.STAGES), "step": first + at_once, "who": who})
            self._agent.turn()
        self._step += steps

    def _rows(self, step: int, rank: int) -> bytes:
        return handing_rank.rows_of(step, rank, 1, self._began_ns + step * STEP_NS, STEP_NS)

    def judge(self, looks: bool = True) -> RunJudge:
        """One more judge: the ones before were killed, and have closed nothing."""
        run_judge = RunJudge(self.run, self.run_id, "controller")
        if looks:
            run_judge.look()
        return run_judge

    def _judged(self, step: RoleStep) -> None:
        self.steps.append((step.step, len(step.members)))

    def bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.run / layout.SUMMARIES).iterdir())


def hand_over(job: Job, rank: int, step: int, behind_s: float = 0.0) -> None:
    """Rank's own host appends a step of it, by a wall clock that is so far behind."""
    host, now_ns = f"h{rank}", time.monotonic_ns()
    process = HandingProcess(0, f"{host}-1", rank, "actor", stages=handing_rank.STAGES)
    head = {
        "run": job.run_id, "host": host, "boot": "b", "sender": host, "number": step,
        "clock": [now_ns, int((time.time() - behind_s) * 1e9), 100], "processes": [process.as_json()],
    }  # fmt: skip
    rows = handing_rank.rows_of(step, rank, 1, now_ns + step * STEP_NS, STEP_NS)
    (job.run / layout.SUMMARIES).mkdir(exist_ok=True)
    with open(job.run / layout.SUMMARIES / f"{host}.mxb", "ab") as file:
        file.write(batches.encode_batch(head, [(batches.STAGES, 0, rows)]))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that a judge reads again: fewer than a few hundred steps have."""
    monkeypatch.setattr(batches, "READ_AGAIN_BYTES", 16 << 10)
    monkeypatch.setattr(agent_module, "_ANNOUNCED_EVERY_BYTES", 4 << 10)
    return 16 << 10


def test_judges_that_are_killed_one_after_the_other_leave_out_no_step_and_count_none_twice(
    job: Job, short_memory: int
) -> None:
    job.hand_over(120)
    lives = [job.judge()]
    job.hand_over(400)  # while nobody judges
    assert job.bytes() > 5 * short_memory
    lives += [job.judge(looks=False), job.judge()]
    job.hand_over(80)
    lives += [job.judge()]
    lives[-1].judge(time.time(), at_once=True)

    assert {step for step, _ in job.steps} == set(range(600))
    assert {members for _, members in job.steps} == {RANKS}
    assert sum(run_judge.outcome_steps for run_judge in lives) == 600
    assert len(job.steps) < 1000, "of what was judged only a little is gone through again"
    assert [(verdict.rank, verdict.withdrawn) for verdict in verdicts.read_verdicts(job.run)] == [(1, "")]


def test_the_first_judge_begins_with_the_first_step_however_late_it_comes(job: Job, short_memory: int) -> None:
    job.hand_over(400)
    run_judge = job.judge()
    run_judge.judge(time.time(), at_once=True)

    assert [step for step, _ in job.steps] == list(range(400))
    assert [verdict.rank for verdict in verdicts.read_verdicts(job.run) if verdict.is_blaming] == [1]


def test_what_could_not_be_read_once_is_read_at_the_next_look(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.hand_over(40)
    with monkeypatch.context() as broken:
        broken.setattr("mstxkit.store.documents.read_part", _fails)
        run_judge = job.judge()
        before = len(job.steps)
    run_judge.look()

    assert (before, len(job.steps)) == (0, 39)


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0])
def test_each_host_is_waited_for_however_far_the_clock_of_who_judges_is_ahead_of_theirs(
    job: Job, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    monkeypatch.setattr(module, "_LISTED_EVERY_S", 0.0)
    run_judge = RunJudge(job.run, job.run_id, "controller", Closing(60.0, 600.0))
    run_judge.look()
    for step in range(10):
        for rank in range(2):
            hand_over(job, rank, step, ahead_s)
            run_judge.look()
    run_judge.judge(time.time(), at_once=True)

    assert job.steps == [(step, 2) for step in range(10)]


def test_no_step_is_judged_before_all_hosts_were_asked_in_their_turns(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ranks of which nothing is known yet, only a look at their host's file can tell."""
    monkeypatch.setattr(module, "_LISTED_EVERY_S", 0.0)
    monkeypatch.setattr(module, "_FILES_AT_ONCE", 1)
    run_judge = RunJudge(job.run, job.run_id, "controller", Closing(0.0, 600.0))
    run_judge.look()
    for step in range(6):
        for rank in range(3):
            hand_over(job, rank, step)
        for _ in range(3):
            run_judge.look()
    run_judge.judge(time.time(), at_once=True)

    assert job.steps == [(step, 3) for step in range(6)]


def test_what_a_judge_is_sent_is_settled_as_soon_as_ever_however_many_hosts_there_are(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ray."""
    monkeypatch.setattr(module, "_FILES_AT_ONCE", 1)
    for rank in range(3):
        hand_over(job, rank, 0)
    run_judge = RunJudge(job.run, job.run_id, "controller", Closing(0.0, 600.0))
    run_judge.look()
    before = list(job.steps)
    run_judge.look(reads=False)

    assert (before, job.steps) == ([], [(0, 3)])


@pytest.mark.parametrize("hosts", [100, 1_280, 10_000])
def test_hosts_are_asked_400_times_in_a_second_at_most_however_many_there_are(
    job: Job, monkeypatch: pytest.MonkeyPatch, hosts: int
) -> None:
    (job.run / layout.SUMMARIES).mkdir()
    for host in range(hosts):
        (job.run / layout.SUMMARIES / f"h{host}-0.mxb").touch()
    run_judge, asked = job.judge(), list[object]()
    monkeypatch.setattr(batches.BatchFile, "read", lambda file: asked.append(file) or iter(()))
    counts = []
    for _ in range(-(-hosts // 800)):
        before = len(asked)
        run_judge.look()
        counts.append(len(asked) - before)

    assert len(set(map(id, asked))) == hosts, "each had its turn"
    assert max(counts) / run_judge.pause_s <= 400.0
    run_judge.look(at_last=True)
    assert len(asked) - sum(counts) == hosts


def test_who_judges_looks_again_just_when_a_step_is_settled(job: Job) -> None:
    run_judge = job.judge(looks=False)
    at_rest_s = run_judge.pause_s
    job.hand_over(40)
    run_judge.look()
    before, pause_s = len(job.steps), run_judge.pause_s
    time.sleep(pause_s)
    run_judge.look()

    assert 0 < pause_s <= Closing().settle_s < at_rest_s
    assert (before, len(job.steps)) == (39, 40)
    assert run_judge.pause_s == at_rest_s, "nobody has begun with another one"


@pytest.mark.parametrize(("pace_s", "pause_s"), [(0.0, 0.5), (1.0, 0.5), (4.0, 0.8), (600.0, 1.0)])
def test_of_long_steps_each_is_looked_for_a_few_times(
    job: Job, monkeypatch: pytest.MonkeyPatch, pace_s: float, pause_s: float
) -> None:
    monkeypatch.setattr(Controller, "pace_s", pace_s)

    assert job.judge(looks=False).pause_s == pytest.approx(pause_s)


def test_that_somebody_judges_is_told_also_while_nothing_is_new(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_JOB_AT_REST_S", 0.5)
    job.hand_over(40)
    run_judge, file = job.judge(), job.run / layout.VERDICTS / layout.JOB
    time.sleep(Closing().settle_s)
    run_judge.look()  # the last step
    before = file.stat().st_ino
    run_judge.look()
    at_once = file.stat().st_ino
    time.sleep(0.6)
    run_judge.look()

    assert at_once == before != file.stat().st_ino


def _fails(*_: object) -> bytes:
    raise OSError(5, "the disk says so")
