"""Batches become steps of roles, each closed once all of it are through, or nobody waits for the rest any more."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import soak

from mstxkit.judging import controller as module
from mstxkit.judging.clock_bounds import WALL_ERROR_NS
from mstxkit.judging.controller import Controller
from mstxkit.judging.cutting import Piece
from mstxkit.judging.evidence import RoleStep
from mstxkit.judging.judge import JobJudge
from mstxkit.judging.judged import Judged
from mstxkit.judging.steps import OPEN_AT_MOST
from mstxkit.stages import canonical_key
from mstxkit.store import batches
from mstxkit.store.batches import Batch, HandingProcess
from mstxkit.store.collectives import CollectiveEntry
from mstxkit.store.settings_file import LiveSettings
from mstxkit.store.summaries import StageSummary
from mstxkit.store.verdicts import COMPUTE, Verdict

pytestmark = pytest.mark.days("odd")

RUN, S, MS = "0" * 32, 10**9, 10**6
STAGES = ("rollout", "actor_update")


class FakeJudge:
    """Remembers what it is asked to judge, and blames rank 1 each time."""

    def __init__(self, settings: Any = None, run: str = "", standing: Any = ()) -> None:
        self.settings, self.closed = settings, list[RoleStep]()
        self.verdicts = {verdict.id: verdict for verdict in standing}

    def close(self, step: RoleStep, now_ns: int = 0) -> Judged:
        self.closed.append(step)
        verdict = Verdict("a", now_ns, step.step, COMPUTE, "actor_update", 1)
        self.verdicts["a"] = verdict
        return Judged((verdict,))

    def standing(self) -> list[Verdict]:
        return list(self.verdicts.values())

    def of_next_attempt(self) -> FakeJudge:
        """As the judge that is meant."""
        return FakeJudge(self.settings, "", tuple(verdict._replace(step=-1) for verdict in self.standing()))

    def modes(self, role: str) -> dict[Piece, int]:
        """Nothing is known of who waits."""
        return {}

    def wait_ratio(self, step: RoleStep) -> float:
        """As the judge that is meant has it of a first step."""
        judge = JobJudge()
        judge.close(step)
        return judge.wait_ratio(step)

    def judged_steps(self) -> dict[str, tuple[int, int]]:
        """Of very many roles it judges the first ones only: here of actors."""
        return {"actor": (len(self.closed), 7)}


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(module, "JobJudge", FakeJudge)
    return Job()


class Job:
    """A controller, and hosts that send to it; seconds on their wall clock, which is 1000 s ahead of the other one."""

    def __init__(self, reference: tuple[str, int] = ("", 0), on_step: Any = None) -> None:
        self.controller = Controller("run", reference=reference, on_step=on_step)
        self.sent: dict[str, int] = {}

    @property
    def closed(self) -> list[RoleStep]:
        judge: Any = self.controller.judge
        return list(judge.closed)

    def send(
        self, rows: dict[int, list[StageSummary]], now_s: float, host: str = "h0", role: str = "actor", **head: Any
    ) -> bool:
        """One batch: rank to its rows."""
        of_process = {"stages": STAGES, **head.pop("of_process", {})}
        processes = [HandingProcess(rank, f"{host}-{rank}-1", rank, role, "trainer", **of_process) for rank in rows]
        self.sent[host] = number = self.sent.get(host, -1) + 1
        about = {
            "run": RUN, "host": host, "boot": f"boot of {host}", "sender": host, "number": number,
            "clock": [int(now_s * S), int((now_s + 1000) * S), 1000],
            "processes": [process.as_json() for process in processes], **head,
        }  # fmt: skip
        sections = [(batches.STAGES, rank, b"".join(row.pack() for row in of)) for rank, of in rows.items()]
        return self.controller.take(decoded(batches.encode_batch(about, sections)), now_s + 1000)

    def enter(self, entries: dict[int, bytes], now_s: float, host: str = "h0") -> None:
        """A batch of what ranks that were told of have entered."""
        self.sent[host] += 1
        head = {"run": RUN, "host": host, "sender": host, "number": self.sent[host], "boot": f"boot of {host}"}
        frame = batches.encode_batch(head, [(batches.COLLECTIVES, rank, rows) for rank, rows in entries.items()])
        self.controller.take(decoded(frame), now_s + 1000)

    def work(self, now_s: float, at_once: bool = False) -> module.Outcome:
        return self.controller.work(now_s + 1000, at_once)


def decoded(frame: bytes) -> Batch:
    (batch,) = batches.decode_batches(frame, RUN).batches
    return batch


def row(step: int | None, took_ms: int = 20, stage: int = 1, at_s: float = 1.0, **more: Any) -> StageSummary:
    begin, took = int(at_s * S), took_ms * MS
    return StageSummary(step, stage, 1, begin, begin + took, took, None, took, **more)


def test_the_pace_is_that_of_the_role_with_the_shortest_steps(job: Job) -> None:
    assert job.controller.pace_s == 0.0, "it is not known yet"
    for step in range(60):
        at_s = 4.0 * (step + 1)
        job.send({0: [row(step, at_s=at_s)]}, at_s)
        if step % 10 == 0:
            job.send({0: [row(step // 10, at_s=at_s)]}, at_s, host="h1", role="rollout")
        job.work(at_s + 1.0)

    assert job.controller.pace_s == pytest.approx(4.0, rel=0.01)


def test_a_step_is_judged_once_all_of_its_role_have_handed_it_over_and_it_is_settled(job: Job) -> None:
    job.send({0: [row(0)], 1: [row(0)]}, 1.0)
    job.send({0: [row(1)]}, 2.0)
    before = len(job.work(2.1).figures)
    job.send({1: [row(1, 35)]}, 2.2)

    assert (before, len(job.work(2.3).figures), len(job.work(2.9).figures)) == (1, 0, 1)
    _, second = job.closed
    assert [peer.rank for peer in second.members] == [0, 1]
    assert second.stages == ("actor_generate",), "the canonical key of what they call rollout"
    np.testing.assert_allclose(second.total_s, [[0.020], [0.035]])
    np.testing.assert_allclose(second.left_s - second.entered_s, second.total_s, atol=1e-6)
    assert np.isnan(second.work.tokens).all()


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("data", "input"), {"load_batch": 0.3, "input": 0.05}),
        (("rollout", "actor_generate"), {"rollout": 0.3, "actor_generate": 0.05}),
    ],
)
def test_of_two_names_of_one_stage_none_replaces_the_other(
    job: Job, names: tuple[str, str], keys: dict[str, float]
) -> None:
    """What came last counted alone: ranks that hand over in another order looked slow."""
    rows = [row(0, 300, 1), row(0, 50, 2)]
    job.send({0: rows, 1: rows[::-1]}, 1.0, of_process={"stages": names})
    job.work(2.0)

    (step,) = job.closed
    for took_s in step.total_s:
        assert dict(zip(step.stages, took_s)) == pytest.approx(keys)


def test_what_is_handed_over_again_replaces_what_was_said_of_it(job: Job) -> None:
    job.send({0: [row(0, 20), row(0, 30, tokens=5, responses=2, longest_response=4)]}, 1.0)
    job.send({0: [row(0, 50, 2)]}, 1.1)
    job.work(2.0)

    (step,) = job.closed
    np.testing.assert_allclose(step.total_s, [[0.030, 0.050]])
    np.testing.assert_allclose(step.work.tokens, [[5, np.nan]])


def test_who_does_not_come_is_waited_for_only_so_long_and_then_no_more_until_it_comes_again(job: Job) -> None:
    job.send({0: [row(0)], 1: [row(0)]}, 1.0)
    job.work(2.0)
    job.send({0: [row(1)]}, 2.0)

    assert len(job.work(20.0).figures) == 0
    assert len(job.work(22.1).figures) == 1, "without it"
    job.send({0: [row(2)]}, 23.0)
    assert len(job.work(23.5).figures) == 1, "not waited for again"
    job.send({1: [row(3)]}, 24.0)
    assert len(job.work(24.5).figures) == 0, "it is back, and the other one is waited for"
    job.send({0: [row(3)]}, 24.6)
    assert len(job.work(25.0).figures) == 1
    assert [len(step.members) for step in job.closed] == [2, 1, 1, 2]


def test_a_rank_that_does_nothing_in_every_third_step_has_not_gone_and_the_others_are_judged() -> None:
    job, verdicts = Job(), list[Verdict]()
    for step in range(31):
        now_s = 10.0 + step
        there = range(3 if step % 3 else 4)
        took_ms = [300 if rank == 1 else 200 for rank in there]
        job.send({
            rank: [row(step, took_ms[rank], 1, now_s - 0.9), row(step, 300, 2, now_s - 0.5)] for rank in there
        }, now_s)  # fmt: skip
        verdicts += job.work(now_s + 0.4).verdicts
    job.work(50.0, at_once=True)

    assert {(verdict.kind, verdict.stage, verdict.rank) for verdict in verdicts} == {(COMPUTE, "actor_generate", 1)}
    assert job.controller.state(0).judged_steps == (21,)


def test_who_acts_in_every_tenth_step_is_in_it_and_no_news_in_the_others(job: Job) -> None:
    """Its host tells of it a second after the others, for which they wait then, and never for long."""
    closed_at: dict[int, float] = {}
    for step in range(41):
        for after_s in (0.0, 1.0, 2.5, 9.5):
            now_s = 100.0 + 10 * step + after_s
            if after_s == 0:
                job.send({rank: [row(step, at_s=now_s - 0.9)] for rank in range(3)}, now_s)
            elif after_s == 1 and step % 10 == 0:
                job.send({3: [row(step, at_s=now_s - 1.9)]}, now_s, "h1")
            job.work(now_s)
            closed_at.update({each.step: now_s for each in job.closed[len(closed_at) :]})

    there = {each.step: int(np.isfinite(each.total_s).any(axis=1).sum()) for each in job.closed}
    assert there == {step: 3 if step % 10 else 4 for step in range(41)}
    assert {len(each.members) for each in job.closed if each.step > 10} == {4}
    assert max(closed_at[step] - 100.0 - 10 * step for step in range(21, 41)) == 2.5


def test_of_who_acts_in_every_tenth_step_and_has_ended_nothing_is_left(job: Job) -> None:
    for step in range(31):
        job.send({rank: [row(step)] for rank in range(2 if step % 10 else 3)}, 10.0 + step)
        job.work(10.5 + step)
    job.send({0: [row(31)], 1: [row(31)], 2: []}, 41.0, ended=[2])
    job.work(42.0)

    assert [len(each.members) for each in job.closed[-2:]] == [3, 2]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_two_attempts_of_few_steps_are_two_where_nobody_judged_before_the_end(steps: int) -> None:
    closed = list[RoleStep]()
    job = Job(on_step=closed.append)
    for began_s, name in ((10.0, "first"), (90.0, "then")):
        for step in range(steps):
            now_s = began_s + step
            ended = {"ended": [0, 1]} if step == steps - 1 else {}
            job.send({rank: [row(step, at_s=now_s - 0.5)] for rank in range(2)}, now_s, name, **ended)
    job.work(200.0, at_once=True)

    assert [each.step for each in closed] == [*range(steps)] * 2
    assert [{peer.host for peer in each.members} for each in closed] == [{"first"}] * steps + [{"then"}] * steps
    assert job.controller.state(0).missed_rows == 0


def test_what_comes_after_its_step_was_closed_is_counted(job: Job) -> None:
    job.send({0: [row(0)], 1: [row(0)]}, 1.0)
    job.work(2.0)
    job.send({0: [row(1)]}, 2.0)
    job.work(22.1)
    before = job.controller.state(0).missed_rows
    job.send({1: [row(1), row(2)]}, 23.0)
    job.work(23.5)

    assert (before, job.controller.state(0).missed_rows) == (0, 1)


def test_nobody_waits_for_a_process_that_has_ended(job: Job) -> None:
    job.send({0: [row(0)], 1: [row(0)]}, 1.0)
    job.work(2.0)
    job.send({0: [row(1)], 1: []}, 3.0, ended=[1])

    assert len(job.work(3.5).figures) == 1


def test_roles_are_judged_apart_and_each_counts_its_own_steps(job: Job) -> None:
    """As in async RL: the rollouts are ahead of the trainer."""
    for step in range(3):
        job.send({0: [row(step + 40)], 1: [row(step + 40)]}, 1.0 + step, "h1", "rollout")
    job.send({0: [row(7, 30, 2)]}, 4.0, "h2", "trainer")
    job.work(5.0)

    assert {(step.role, step.step) for step in job.closed} == {
        ("rollout", 40), ("rollout", 41), ("rollout", 42), ("trainer", 7),
    }  # fmt: skip


def test_a_controller_is_in_the_step_and_never_waited_for(job: Job) -> None:
    job.send({0: [row(0)]}, 1.0)
    job.send({5: []}, 1.0, "h9", of_process={"waits": True})

    assert len(job.work(1.5).figures) == 1


def test_each_member_has_its_place_and_a_step_knows_which_of_its_stages_only_wait(job: Job) -> None:
    """A stage that waits in nobody of this step is not among them, nor what a controller beside them waits for."""
    waits = {STAGES[0]: "rollout", "elsewhere": ""}
    job.send({0: [row(0)]}, 1.0, of_process={"place": "pp0", "waits_for": waits})
    job.send({1: [row(0), row(0, stage=2)]}, 1.0, "h1", of_process={"place": "pp1"})
    job.send({5: [row(0, stage=2)]}, 1.0, "h9", of_process={"waits": True, "waits_for": {STAGES[1]: "workers"}})
    job.work(9.0, at_once=True)
    (step,) = job.closed

    assert [(peer.rank, peer.place) for peer in step.members] == [(0, "pp0"), (1, "pp1"), (5, "")]
    assert step.waits_for == {canonical_key(STAGES[0]): "rollout"}


def test_what_a_role_of_controllers_alone_waits_for_is_told(job: Job) -> None:
    job.send({5: [row(0)]}, 1.0, of_process={"waits": True, "waits_for": {STAGES[0]: "workers"}})
    job.work(9.0, at_once=True)

    assert [step.waits_for for step in job.closed] == [{canonical_key(STAGES[0]): "workers"}]


def test_helpers_of_a_rank_are_not_compared_with_ranks(job: Job) -> None:
    job.send({0: [row(0)]}, 1.0, of_process={"under": "dataloader"})

    assert len(job.work(9.0, at_once=True).figures) == 0
    assert job.controller.missed_rows == 1


def test_a_batch_that_comes_twice_or_in_another_order_counts_once(job: Job) -> None:
    """By Ray and through the run."""
    frames = []
    for number in range(4):
        head = {"run": RUN, "host": "h", "boot": "b", "sender": "s", "number": number, "ended": []}
        head["processes"] = [HandingProcess(0, "h-1-1", 0, stages=STAGES).as_json()]
        frames.append(decoded(batches.encode_batch(head, [(batches.STAGES, 0, row(number).pack())])))
    order = [0, 2, 1, 2, 3, 0, 1, 3]

    taken = [job.controller.take(frames[number], 1000.0) for number in order]

    assert taken == [True, True, True, False, True, False, False, False]


def test_hosts_share_one_clock_where_they_share_a_kernel_and_else_say_how_wrong_it_may_be(job: Job) -> None:
    job.send({0: [row(0, at_s=1.0)], 1: [row(0, at_s=1.5)]}, 2.0)
    job.send({0: [row(1)], 1: [row(1)]}, 3.0)
    job.send({2: [row(1)]}, 3.0, "h1")
    job.work(4.0)

    same, two = job.closed
    assert same.entered_s[1, 0] - same.entered_s[0, 0] == pytest.approx(0.5)
    assert (same.error_s == 0).all()
    assert (two.error_s >= WALL_ERROR_NS / 1e9).all()


@pytest.mark.parametrize("ended", [{}, {0: "h0"}, {0: "h0", 1: "h1"}])
def test_clocks_are_as_wrong_in_the_last_steps_of_processes_that_have_ended(job: Job, ended: dict[int, str]) -> None:
    for rank, host in ((0, "h0"), (1, "h1")):
        job.send({rank: [row(0)]}, 1.0, host)
    for rank, host in ended.items():
        job.send({rank: []}, 1.1, host, ended=[rank], goodbye=True)
    job.work(1.2, at_once=True)

    (step,) = job.closed
    assert (step.error_s >= WALL_ERROR_NS / 1e9).all()


def test_what_comes_of_a_process_after_its_end_is_nobody_elses(job: Job) -> None:
    """Its batch was held up, and its number here is another process's by then."""
    job.send({0: [row(0)], 1: [row(0)]}, 1.0)
    job.sent["h0"] = 1  # that one is on its way yet
    job.send({}, 1.1, ended=[1])
    job.send({2: [row(1, 33)]}, 1.2, "h1")
    job.sent["h0"] = 0
    job.send({0: [row(1)], 1: [row(1, 77)]}, 1.3, processes=[])
    job.work(2.0, at_once=True)

    _, second = job.closed
    assert [(peer.rank, took) for peer, took in zip(second.members, second.total_s[:, 0])] == [(0, 0.02), (2, 0.033)]
    assert job.controller.missed_rows == 1


def test_nobody_is_late_nor_waited_for_by_less_than_the_clocks_of_two_hosts_may_differ(job: Job) -> None:
    """Rank 1 seems to come 40 ms after rank 0."""
    job.send({0: [row(0, at_s=1.0)]}, 2.0)
    job.send({1: [row(0, at_s=1.04)]}, 2.0, "h1")
    (figures,) = job.work(3.0, at_once=True).figures

    assert (figures.wait_ratio, figures.late) == (0.0, ())


@pytest.mark.parametrize("judges", [True, False])
def test_whoever_listens_is_given_each_step_also_where_none_is_judged(
    monkeypatch: pytest.MonkeyPatch, judges: bool
) -> None:
    monkeypatch.setattr(module, "JobJudge", FakeJudge)
    heard, job = list[RoleStep](), Job()
    job.controller = Controller("run", on_step=heard.append, judges=judges)
    for host in ("h0", "h1"):
        job.send({int(host == "h1"): [row(0)]}, 1.0, host=host)
    job.work(2.0)

    assert [(step.step, (step.error_s > 0).all()) for step in heard] == [(0, True)]
    assert job.closed == (heard if judges else [])


def test_exchanges_with_who_judges_put_right_what_wall_clocks_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other host's CLOCK_MONOTONIC is 700 s ahead, its wall clock 30 ms behind; a way takes 50 us."""
    monkeypatch.setattr(module, "JobJudge", FakeJudge)
    job = Job(reference=("here", 1000 * S))
    ahead, way = 700 * S, 50_000
    stamps = [["here", at + ahead, at + way, at + way, at + ahead + 2 * way] for at in range(S, 2 * S, S // 10)]

    job.send({0: [row(0, at_s=1.0)]}, 2.0, boot="here")
    job.send({1: [row(0, at_s=701.0)]}, 702.0, "far", clock=[702 * S, 1002 * S - 30 * MS, 10], clocks=stamps)
    job.work(4.0, at_once=True)

    (step,) = job.closed
    assert step.entered_s[1, 0] - step.entered_s[0, 0] == pytest.approx(0, abs=60e-6)
    assert 0 < step.error_s.max() < 100e-6


def test_how_long_processes_wait_for_a_cpu_is_in_the_step(job: Job) -> None:
    job.send({0: [row(0)], 1: [row(0)]}, 1.0, cpu=[[0, S, S // 2, 0], [7, 1, 1, 1], "x", [], [0], {}])
    job.send({0: [row(1)], 1: [row(1)]}, 2.0, cpu=[[0, 2 * S, S, S // 4]])
    job.work(3.0)

    cpu = job.closed[-1].cpu
    assert cpu is not None
    np.testing.assert_allclose(cpu, [[0.5, 0.25], [np.nan, np.nan]])


def test_another_attempt_at_the_job_may_count_its_steps_from_the_beginning(job: Job) -> None:
    job.send({0: [row(30)]}, 1.0)
    job.work(2.0)
    job.send({0: []}, 3.0, ended=[0])
    job.send({0: [row(12, at_s=8.0)]}, 9.0, "h1")
    job.work(10.0)

    assert [step.step for step in job.closed] == [12], "by a judge of its own"


def test_what_one_host_hands_over_after_the_others_have_ended_is_no_other_attempt(job: Job) -> None:
    for step in range(30):
        job.send({0: [row(step, at_s=step)]}, step + 0.5)
        job.work(step + 0.9)
    job.send({0: []}, 31.0, ended=[0])
    job.send({1: [row(step, at_s=step) for step in range(30)]}, 40.0, "h1")
    job.work(41.0, at_once=True)

    assert [step.step for step in job.closed] == list(range(30))
    assert job.controller.state(0).missed_rows == 30


@pytest.mark.parametrize("first", [[0], [2, 6]])
def test_a_host_that_is_heard_of_after_a_step_was_closed_is_with_the_others_from_the_next_on(
    job: Job, first: list[int]
) -> None:
    """It begins the only stage a millisecond later each time, once it has caught up: that is no other attempt."""
    counted = [*first, *range(first[-1] + 1, 20)]
    begun = 20 - len(counted)
    for step in range(20):
        now_s = 10.0 + step
        job.send({0: [row(step, 500, at_s=now_s - 0.6)]}, now_s)
        job.work(now_s + 0.35)
        if step >= begun:
            number = counted[step - begun]
            own = row(number, 500, at_s=now_s - 0.599) if number == step else row(number, 20, at_s=now_s - 0.05)
            job.send({1: [own]}, now_s + 0.4, "h1")
        job.work(now_s + 0.8)

    assert [(step.step, len(step.members)) for step in job.closed] == [
        (step, 1 if step <= first[-1] else 2) for step in range(20)
    ]
    assert job.controller.state(0).missed_rows == len(first), "none is kept for another attempt"


def test_ranks_that_are_started_again_without_a_word_replace_those_before(job: Job) -> None:
    """Killed hosts say nothing."""
    job.send({0: [row(30)], 1: [row(30)]}, 1.0)
    job.work(2.0)
    job.send({0: [row(12, at_s=8.0)]}, 9.0, "h1")
    job.send({1: [row(12, at_s=8.0)]}, 9.1, "h2")
    job.work(10.0)
    job.send({0: [row(13, at_s=10.0)]}, 11.0, "h1")
    job.send({1: [row(13, at_s=10.0)]}, 11.0, "h2")
    job.work(12.0)

    assert [(step.step, len(step.members)) for step in job.closed] == [(12, 2), (13, 2)], "by a judge of their own"


def test_hosts_of_another_attempt_that_come_one_after_the_other_are_in_its_steps_together(job: Job) -> None:
    """Hosts pass on twice a second; the one that is told of first is not judged alone, nor its steps left out."""
    job.send({0: [row(30)]}, 1.0)
    job.send({1: [row(30)]}, 1.0, "h1")
    job.work(2.0)
    for step, host, rank in ((12, "h2", 0), (12, "h3", 1), (13, "h2", 0), (13, "h3", 1)):
        job.send({rank: [row(step, at_s=float(step))]}, 9.0 + step, host)
        job.work(9.4 + step)
    job.work(60.0)

    assert [(step.step, len(step.members)) for step in job.closed] == [(12, 2), (13, 2)]
    assert job.controller.state(0).missed_rows == 0


@pytest.mark.parametrize("back_to", [0, 40])
def test_steps_that_are_counted_from_an_earlier_one_on_are_judged_by_the_same_processes(job: Job, back_to: int) -> None:
    """A counter of each epoch's steps; a rollback to a checkpoint."""
    at_s, counted = 1.0, [*range(60), *range(back_to, 60)]
    for step in counted:
        at_s += 0.5
        job.send({rank: [row(step, at_s=at_s)] for rank in (0, 1)}, at_s + 0.1)
        job.work(at_s + 0.45)
    job.work(at_s + 9)

    assert [step.step for step in job.closed] == counted[60:], "those before by a judge of their own"
    assert {len(step.members) for step in job.closed} == {2}
    assert job.controller.state(0).missed_rows == 0


def test_rings_of_steps_before_a_rollback_that_come_after_it_close_nothing(job: Job) -> None:
    entries = b"".join(CollectiveEntry(7, number, int((number + 0.9) * S), 0, 1, 0, 1).pack() for number in range(60))
    counted = [*range(60), *range(20, 30)]
    for at, step in enumerate(counted):
        job.send({rank: [row(step, 500, at_s=at + 0.5)] for rank in (0, 1)}, at + 1.0)
        if at == 59:
            job.enter({0: entries, 1: entries}, at + 1.0)
        job.work(at + 1.4)

    assert [step.step for step in job.closed] == counted[60:]


def test_one_rank_that_counts_otherwise_holds_up_nobody_for_good(job: Job) -> None:
    for step in range(60):
        other = step if step < 40 else step - 40
        job.send({rank: [row(other if rank == 2 else step, at_s=step)] for rank in range(3)}, step + 0.1)
        job.work(step + 0.9)
    job.work(90.0, at_once=True)

    assert [step.step for step in job.closed] == list(range(60))
    assert {len(step.members) for step in job.closed[41:]} == {2}


def test_steps_that_overlap_are_not_counted_anew(job: Job) -> None:
    """Async RL: something of a step is done while later ones have begun."""
    for step in range(30):
        rows = [row(step, at_s=step)] + ([row(step - 8, stage=2, at_s=step + 0.2)] if step >= 8 else [])
        job.send({0: rows, 1: rows}, step + 0.5)
        job.work(step + 0.9)

    assert [step.step for step in job.closed] == list(range(len(job.closed)))
    assert len(job.closed) > 25


def test_rows_that_a_second_keeper_passes_on_again_are_no_other_count(job: Job) -> None:
    for step in range(40):
        job.send({0: [row(step, at_s=step)], 1: [row(step, at_s=step)]}, step + 0.5)
    again = [row(step, at_s=step) for step in range(41)]
    job.send({0: again, 1: again}, 41.0, sender="the next one")
    job.work(42.0)

    assert [step.step for step in job.closed] == list(range(41))


def test_members_whose_steps_end_far_apart_are_waited_for_as_long_as_steps_take(job: Job) -> None:
    """Generations of half an hour, of rollouts that wait for nobody: one is through 20 minutes after the other."""
    for step in range(8):
        begin_s = 1800.0 * step
        job.send({0: [row(step, at_s=begin_s)]}, begin_s + 600)
        job.work(begin_s + 601)
        job.work(begin_s + 1790)
        job.send({1: [row(step, at_s=begin_s)]}, begin_s + 1800)
        job.work(begin_s + 1801)

    assert [len(step.members) for step in job.closed][3:] == [2] * 5


def test_rows_that_say_nothing_here_are_counted_but_those_of_no_step_and_change_nothing(job: Job) -> None:
    """What a job does before its first step, or between two, is no loss to anybody."""
    job.send({0: [row(0), row(0, stage=9), row(None), row(0, stage=0)]}, 1.0)
    job.work(2.0)
    job.send({0: [row(0)]}, 3.0)
    job.work(4.0)

    assert len(job.closed) == 1
    assert job.controller.missed_rows == 2


def test_settings_hold_from_the_next_step_on_and_hosts_without_them_are_named(job: Job) -> None:
    job.send({0: [row(0)]}, 1.0, settings=0)
    job.send({1: [row(0)]}, 1.0, "h1", settings=4)
    job.controller.apply(LiveSettings(4, {"slow_rank.nonsense": 1.0}))

    hosts = job.controller.directory.hosts.values()
    assert [host.host for host in hosts if host.settings < 4] == ["h0"]
    assert job.controller.figures.settings == 4


def test_the_figures_are_of_the_step_that_was_judged_last(job: Job) -> None:
    job.send({0: [row(0, 20, tokens=1000)], 1: [row(0, 30, at_s=1.01, tokens=2000)], 2: [row(0, 22)]}, 2.0)
    job.work(3.0)
    values = job.controller.figures.values

    assert values["mstxkit/time_s/actor_generate/max"] == pytest.approx(0.030)
    assert values["mstxkit/time_s/actor_generate/median"] == pytest.approx(0.022)
    assert values["mstxkit/time_s/actor_generate/slowest_rank"] == 1
    assert values["mstxkit/tokens_per_s/actor_generate"] == pytest.approx(100_000)
    assert values["mstxkit/verdicts"] == 1
    assert 0 < values["mstxkit/wait_ratio"] < 1


@pytest.mark.parametrize(("late_ms", "late_rank"), [(80, None), (140, 1)])
def test_nobody_is_shown_as_late_by_less_than_the_clocks_of_two_hosts_may_differ(
    job: Job, late_ms: int, late_rank: int | None
) -> None:
    for rank, host, at_s in ((0, "h0", 1.0), (1, "h1", 1.0 + late_ms / 1000)):
        job.send({rank: [row(0, 300, at_s=at_s)]}, 2.0, host)
    (role,) = job.work(3.0).figures

    assert next((late.rank for late in role.late), None) == late_rank


def test_the_job_is_shown_with_a_role_too_many_to_be_judged(job: Job) -> None:
    for role, host in (("actor", "h0"), ("reward", "h1")):
        job.send({0: [row(0)], 1: [row(0)]}, 1.0, host, role)
    job.work(5.0, at_once=True)

    roles = job.controller.state(0).roles
    assert {role.role: role.judged_steps for role in roles} == {"actor": 7, "reward": 0}


def allocated_here() -> int:
    """Bytes that this package holds: threads that other tests have left may import what they like."""
    import tracemalloc

    ours = tracemalloc.Filter(True, f"{Path(module.__file__).parents[1]}/*")
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours]).traces)


def test_ten_thousand_steps_and_workers_that_come_and_go_leave_nothing_behind(job: Job) -> None:
    """Each is verdict-worthy."""
    import gc
    import tracemalloc

    chance = random.Random(soak.seed())
    steps = soak.rounds(10_000, 500)
    judge: Any = job.controller.judge
    for step in range(steps):
        host = f"h{step // 50}"  # workers leave, and others join
        rows = {rank: [row(step, chance.randrange(10, 40), stage) for stage in (1, 2)] for rank in range(4)}
        job.send(rows, float(step), host, ended=[0, 1, 2, 3] if step % 50 == 49 else [])
        job.work(step + 0.5)
        judge.closed.clear()
        if step == steps // 3:
            tracemalloc.start()
        if step == steps // 3 + 60:
            gc.collect()  # what Python keeps at hand for itself is nobody's
            before = allocated_here()
    gc.collect()
    grown = allocated_here() - before
    tracemalloc.stop()

    (book,) = job.controller._books.values()
    assert len(book._members) <= 16 and len(book._tables) <= 1
    hosts = (steps - steps // 3 - 60) / 50
    assert grown < 3000 * hosts + 15_000, "a host is remembered, and nothing of a step"


def test_of_a_host_that_was_held_up_every_step_is_judged_though_they_come_at_once(job: Job) -> None:
    """Short steps, more of them than are open at once."""
    job.send({rank: [row(step) for step in range(2000)] for rank in (0, 1)}, 3.1)
    job.work(4.0, at_once=True)

    assert [step.step for step in job.closed] == list(range(2000))


@pytest.mark.parametrize("is_told_of_again", [False, True], ids=["by its keeper", "by the next keeper"])
def test_of_a_restarted_job_all_ranks_are_waited_for_whenever_it_is_said_that_those_before_have_ended(
    job: Job, is_told_of_again: bool
) -> None:
    """What killed ranks left is sealed seconds after the job began anew: these have got the places of the dead."""
    job.send({0: [row(0)], 1: [row(0)]}, 1.0, host="a")
    job.work(30.0)
    job.send({0: [row(1, at_s=40)], 1: [row(1, at_s=40)]}, 41.0, host="b")
    if is_told_of_again:
        job.send({0: [], 1: [row(0)]}, 42.0, host="a")
    job.send({}, 43.0, host="a", ended=[0, 1])
    for step in (2, 3):
        for rank in (0, 1):  # the second is late
            job.send({rank: [row(step, at_s=40.0 + 10 * step)]}, 41.0 + 10 * step + 2 * rank, host="b")
            job.work(42.0 + 10 * step + 2 * rank)

    assert [[peer.process for peer in step.members] for step in job.closed[1:]] == [["b-0-1", "b-1-1"]] * 3
    assert job.controller.state(0).missed_rows == is_told_of_again, "what the dead one said in the end is nobody's"


def test_nothing_more_is_awaited_of_a_host_all_of_whose_ranks_were_started_again_on_others(job: Job) -> None:
    """As where a job is started again without a host that has failed."""
    awaited: list[str] = []
    for at_s, host, ranks in ((1.0, "a", (0, 1)), (1.0, "b", (2, 3)), (30.0, "c", (2,)), (30.1, "d", (3,))):
        job.send({rank: [row(0, at_s=at_s)] for rank in ranks}, at_s, host=host)
        awaited.append("".join(job.controller.hosts()))
    job.work(40.0)
    state = job.controller.state(0)

    assert awaited == ["a", "ab", "abc", "acd"]
    assert (state.hosts, state.ended) == (4, 1)


@pytest.mark.parametrize("steps", [range(0, 4000, 7), range(4000, 0, -7)])
def test_hostile_steps_open_no_more_tables_than_a_few(job: Job, steps: range) -> None:
    for step in steps:
        job.send({0: [row(step)], 1: [row(step * 1000 % 4_000_000_000)]}, 1.0)
        job.work(1.0)
    (book,) = job.controller._books.values()

    assert len(book._tables) <= OPEN_AT_MOST + 1
    assert not book._waiting


def test_no_bytes_of_a_batch_can_make_it_fail(job: Job) -> None:
    chance = random.Random(soak.seed())
    for number in range(soak.rounds(5000, 300)):
        head = {
            "run": RUN, "host": "h", "sender": "s", "number": number, "clock": chance.choice([None, [1], [1, 2, "x"]]),
            "processes": chance.choice([7, [{}], [{"number": 1, "name": "x", "stages": [{}, 1, "a"], "rank": -4}]]),
            "ended": chance.choice([[5], "x", [None], [1]]), "settings": chance.choice(["x", -1, 3]),
        }  # fmt: skip
        rows = bytes(chance.randrange(256) for _ in range(40 * chance.randrange(4)))
        job.controller.take(decoded(batches.encode_batch(head, [(batches.STAGES, chance.randrange(3), rows)])), 1000.0)
        job.controller.work(1000.0 + number, at_once=chance.random() < 0.1)

    assert job.controller.directory.hosts["h"].seen_s == 1000.0
