"""A simulated job: what it hands over, and what its faults do."""

from __future__ import annotations

import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

from builders.simulated_job import SimulatedJob  # noqa: E402

from mstxkit.judging.evidence import RoleStep  # noqa: E402
from mstxkit.judging.judged import Want  # noqa: E402
from mstxkit.testing.simulator import FAULTS, InjectedFault, JobShape, lost_ratio  # noqa: E402


def first_of_each(job: SimulatedJob, count: int) -> list[RoleStep]:
    """Each step once."""
    seen: set[tuple[str, int]] = set()
    return [
        step
        for step in job.steps(count)
        if (step.role, step.step) not in seen and not seen.add((step.role, step.step))  # type: ignore[func-returns-value]
    ]


def took(step: RoleStep, stage: str) -> list[float]:
    return step.total_s[:, step.stages.index(stage)].tolist()  # type: ignore[no-any-return]


def test_the_same_seed_gives_the_same_steps_and_another_others() -> None:
    one, other, third = (list(SimulatedJob(JobShape(ranks=4), seed).steps(3)) for seed in (1, 1, 2))

    assert all((a.entered_s == b.entered_s).all() and (a.left_s == b.left_s).all() for a, b in zip(one, other))
    assert (one[0].left_s != third[0].left_s).any()


def test_a_step_has_no_negative_times_and_goes_on_where_the_last_ended() -> None:
    first, second = SimulatedJob(JobShape(ranks=4, mismatch=0.6), 1).steps(2)

    assert (first.left_s > first.entered_s).all()
    assert (second.entered_s.min(axis=1) >= first.left_s.max(axis=1)).all()


def test_a_rank_that_is_slow_behind_a_barrier_looks_like_all_others() -> None:
    """Its stage takes as long as everybody's: only rings show it."""
    fault = InjectedFault("inside", "actor_update", rank=1, factor=2.0, since=0)
    (step,) = SimulatedJob(JobShape(ranks=4), 1, [fault]).steps(1)
    times = took(step, "actor_update")

    assert max(times) / min(times) < 1.1


@pytest.mark.parametrize("kind", ["drift", "input", "gap", "behind"])
def test_a_fault_is_on_its_rank_alone_and_from_its_step_on(kind: str) -> None:
    stage = {"drift": "actor_generate", "behind": "actor_update"}.get(kind, "load_batch")
    fault = InjectedFault(kind, stage, rank=2, factor=40.0, since=1)
    with_it = list(SimulatedJob(JobShape(ranks=4), 1, [fault]).steps(2))
    without = list(SimulatedJob(JobShape(ranks=4), 1).steps(2))
    done = with_it[1].left_s[2] - with_it[1].entered_s[2].min()
    usually_done = without[1].left_s[2] - without[1].entered_s[2].min()

    assert (with_it[0].left_s == without[0].left_s).all()
    assert done.max() > usually_done.max() or with_it[1].entered_s[2, 0] > without[1].entered_s[2, 0]


def test_rings_come_after_twenty_steps_and_when_they_are_asked_for() -> None:
    job, having, again = SimulatedJob(JobShape(ranks=4, step_s=0.5), 1), [], []
    for step in job.steps(31):
        if step.step == 28 and step.collectives is None:
            job.grant([Want("rings", "actor", (), None, 24, 30, "")])
        if step.collectives is not None:
            (having if step.step not in having else again).append(step.step)

    assert having == [16, 17, 18, 19, 20, 25, 26, 27, 28, 29]
    assert again == []


def test_a_job_without_rings_has_no_collectives() -> None:
    assert all(step.collectives is None for step in SimulatedJob(JobShape(ranks=2, has_rings=False), 1).steps(30))


def test_an_async_job_has_two_roles_that_count_for_themselves() -> None:
    steps = first_of_each(SimulatedJob(JobShape(ranks=2, rollouts=3, is_async=True), 1), 4)

    assert [(step.role, step.step, len(step.members)) for step in steps[:4]] == [
        ("rollout", 0, 3), ("actor", 0, 2), ("rollout", 1, 3), ("actor", 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("stage", ["", "actor_generate"])
def test_more_work_is_told_of_whatever_stage_it_is_said(stage: str) -> None:
    fault = InjectedFault("more_work", stage, rank=2, factor=40.0, since=0)
    (step,) = SimulatedJob(JobShape(ranks=4), 1, [fault]).steps(1)

    assert step.work.tokens[2, 1] > 10 * step.work.tokens[[0, 1, 3], 1].max()


def test_a_response_that_is_cut_off_goes_on_in_the_next_step() -> None:
    steps = first_of_each(SimulatedJob(JobShape(ranks=4, partial_tokens=1000), 1), 3)

    assert max(step.work.longest_response[:, 1].max() for step in steps) == 1000


def test_a_rank_leaves_and_comes_back() -> None:
    steps = first_of_each(SimulatedJob(JobShape(ranks=4, leaves_at=5, step_s=0.5), 1), 30)

    assert [len(step.members) for step in steps] == [4] * 5 + [3] * 20 + [4] * 5


def test_a_rank_that_hangs_leaves_its_stage_never_and_no_step_follows() -> None:
    job = SimulatedJob(JobShape(ranks=4), 1, [InjectedFault("hang", "reward", rank=2, since=3)])
    *_, last = job.steps(9)

    assert last.step == 3
    assert np.isnan(last.left_s[2, last.stages.index("reward")])


def test_every_kind_of_fault_says_what_it_is() -> None:
    assert all(FAULTS.values())


def test_the_test_kit_loads_no_numpy_unless_the_simulator_is_asked_for() -> None:
    code = "import sys, mstxkit.testing; assert 'numpy' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_truth_of_a_fault_is_what_each_step_lasts_with_it_and_without() -> None:
    fault = InjectedFault("gap", "load_batch", rank=2, factor=1.3, since=2)
    truths = SimulatedJob(JobShape(ranks=4, step_s=1.0), 1, [fault]).truths(12)
    lost_s = [truth.length_s - truth.without_s for truth in truths]

    assert [(truth.role, truth.step) for truth in truths] == [("actor", step) for step in range(12)]
    assert lost_s[:2] == [0, 0]
    # A rank comes a tenth of a second late; now and then another one generates for longer.
    assert 0 < sum(lost_s) < 10 * 0.1
    assert max(lost_s) == pytest.approx(0.1, rel=0.05)


def test_the_truth_is_of_the_steps_that_are_handed_over() -> None:
    fault = InjectedFault("inside", "actor_update", rank=2, factor=1.5, since=0)
    job = SimulatedJob(JobShape(ranks=4), 1, [fault])
    first, second = first_of_each(job, 2)

    assert job.truths(2)[1].length_s == pytest.approx(second.left_s.max() - first.left_s.max())


@pytest.mark.parametrize("kind", FAULTS)
def test_what_is_drawn_at_random_is_the_same_with_a_fault_and_without(kind: str) -> None:
    stage = "" if kind in ("slow_sample", "more_work", "clock") else "actor_update"
    fault = InjectedFault(kind, stage, rank=2, factor=1.5, since=2, until=4)
    truths = SimulatedJob(JobShape(ranks=4, step_s=1.0, mismatch=0.5), 1, [fault]).truths(8)

    assert [truth.lost_ratio for truth in truths[5:]] == pytest.approx([0.0] * len(truths[5:]))


def test_of_two_faults_one_can_be_taken_away() -> None:
    one = InjectedFault("inside", "actor_update", rank=2, factor=1.5, since=0)
    other = InjectedFault("inside", "actor_compute_log_prob", rank=1, factor=1.5, since=0)
    job = SimulatedJob(JobShape(ranks=4), 1, [one, other])

    assert 0 < lost_ratio(job.truths(5, without=[one])) < lost_ratio(job.truths(5))
