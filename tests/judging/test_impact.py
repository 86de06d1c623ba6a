"""What a verdict says that the step loses is by how much shorter the step would be without what it blames."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from builders import soak  # noqa: E402
from builders.judged import acting_in_every, alone, judged  # noqa: E402
from builders.simulated_job import SimulatedJob  # noqa: E402

from benchmarks import detection  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape, lost_ratio  # noqa: E402

pytestmark = pytest.mark.days("even")

SINCE, UNTIL = 30, 110


def said_and_true(
    fault: InjectedFault, shape: JobShape, seed: int = 2, role: str = "actor"
) -> tuple[dict[str, float], float]:
    """Kind to impact of the verdicts that stand after some steps with a fault; what the fault cost of the last ones."""
    job, judge = SimulatedJob(shape, seed, [fault]), JobJudge()
    judged(job, UNTIL, judge)
    truths = [truth for truth in job.truths(UNTIL) if truth.step >= UNTIL - 40 and truth.role == role]
    return {verdict.kind: verdict.impact_ratio for verdict in judge.standing()}, lost_ratio(truths)


FAULTS = [
    ("before", "actor_generate", 3.0, "compute"), ("inside", "actor_update", 4.0, "compute"),
    ("inside", "actor_update", 1.5, "compute"), ("behind", "actor_update", 2.0, "compute"),
    ("input", "load_batch", 2.0, "input"), ("gap", "load_batch", 2.0, "compute"),
    ("link", "actor_update", 6.0, "link"), ("all", "actor_update", 2.0, "all_slow"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "stage", "factor", "named", "ranks"),
    soak.sample([(*fault, ranks) for fault in FAULTS for ranks in (2, 8)], 4),
)
def test_the_impact_is_what_the_fault_costs(kind: str, stage: str, factor: float, named: str, ranks: int) -> None:
    fault = InjectedFault(kind, stage, rank=1, factor=factor, since=SINCE)
    said, true = said_and_true(fault, JobShape(ranks=ranks, mismatch=0.3, step_s=2.0))

    assert said[named if ranks == 2 or named != "link" else "communication"] == pytest.approx(true, abs=0.05)


def test_stalls_cost_what_others_wait_for_them() -> None:
    fault = InjectedFault("jitter", "reward", rank=1, factor=1.5, since=SINCE)
    job = SimulatedJob(JobShape(ranks=2, mismatch=0.3, step_s=2.0), 1, [fault])
    first = next(verdict for verdict in judged(job, UNTIL) if verdict.kind == "jitter")
    seen = [truth for truth in job.truths(UNTIL) if first.step - 60 < truth.step <= first.step]

    assert first.impact_ratio == pytest.approx(lost_ratio(seen), abs=0.02)


def test_of_groups_that_never_meet_the_slow_one_pays_itself() -> None:
    fault = InjectedFault("inside", "actor_update", rank=1, factor=3.0, since=SINCE)
    said, true = said_and_true(fault, JobShape(ranks=8, group_ranks=4, step_s=2.0))

    assert said["compute"] == pytest.approx(true, abs=0.05)


@pytest.mark.parametrize(("kind", "named", "share"), [("before", "compute", 1 / 8), ("all", "all_slow", 1.0)])
def test_of_rollouts_that_wait_for_nobody_the_role_loses_the_share_of_the_slow_one(
    kind: str, named: str, share: float
) -> None:
    fault = InjectedFault(kind, "actor_generate", rank=17, factor=2.0, since=SINCE)
    said, true = said_and_true(fault, JobShape(is_async=True, mismatch=0.3, step_s=2.0), role="rollout")

    assert said[named] == pytest.approx(true, abs=0.02)
    assert true == pytest.approx(share / (1 + share), abs=0.03)


@pytest.mark.parametrize("every", [1, 3, 10])
def test_a_rank_that_does_nothing_in_most_steps_changes_nothing_of_what_they_lose(every: int) -> None:
    judge = JobJudge()
    for step in acting_in_every(every, 5, alone(100, slow=(1, 2.0, 20))):
        judge.close(step)

    assert [(verdict.rank, verdict.impact_ratio) for verdict in judge.standing()] == [
        (1, pytest.approx(0.33, abs=0.05))
    ]


def test_where_another_rank_is_nearly_as_late_little_is_lost() -> None:
    """Rank 1 takes twice as long, rank 2 has so much work that it is later still: nobody waits for rank 1."""
    steps = alone(80, slow=(1, 2.0, 20), work=(2, 3.0, 0))
    judge = JobJudge()
    lines = [verdict for step in steps for verdict in judge.close(step).verdicts]
    impact = {verdict.rank: verdict.impact_ratio for verdict in lines}

    assert impact[1] < 0.05
    assert impact[2] > 0.1


@pytest.mark.parametrize("factor", [5.0, 50.0, 1e4])
def test_however_slow_a_rank_is_no_more_is_lost_than_there_is(factor: float) -> None:
    """Of each step half a second is spent together, and about one in generation."""
    judge = JobJudge()
    lines = [verdict for step in alone(50, ranks=2, slow=(1, factor, 20)) for verdict in judge.close(step).verdicts]

    assert lines[-1].impact_ratio == pytest.approx((factor - 1) / (factor + 0.5), abs=0.1)
    assert lines[-1].impact_ratio <= 1


def test_the_first_line_is_as_true_as_the_last() -> None:
    fault = InjectedFault("inside", "actor_update", rank=1, factor=4.0, since=SINCE)
    lines = judged(SimulatedJob(JobShape(ranks=2, step_s=2.0), 3, [fault]), 70)

    assert lines[0].impact_ratio == pytest.approx(lines[-1].impact_ratio, abs=0.05)


@pytest.mark.parametrize(
    ("shape", "fault", "seed"),
    [
        ("grid", "place", 0),  # a collective of members that are all slow: nobody in it is quicker
        ("nested", "intermittent", 1),  # slow before and behind what the stage is around
        ("barriers", "intermittent", 0),  # in three of ten steps, of which the mean was taken away in each
        ("pipeline", "link", 0),  # in three stages
        ("one_step_off", "rank", 9000),  # most of its steps have no rings
        ("queue", "intermittent", 9001),  # of eight steps that are gone through together it is slow in some
        ("pipeline_interleaved", "rank", 9004),  # sends that are taken long after
    ],
)  # fmt: skip
def test_in_each_shape_of_a_job_it_is_what_a_second_run_without_the_fault_takes_less(
    shape: str, fault: str, seed: int
) -> None:
    """5 to 25 % of a step less were said."""
    outcome = detection.judged(detection.case(shape, fault, seed))

    assert outcome.off is not None and outcome.off < 0.02
