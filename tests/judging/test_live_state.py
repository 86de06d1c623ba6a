"""A run at this moment: by whoever judges it, else judged here in memory; what has not changed is not read again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from builders.shown_job import ShownJob, role, verdict

from mstxkit.judging import live_state as module
from mstxkit.judging.live_state import Judges, LiveReader
from mstxkit.judging.run_judge import SILENCES_EVERY_S, SILENT_AFTER_S, Silences
from mstxkit.store import batches, job_file, layout, verdicts, whereabouts
from mstxkit.store.batches import HandingProcess
from mstxkit.store.summaries import StageSummary

MS = 10**6


@pytest.fixture
def job(tmp_path: Path) -> ShownJob:
    return ShownJob(tmp_path)


def hand_over(job: ShownJob, steps: int = 40, slow: int = 1) -> None:
    """Three ranks of one host; nobody has judged them."""
    (job.run / layout.SUMMARIES).mkdir(exist_ok=True)
    began_ns = time.time_ns() - 100 * 10**9
    for step in range(steps):
        begin = 10**12 + step * 100 * MS
        processes = [
            HandingProcess(rank, f"p{rank}", rank, "actor", stages=("actor_generate", "actor_update")).as_json()
            for rank in range(3)
        ]
        head = {
            "run": job.run_id, "host": "h0", "boot": "b", "sender": "s", "number": step, "processes": processes,
            "clock": [begin + 100 * MS, began_ns + step * 100 * MS, 500], "dropped": 2,
        }  # fmt: skip
        parts = [(batches.STAGES, rank, _rows(step, rank, slow, begin)) for rank in range(3)]
        with open(job.run / layout.SUMMARIES / "h0-0.mxb", "ab") as stream:
            stream.write(batches.encode_batch(head, parts))


def _rows(step: int, rank: int, slow: int, begin: int) -> bytes:
    took = (45 if rank == slow else 30) * MS + (step * 7 + rank * 3) % 5 * MS // 10
    first = StageSummary(step, 1, 1, begin, begin + took, took, None, took, 100)
    second = StageSummary(step, 2, 1, begin + took, begin + 90 * MS, 90 * MS - took, None, 90 * MS - took)
    return first.pack() + second.pack()


def test_what_nobody_has_judged_is_judged_here_and_nothing_is_written(job: ShownJob) -> None:
    hand_over(job)
    before = sorted(job.run.rglob("*"))
    live_state = LiveReader(job.run, job.run_id).look()
    (of_role,) = live_state.state.roles if live_state.state is not None else ()

    assert live_state.by == Judges.HERE
    assert (of_role.step, of_role.members) == (39, 3)
    assert [(said.rank, said.stage) for said in live_state.verdicts] == [(1, "actor_generate")]
    assert live_state.state is not None and live_state.state.dropped_batches == 2
    assert sorted(job.run.rglob("*")) == before


def test_a_hang_holds_no_more_once_its_host_says_so_where_the_job_is_judged_here(job: ShownJob) -> None:
    hand_over(job, 12)
    live_reader, hang = LiveReader(job.run, job.run_id), verdict(kind=verdicts.HANG, withdrawn="")
    job.blame(hang, who="hang-h0")
    before = live_reader.look()
    job.blame(hang._replace(withdrawn="it went on"), who="hang-h0")

    assert (before.by, before.verdicts) == (Judges.HERE, (hang,))
    assert live_reader.look().verdicts == ()


def test_once_somebody_else_judges_his_word_is_shown(job: ShownJob) -> None:
    hand_over(job)
    live_reader = LiveReader(job.run, job.run_id)
    live_reader.look()
    job.say(role(step=77))
    job.blame(verdict(rank=7))
    live_state = live_reader.look()

    assert live_state.by == Judges.ANOTHER
    assert live_state.state is not None and live_state.state.roles[0].step == 77
    assert [said.rank for said in live_state.verdicts] == [7]


def test_a_job_that_nobody_judged_is_over_once_all_its_hosts_have_said_goodbye(job: ShownJob) -> None:
    hand_over(job)
    before = LiveReader(job.run, job.run_id).look()
    with open(job.run / layout.SUMMARIES / "h0-0.mxb", "ab") as stream:
        head = {"run": job.run_id, "host": "h0", "boot": "b", "sender": "s", "number": 40, "goodbye": True}
        stream.write(batches.encode_batch({**head, "clock": [5 * 10**12, time.time_ns() - 90 * 10**9, 500]}, []))
    after = LiveReader(job.run, job.run_id).look()

    assert (before.by, after.by) == (Judges.HERE, Judges.OVER)
    assert after.age_s == pytest.approx(90, abs=20)
    assert [said.rank for said in after.verdicts] == [1]


def test_what_came_after_the_last_word_is_not_over(job: ShownJob) -> None:
    job.say(role(), is_final=True, written_ns=time.time_ns() - 10**12)
    hand_over(job)

    assert LiveReader(job.run, job.run_id).look().by == Judges.HERE


@pytest.mark.parametrize(
    ("ended", "ago_s", "by"), [(0, 1.0, Judges.ANOTHER), (2, 1.0, Judges.OVER), (0, 99.0, Judges.OVER)]
)
def test_a_job_that_was_judged_so_far_is_over_only_where_nobody_of_it_lives(
    job: ShownJob, ended: int, ago_s: float, by: str
) -> None:
    job.say(role(), is_final=True, hosts=2, ended=ended)
    job.stand(0, range(2), ago_s=ago_s)

    assert LiveReader(job.run, job.run_id).look().by == by


def test_a_job_is_over_since_its_own_last_word_and_not_since_somebody_judged_it_later(job: ShownJob) -> None:
    """`top --once` a day after the job says its word now."""
    hand_over(job)
    for file in (job.run / layout.SUMMARIES).iterdir():
        os.utime(file, (time.time() - 86_400,) * 2)
    job.say(role(), is_final=True)
    live_state = LiveReader(job.run, job.run_id).look()

    assert live_state.by == Judges.OVER
    assert live_state.age_s == pytest.approx(86_400, abs=60)


def test_files_that_have_not_changed_are_read_once(job: ShownJob, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"job": 0, "verdicts": 0, "places": 0}

    def counting(name: str, real: Any) -> Any:
        def read(*args: Any) -> Any:
            counts[name] += 1
            return real(*args)

        return read

    monkeypatch.setattr(job_file, "read_state", counting("job", job_file.read_state))
    monkeypatch.setattr(verdicts, "read_verdicts", counting("verdicts", verdicts.read_verdicts))
    monkeypatch.setattr(whereabouts, "in_file", counting("places", whereabouts.in_file))
    job.say(role())
    job.blame(verdict())
    for host in range(3):
        job.stand(host, range(2))
    live_reader = LiveReader(job.run, job.run_id)
    for _ in range(5):
        live_state = live_reader.look()
    job.stand(1, range(4))
    after = live_reader.look()

    assert (len(live_state.where), len(after.where)) == (6, 8)
    assert counts == {"job": 1, "verdicts": 1, "places": 4}


def test_who_is_not_heard_again_grows_old(job: ShownJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job.say(role())
    job.stand(0, range(1))
    live_reader = LiveReader(job.run, job.run_id)
    first = live_reader.look()
    later_s = time.monotonic() + 50
    monkeypatch.setattr(module.time, "monotonic", lambda: later_s)

    assert live_reader.look().where[0].age.seconds == pytest.approx(first.where[0].age.seconds + 50, abs=5)


class Host:
    """As the directory has it."""

    def __init__(self, host: str, has_ended: bool = False) -> None:
        self.host, self.has_ended = host, has_ended


def test_ranks_are_not_shown_on_hosts_that_a_restarted_job_has_left(job: ShownJob) -> None:
    """Their files stay: another pod has another name. A rank that nobody has started again is shown as seen then."""
    job.say(role())
    job.stand(0, range(3), ago_s=12 * 86400.0)
    job.stand(1, range(2))
    where = LiveReader(job.run, job.run_id).look().where

    assert [(place.rank, place.host) for place in where] == [(2, "node-0"), (0, "node-1"), (1, "node-1")]


def test_a_host_is_silent_when_its_file_no_longer_changes_and_it_has_not_ended(job: ShownJob) -> None:
    hosts: Any = {f"node-{n}-0": Host(f"node-{n}", n == 2) for n in range(3)} | {"../x\0": Host("evil")}
    silences, now_s, seen = Silences(job.run), 0.0, []
    for host in range(3):
        job.stand(host, range(1))
    while now_s <= SILENT_AFTER_S + 2 * SILENCES_EVERY_S:
        job.stand(1, range(1))
        seen.append(silences.silent(now_s, lambda: hosts))
        now_s += SILENCES_EVERY_S
    job.stand(0, range(1))

    assert seen[0] == []
    assert seen[-1] == ["node-0"]
    assert silences.silent(now_s, lambda: hosts) == []


def test_hosts_are_asked_for_where_it_is_time_to_look_and_one_that_has_ended_since_is_not_silent(job: ShownJob) -> None:
    host = Host("node-0")
    hosts: Any = {"node-0-0": host}
    silences, asked = Silences(job.run), []
    job.stand(0, range(1))
    seconds = [SILENCES_EVERY_S * n / 10 for n in range(35)]
    silent = [silences.silent(now_s, lambda: asked.append(0) or hosts) for now_s in seconds]
    host.has_ended = True

    assert len(asked) == 4
    assert silent[-1] == ["node-0"] and silences.silent(seconds[-1], lambda: hosts) == []
