"""The judge names who made the others wait, in which stage and why; and nobody where it cannot know."""

from __future__ import annotations

import gc
import random
import tracemalloc
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from builders import soak  # noqa: E402
from builders.judged import acting_in_every, alone, collectives, judged, peers, role_step  # noqa: E402
from builders.simulated_job import SimulatedJob  # noqa: E402

from mstxkit.judging.evidence import Peer, RoleStep, Work  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.judging.settings import change_setting, default_settings  # noqa: E402
from mstxkit.store.verdicts import Verdict  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape  # noqa: E402

pytestmark = pytest.mark.days("even")


def lines(steps: list[RoleStep], judge: JobJudge | None = None) -> list[Verdict]:
    judge = judge or JobJudge()
    return [verdict for step in steps for verdict in judge.close(step).verdicts]


def causes(verdicts: list[Verdict]) -> set[tuple[str, Any, Any]]:
    return {(verdict.kind, verdict.stage, verdict.rank) for verdict in verdicts if verdict.is_blaming}


def of_fault(kind: str, stage: str, steps: int = 60, seed: int = 3, factor: float = 1.5, **shape: Any) -> list[Verdict]:
    fault = InjectedFault(kind, stage, rank=3, factor=factor, since=30)
    return judged(SimulatedJob(JobShape(ranks=8, **shape), seed, [fault]), steps)


@pytest.mark.parametrize("kind", ["before", "inside", "behind", "input", "gap"])
def test_a_slow_rank_is_named_with_its_stage_wherever_it_is_slow(kind: str) -> None:
    stage = {"before": "actor_generate", "input": "load_batch", "gap": "load_batch"}.get(kind, "actor_update")
    verdicts = of_fault(kind, stage)

    assert causes(verdicts) == {("input" if kind == "input" else "compute", stage, 3)}
    assert verdicts[0].since_step in range(27, 36)


def test_rings_that_come_after_their_steps_withdraw_nothing_that_they_do_not_tell_of() -> None:
    """As at the end of a job, when the last dump of all rings is read."""
    fault = InjectedFault("before", "actor_generate", rank=3, factor=1.5, since=30)
    steps, judge = list(SimulatedJob(JobShape(ranks=8), 3, [fault]).steps(120)), JobJudge()
    before = lines([step._replace(collectives=None) for step in steps], judge)
    late = lines([step for step in steps if step.collectives is not None], judge)

    assert len([step for step in steps if step.collectives is not None]) > 60
    assert ("compute", "actor_generate", 3) in causes(before)
    assert [verdict for verdict in late if verdict.withdrawn and verdict.stage == "actor_generate"] == []


def test_what_shows_in_a_stage_gives_way_to_what_rings_show_inside_of_it() -> None:
    """Rank 1 leaves 6 ms after the others; and between collectives, of which nothing told before, it takes 60 ms more.

    The latter was "also" what the former says, of the same rank and stage: 5 % of each step were lost by it, not 60 %.
    """
    chance, judge, began = random.Random(1), JobJudge(), 0.0
    for number in range(120):
        entered = [began + chance.uniform(0, 2e-4) for _ in range(4)]
        ready = [at + (0.08 if rank == 1 else 0.02) * (1 + chance.gauss(0, 0.02)) for rank, at in enumerate(entered)]
        over = max(ready) + 1e-3
        left = [over + (0.026 if rank == 1 else 0.02) * (1 + chance.gauss(0, 0.01)) for rank in range(4)]
        step = role_step(number, ["actor_update"], [[at] for at in entered], [[at] for at in left])
        met = collectives([(rank, 0, number, ready[rank], over, 0) for rank in range(4)])
        judge.close(step if number < 60 else step._replace(collectives=met))
        if number == 59:
            assert [verdict.evidence["where"] for verdict in judge.standing()] == ["in"]
        began = max(left) + 1e-3

    (verdict,) = judge.standing()
    assert (verdict.rank, verdict.stage, verdict.evidence["where"]) == (1, "actor_update", "inside")
    assert verdict.impact_ratio == pytest.approx(60 / 109, abs=0.06)


def test_who_waits_is_listed_as_waiting_for_whom() -> None:
    verdict = of_fault("before", "actor_generate")[-1]

    assert verdict.waits_for == "ranks 0-2,4-7 wait for rank 3 in actor_compute_log_prob"
    assert "mstxkit escalate RUN --stage actor_generate --ranks 3," in verdict.next
    assert 0 < verdict.impact_ratio < 0.4


def test_what_is_lost_before_a_stage_is_looked_for_there_and_not_in_the_stage() -> None:
    verdict = of_fault("gap", "load_batch")[-1]

    assert verdict.evidence["where"] in ("before", "behind_gap")
    assert verdict.next.startswith("the time is lost before load_batch, in no stage: mstxkit escalate RUN --stage all ")


def test_a_controller_that_dispatches_the_stages_changes_nothing() -> None:
    assert causes(of_fault("before", "actor_generate", is_dispatched=True)) == {("compute", "actor_generate", 3)}


def test_a_slow_link_names_its_group_and_no_rank() -> None:
    verdicts = of_fault("link", "actor_update", factor=4.0, group_ranks=4)

    assert causes(verdicts) == {("link", "actor_update", None)}
    assert verdicts[0].group == (0, 1, 2, 3)


def test_what_has_become_slower_for_all_blames_nobody() -> None:
    assert causes(of_fault("all", "actor_update")) == {("all_slow", "actor_update", None)}


def test_without_rings_what_a_barrier_hides_is_not_guessed_and_the_switch_is_named() -> None:
    verdicts = of_fault("inside", "actor_update", factor=2.0, has_rings=False)

    assert causes(verdicts) == set()
    assert {(verdict.kind, verdict.stage) for verdict in verdicts} == {("not_enough_evidence", "actor_update")}
    assert "capture(rings=True)" in verdicts[0].next


def test_rings_are_asked_for_when_nobody_stands_out_and_then_one_light_step() -> None:
    fault = InjectedFault("inside", "actor_update", rank=3, factor=2.0, since=30)
    judge, job, wants = JobJudge(), SimulatedJob(JobShape(ranks=8, has_rings=False), 3, [fault]), []
    for step in job.steps(80):
        wants += judge.close(step).wants

    assert (wants[0].kind, wants[0].role, wants[0].stage) == ("rings", "actor", "actor_update")
    assert wants[-1].kind == "light"


BUILDS_UP = InjectedFault("inside", "actor_update", rank=3, factor=1.08, since=0)


def test_a_rank_that_builds_up_over_windows_of_rings_is_asked_for_between_them_and_named() -> None:
    """It was late from the start: no stage has become slower, rings alone tell of it."""
    judge, job = JobJudge(), SimulatedJob(JobShape(ranks=8, step_s=2.0), 3, [BUILDS_UP])
    verdicts, asked_without_rings = list[Verdict](), list[int]()
    for step in job.steps(60):
        done = judge.close(step)
        job.grant(done.wants)
        verdicts += done.verdicts
        asked_without_rings += [step.step for want in done.wants if want.kind == "rings" and step.collectives is None]

    assert asked_without_rings
    assert causes(verdicts) == {("compute", "actor_update", 3)}


def test_rings_that_come_late_and_show_that_somebody_builds_up_have_more_of_them_asked_for() -> None:
    judge, steps = JobJudge(), list(SimulatedJob(JobShape(ranks=8, step_s=2.0), 3, [BUILDS_UP]).steps(22))
    rings, silent = [step for step in steps if step.collectives is not None], {step.step: step for step in steps}
    closed = [judge.close(step._replace(collectives=None)) for step in list(silent.values())[:-1]]
    lines(rings, judge)
    (want,) = judge.close(steps[-1]).wants

    assert [done.wants for done in closed if done.wants] == []
    assert (want.kind, want.stage) == ("rings", "actor_update")


def test_a_rank_that_has_recovered_is_not_asked_for_any_more() -> None:
    """After rings have shown that it has."""
    fault = InjectedFault("inside", "actor_update", rank=3, factor=1.08, since=0, until=22)
    judge, job, asked = JobJudge(), SimulatedJob(JobShape(ranks=8, step_s=2.0), 3, [fault]), list[int]()
    for step in job.steps(110):
        wants = judge.close(step).wants
        job.grant(wants)
        asked += [step.step for want in wants]

    assert asked
    assert max(asked) < 80


def test_the_less_a_rank_costs_inside_a_barrier_the_more_evidence_is_needed_to_name_it() -> None:
    def named_in(below: str) -> int:
        judge = JobJudge(change_setting(default_settings(), "late_rank.doubt", below))
        job = SimulatedJob(JobShape(ranks=8), 3, [replace(BUILDS_UP, since=30)])
        return next(verdict.step for verdict in judged(job, 90, judge) if verdict.rank == 3)

    assert named_in("0") < named_in("0.2")


@pytest.mark.parametrize("kind", ["more_work", "slow_sample"])
def test_more_work_is_never_called_a_slow_machine(kind: str) -> None:
    fault = InjectedFault(kind, "", rank=3, factor=2.0, since=30)
    verdicts = judged(SimulatedJob(JobShape(ranks=8, mismatch=0.3), 4, [fault]), 100)

    assert not {verdict.kind for verdict in verdicts} - {"imbalance"}
    assert {verdict.rank for verdict in verdicts} <= {3}


def test_one_rank_with_more_work_step_after_step_is_an_imbalance() -> None:
    verdicts = lines(alone(70, work=(2, 2.5, 20)))

    assert causes(verdicts) == {("imbalance", "actor_generate", 2)}


def test_a_clock_that_is_wrong_within_its_bound_makes_nobody_late() -> None:
    fault = InjectedFault("clock", "", rank=3, factor=0.09, since=30)

    assert judged(SimulatedJob(JobShape(ranks=8, error_s=0.1, step_s=2.0), 5, [fault]), 80) == []


@pytest.mark.parametrize("of", ["all ranks", "one host's clock"])
def test_a_pause_of_the_whole_job_and_a_clock_that_is_set_are_no_slowness(of: str) -> None:
    """An hour in which nothing went on, or by which the wall clock of half of the ranks was put right."""
    steps = list(SimulatedJob(JobShape(ranks=16, step_s=10, error_s=0.05, has_rings=False), 5).steps(90))
    moved = np.where((np.arange(16) >= 8) | (of == "all ranks"), 3600.0, 0.0)[:, None]
    later = [step._replace(entered_s=step.entered_s + moved, left_s=step.left_s + moved) for step in steps[50:]]

    assert lines([*steps[:50], *later]) == []


def test_a_checkpoint_that_nobody_has_marked_is_no_slowness() -> None:
    """Every 50 steps all of it take twenty times as long, before the next one."""
    steps = list(SimulatedJob(JobShape(ranks=16, step_s=10, has_rings=False), 5).steps(220))
    moved = [200.0 * (step.step // 50) for step in steps]

    assert lines([
        step._replace(entered_s=step.entered_s + by, left_s=step.left_s + by) for step, by in zip(steps, moved)
    ]) == []  # fmt: skip


@pytest.mark.parametrize("has_late_rings", [False, True])
def test_who_counts_its_steps_one_off_is_known_though_rings_of_steps_before_come_late(has_late_rings: bool) -> None:
    """Rank 2 is done with each step when the others are done with the one before."""
    judge = JobJudge()
    for number in range(40):
        begun = [[number + (0.0 if rank != 2 else -1.0)] for rank in range(4)]
        step = role_step(number, ["actor_update"], begun, [[at + 0.99] for (at,) in begun])
        judge.close(step)
        if has_late_rings:
            met = [(rank, 0, number, at + 0.5, at + 0.9, 0) for rank, (at,) in enumerate(begun)]
            judge.close(step._replace(collectives=collectives(met)))

    assert [*judge.counts.off["actor"].values()] == ["rank 2"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_healthy_job_gets_no_verdict(is_async: bool) -> None:
    assert judged(SimulatedJob(JobShape(ranks=8, is_async=is_async, mismatch=0.5), 11), 120) == []


def test_rollouts_of_async_training_are_judged_by_themselves_and_idleness_is_not_slowness() -> None:
    fault = InjectedFault("before", "actor_generate", rank=9, factor=1.5, since=30)
    verdicts = judged(SimulatedJob(JobShape(ranks=4, rollouts=8, is_async=True), 6, [fault]), 60)

    assert causes(verdicts) == {("compute", "actor_generate", 9)}
    assert {verdict.role for verdict in verdicts} == {"rollout"}


def test_a_verdict_is_withdrawn_when_its_evidence_is_gone() -> None:
    fault = InjectedFault("before", "actor_generate", rank=3, factor=1.5, since=30, until=50)
    judge = JobJudge()
    verdicts = judged(SimulatedJob(JobShape(ranks=8), 3, [fault]), 80, judge)

    assert verdicts[-1].withdrawn
    assert {verdict.id for verdict in verdicts} == {verdicts[0].id}
    assert judge.standing() == []


def test_what_is_lost_before_the_first_stage_is_seen_where_steps_are_counted_by_tens_too() -> None:
    fault = InjectedFault("gap", "load_batch", rank=3, factor=1.5, since=30)
    steps = SimulatedJob(JobShape(ranks=8, step_s=10, has_rings=False), 7, [fault]).steps(70)

    assert causes(lines([step._replace(step=10 * step.step) for step in steps])) == {("compute", "load_batch", 3)}


@pytest.mark.parametrize(
    ("fault", "shape"),
    [
        (InjectedFault("jitter", "reward", rank=1, factor=1.5, since=30), JobShape(ranks=2, mismatch=0.3, step_s=2.0)),
        (InjectedFault("all", "actor_update", factor=2.0, since=30), JobShape(ranks=4, step_s=2.0)),
        (InjectedFault("before", "actor_generate", rank=1, factor=1.5, since=30), JobShape(ranks=4, step_s=2.0)),
    ],
)
def test_what_steps_show_is_the_same_where_they_are_counted_by_tens(fault: InjectedFault, shape: JobShape) -> None:
    """Since when it is true, and whether rings have shown that nobody is late inside, too."""
    said = {}
    for by in (1, 10):
        job, judge, verdicts = SimulatedJob(shape, 1, [fault]), JobJudge(), list[Verdict]()
        for step in job.steps(100):
            done = judge.close(step._replace(step=by * step.step))
            job.grant([want._replace(since_step=step.step - 4, until_step=step.step + 2) for want in done.wants])
            verdicts += done.verdicts
        said[by] = [(v.kind, v.stage, v.rank, (v.since_step or 0) // by, (v.step or 0) // by) for v in verdicts]

    assert said[1] and said[1] == said[10]


def test_of_two_causes_each_says_what_it_costs_alone_and_beside_the_other() -> None:
    """While all wait for rank 1, nothing is won if rank 2 alone is mended; once rank 1 is, rank 2 costs what it did."""
    judge = JobJudge()
    said = lines(alone(90, slow=(2, 1.3, 10), also_slow=(1, 3.0, 40)), judge)
    first, second = sorted(judge.standing(), key=lambda verdict: -verdict.impact_ratio)
    before = [verdict.impact_ratio for verdict in said if verdict.step < 40][-1]

    assert {verdict.rank for verdict in said if verdict.step < 40} == {2}
    assert (first.rank, second.rank) == (1, 2)
    assert second.impact_ratio < before / 4
    assert second.evidence["beside_ratio"] > second.impact_ratio
    assert first.evidence["together_ratio"] > first.impact_ratio


def test_a_slow_rank_for_which_nobody_waits_is_not_blamed() -> None:
    """Rank 1 has twice the work and is always last, so that nothing would be won if rank 0 were as fast as the rest."""
    said = lines(alone(60, seed=3, slow=(0, 1.15, 30), work=(1, 2.2, 0)))

    assert causes(said) == {("imbalance", "actor_generate", 1)}


def test_of_two_ranks_that_are_as_slow_one_is_named_though_the_other_hides_what_it_costs() -> None:
    said = lines(alone(60, slow=(0, 1.3, 30), also_slow=(1, 1.3, 30)))

    assert {verdict.kind for verdict in said if verdict.is_blaming} == {"compute"}


def test_the_slow_one_of_two_ranks_is_named() -> None:
    assert causes(lines(alone(60, ranks=2, slow=(1, 1.5, 20)))) == {("compute", "actor_generate", 1)}


@pytest.mark.parametrize("seed", range(3))
def test_the_slow_one_of_two_ranks_is_named_alone_where_a_third_acts_in_every_third_step(seed: int) -> None:
    steps = map(beside_the_quicker, alone(90, ranks=2, seed=seed, slow=(1, 1.3, 30)))

    said = lines(list(acting_in_every(3, 2, steps)))

    assert {(verdict.kind, verdict.rank) for verdict in said} == {("compute", 1)}


def beside_the_quicker(step: RoleStep) -> RoleStep:
    """A third rank is as quick as the quicker one."""
    rows = [0, 1, int(np.argmin(step.total_s[:, 0]))]
    names = ("entered_s", "left_s", "total_s", "occurrences", "error_s")
    arrays = {name: getattr(step, name)[rows] for name in names}
    return step._replace(members=peers(3), work=Work(*(part[rows] for part in step.work)), **arrays)


def test_nothing_is_judged_while_a_role_warms_up() -> None:
    judge = JobJudge(change_setting(default_settings(), "gates.warm_up", "50"))

    assert lines(alone(50, slow=(1, 2.0, 0)), judge) == []


def test_a_rank_that_was_slow_from_the_start_is_named_too() -> None:
    assert causes(lines(alone(40, slow=(1, 1.5, 0)))) == {("compute", "actor_generate", 1)}


def test_controllers_are_not_compared() -> None:
    steps = alone(50, slow=(5, 9.0, 0))
    members = tuple(peer._replace(is_controller=peer.rank == 5) for peer in steps[0].members)

    assert lines([step._replace(members=members) for step in steps]) == []


@pytest.mark.parametrize("stage", ["save_checkpoint", "evaluate"])
def test_steps_with_a_checkpoint_or_an_evaluation_are_left_out(stage: str) -> None:
    """Each fifteenth step has one, and rank 1 is ten times slower in it."""
    steps = alone(60, slow=(1, 10.0, 0))
    calm = alone(60)
    mixed = [
        step._replace(stages=("actor_generate", stage)) if number % 15 == 14 else quiet
        for number, (step, quiet) in enumerate(zip(steps, calm))
    ]

    assert lines(mixed) == []


def test_after_members_have_come_or_gone_nothing_is_judged_for_a_while_and_then_again() -> None:
    steps = alone(60, slow=(1, 1.5, 30))
    fewer = [
        step if step.step < 30 else role_step(
            step.step, step.stages, step.entered_s[:-1], step.left_s[:-1], step.work.tokens[:-1],
        )
        for step in steps
    ]  # fmt: skip
    verdicts = lines(fewer)

    assert causes(verdicts) == {("compute", "actor_generate", 1)}
    assert verdicts[0].step >= 35  # type: ignore[operator]


def test_the_order_of_the_ranks_changes_nothing() -> None:
    steps = alone(45, slow=(1, 1.4, 20))
    order = list(range(6))
    random.Random(4).shuffle(order)
    other = [
        role_step(
            step.step, step.stages, step.entered_s[order], step.left_s[order], step.work.tokens[order],
            members=tuple(step.members[place] for place in order),
        )
        for step in steps
    ]  # fmt: skip

    assert [(v.rank, v.stage, v.step, v.since_step) for v in lines(steps)] == [
        (v.rank, v.stage, v.step, v.since_step) for v in lines(other)
    ]


def test_what_all_clocks_say_changes_nothing() -> None:
    steps = alone(45, slow=(1, 1.4, 20))
    later = [step._replace(entered_s=step.entered_s + 4096.0, left_s=step.left_s + 4096.0) for step in steps]

    assert [(v.rank, v.stage, v.step) for v in lines(steps)] == [(v.rank, v.stage, v.step) for v in lines(later)]


def test_the_same_steps_give_the_same_lines() -> None:
    assert lines(alone(45, slow=(1, 1.4, 20))) == lines(alone(45, slow=(1, 1.4, 20)))


def test_who_takes_over_goes_on_with_the_verdicts_that_stand() -> None:
    steps = alone(60, slow=(1, 1.5, 20))
    first = JobJudge()
    lines(steps[:40], first)
    second = JobJudge(standing=first.standing())

    assert {verdict.id for verdict in lines(steps[40:], second)} == {verdict.id for verdict in first.standing()}


def test_what_an_earlier_judge_has_left_is_withdrawn_when_it_is_not_seen_for_long() -> None:
    left = Verdict("ab", 1, 9, "compute", "actor_generate", 1, "actor")
    judge = JobJudge(standing=[left])
    (withdrawn,) = lines(alone(160), judge)

    assert (withdrawn.id, bool(withdrawn.withdrawn)) == ("ab", True)
    assert judge.standing() == []


def test_thousands_of_steps_with_verdicts_leave_no_more_behind_than_hundreds() -> None:
    """Every rank is slow in its turn: what is remembered is of the size of the job."""
    judge, turns = JobJudge(), soak.rounds(200, 4)

    def turn(number: int) -> int:
        steps = alone(50, slow=(number % 6, 2.0, 0), seed=number % 7)
        return len(lines([step._replace(step=step.step + 50 * number) for step in steps], judge))

    for number in range(7):
        turn(number)
    tracemalloc.start()
    try:
        turn(7)
        gc.collect()  # what nobody holds is not remembered
        before, said = tracemalloc.get_traced_memory()[0], sum(turn(8 + number) for number in range(turns))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert said >= turns
    assert grown < 300_000


def test_names_of_stages_are_quoted_in_commands() -> None:
    stages = ("$(reboot)", "actor_update")
    verdicts = lines([step._replace(stages=stages) for step in alone(45, slow=(1, 1.5, 20))])

    assert "--stage '$(reboot)'" in verdicts[0].next


def test_empty_and_broken_steps_are_harmless() -> None:
    judge, nan = JobJudge(), float("nan")
    steps = [
        role_step(0, (), np.zeros((2, 0)), np.zeros((2, 0))), role_step(1, ("a",), [[nan]], [[nan]]),
        role_step(2, ("a",), np.zeros((0, 1)), np.zeros((0, 1))), role_step(3, ("a",), [[1.0]], [[0.5]]),
        role_step(4, ("a", "b"), [[1.0, nan], [nan, 1.0]], [[2.0, nan], [nan, nan]]),
        role_step(5, ("a",), [[1.0], [1.0]], [[1.0], [1.0]], members=(Peer(None), Peer(None, is_controller=True))),
        role_step(4, ("a",), [[1.0]], [[2.0]], collectives=collectives([(0, 0, 0, 1.0, 1.0, 0)])),
    ]  # fmt: skip

    assert lines(steps * 3, judge) == []


@pytest.mark.parametrize(("kind", "ranks"), soak.sample([*product(["before", "inside"], [2, 8])], 2))
def test_when_a_slow_rank_has_recovered_nobody_is_said_to_be_slow(kind: str, ranks: int) -> None:
    """Not all of them either: what its stage took meanwhile is explained."""
    stage = {"before": "actor_generate"}.get(kind, "actor_update")
    fault, judge = InjectedFault(kind, stage, rank=1, factor=3.0, since=30, until=90), JobJudge()
    judged(SimulatedJob(JobShape(ranks=ranks), 3, [fault]), 170, judge)

    assert judge.standing() == []


def test_a_verdict_says_since_which_step_it_is_true_and_not_since_some_noise_before_it() -> None:
    verdicts = [of_fault("before", "actor_generate", seed=seed, factor=2.0)[0] for seed in range(6)]

    assert {verdict.since_step for verdict in verdicts} <= {29, 30, 31}


def test_stalls_now_and_then_are_jitter_and_name_no_rank_that_is_not_alone_with_them() -> None:
    fault = InjectedFault("jitter", "reward", rank=1, factor=1.5, since=30)
    verdicts = judged(SimulatedJob(JobShape(ranks=2, mismatch=0.3, step_s=2.0), 1, [fault]), 110)

    assert causes(verdicts) == {("jitter", "reward", None)}
