"""The figures of a step: who is slowest in a stage is never who waits there for another."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pytest
from builders.buffered_job import BufferedJob
from builders.handed_on import PART_S, PARTS, Row
from builders.judged import alone, collectives, peers, role_step
from builders.simulated_job import SimulatedJob
from builders.simulated_steps import role_of

from mstxkit.judging import figures
from mstxkit.judging.cutting import IN, Piece
from mstxkit.judging.evidence import RoleStep
from mstxkit.judging.judge import JobJudge
from mstxkit.judging.measuring import WAITS
from mstxkit.store.job_file import RoleFigures
from mstxkit.store.metrics_setting import Flops
from mstxkit.testing.simulator import JobShape
from mstxkit.testing.simulator.shape import ALWAYS


def slowest(step: RoleStep, modes: Mapping[Piece, int] = figures.NOBODY_KNOWS) -> dict[str, int | None]:
    """Stage to rank."""
    return {stage.stage: stage.slowest_rank for stage in figures.of_step(step, modes=modes).stages}


def test_the_slowest_is_who_takes_longest_where_each_is_alone() -> None:
    step = role_step(3, ["generate"], [[0.0], [0.0], [0.0]], [[1.0], [3.0], [2.0]])

    assert slowest(step) == {"generate": 1}


def test_where_ranks_wait_for_each_other_the_slowest_is_the_one_that_they_wait_for() -> None:
    step = role_step(3, ["update"], [[0.0], [2.0], [0.1]], [[3.0], [3.0], [3.0]])

    assert slowest(step, {Piece(IN, "update"): WAITS}) == {"update": 1}


@pytest.mark.parametrize("error_s", [0.0, 5e-3])
def test_nobody_is_late_by_less_than_clocks_may_differ(error_s: float) -> None:
    """Then the longest it is."""
    late_s = 0.5e-3 if not error_s else 4e-3
    step = role_step(3, ["update"], [[0.0], [late_s]], [[3.0], [3.0]], error_s=error_s)

    assert slowest(step, {Piece(IN, "update"): WAITS}) == {"update": 0}


@pytest.mark.parametrize(("late_s", "wait_ratio"), [(0.04, 0.0), (1.05, 0.25)])
def test_nobody_waits_by_less_than_clocks_may_differ(late_s: float, wait_ratio: float) -> None:
    step = role_step(3, ["update"], [[0.0], [late_s]], [[2.0], [2.0]], error_s=0.05)

    judge = JobJudge()
    judge.close(step)

    assert judge.wait_ratio(step) == pytest.approx(wait_ratio)


def test_what_ranks_wait_in_the_collectives_of_a_stage_is_waiting() -> None:
    """Both begin and end at once; rank 0 works for 1 s and rank 1 for 3 s before they meet."""
    judge = JobJudge()
    for number in range(4):
        at = 4.0 * number
        step = role_step(number, ["update"], [[at], [at]], [[at + 4.0], [at + 4.0]])
        met = [(0, 0, number, at + 1.0, at + 4.0, 0), (1, 0, number, at + 3.0, at + 4.0, 0)]
        judge.close(step._replace(collectives=collectives(met)))

    assert judge.wait_ratio(step) == pytest.approx(1.0 / 4.0)  # 2 s of the one, none of the other: 1 s of 4 s


def with_driver(entered: list[list[float]], left: list[list[float]], **more: Any) -> RoleStep:
    """The first member waits for the others, if there are any."""
    driver, *workers = peers(len(entered))
    return role_step(3, ["update"], entered, left, members=(driver._replace(is_controller=True), *workers), **more)


def test_a_controllers_wait_is_in_no_figure_of_its_workers() -> None:
    step = with_driver([[0.0], [0.1], [0.2]], [[9.0], [3.0], [3.5]], tokens=[[999.0], [300.0], [360.0]])
    of_role = figures.of_step(step, flops=Flops(1.0, 100.0))
    (update,) = of_role.stages

    assert (update.slowest_rank, update.members, of_role.members) == (2, 2, 2)
    assert (update.max_s, update.median_s) == pytest.approx((3.3, 3.1))
    assert (update.tokens_per_s, update.mfu_ratio) == pytest.approx((200.0, 1.0))


@pytest.mark.parametrize("is_first", [True, False])
def test_where_workers_have_a_stage_its_figures_are_theirs_whoever_came_first(is_first: bool) -> None:
    """A driver is of a role of its own; what only it does is shown all the same."""
    waits = figures.of_step(with_driver([[0.0]], [[9.0]], role=""))
    alone = figures.of_step(with_driver([[0.0]], [[0.5]], role="")._replace(stages=("advantage",)))
    small, large = (
        figures.of_step(role_step(3, ["update"], [[0.0], [0.0]], [[1.0], [took_s]])) for took_s in (2.0, 4.0)
    )
    roles = [waits, alone, small, large] if is_first else [large, small, alone, waits]

    assert waits.members == 0
    assert {name.partition("/")[2]: value for name, value in figures.join_figures(roles, 0).items()} == {
        "time_s/update/max": 4.0, "time_s/update/median": 2.5, "time_s/update/slowest_rank": 1.0,
        "time_s/advantage/max": 0.5, "time_s/advantage/median": 0.5, "wait_ratio": 0.0, "verdicts": 0.0,
    }  # fmt: skip


def test_a_judge_learns_where_ranks_wait_for_each_other() -> None:
    judge = JobJudge()
    steps = alone(30, slow=(2, 1.5, 0))
    for step in steps:
        judge.close(step)
    modes = judge.modes(steps[-1].role)
    ranks, waiting = slowest(steps[-1], modes), {kind.stage for kind, mode in modes.items() if mode == WAITS}

    assert len(waiting) == 1 and waiting < set(ranks)
    assert set(ranks.values()) == {2}
    assert judge.modes("another") == {}


@pytest.mark.parametrize(
    ("shape", "role"),
    [
        (JobShape(ranks=8), "actor"),
        (JobShape(ranks=8, is_dispatched=True, has_rings=False), "actor"),
        (JobShape(ranks=8, is_async=True), "rollout"),
        (JobShape(ranks=8, is_async=True), "actor"),
    ],
    ids=["in stages", "before stages", "nowhere", "a little"],
)
def test_what_is_waited_is_told_as_the_tables_tell_it_afterwards(shape: JobShape, role: str) -> None:
    """Where a controller begins each stage for all, ranks wait in gaps; rollouts wait for nobody: nobody is late."""
    judge, seen = JobJudge(), dict[int, RoleFigures]()
    for step in (step for step in SimulatedJob(shape, 7).steps(40) if step.role == role):
        judge.close(step)
        seen.setdefault(step.step, figures.of_step(step, modes=judge.modes(role), wait_ratio=judge.wait_ratio(step)))
    run, told = role_of(shape, steps=40, role=role), [seen[step] for step in range(20, 40)]
    waited = float((np.nansum(run.wait_s, axis=2).mean(axis=1) / run.lengths_s)[20:].mean())

    assert np.mean([of_role.wait_ratio for of_role in told]) == pytest.approx(waited, abs=0.05)
    assert waited or not any(of_role.late for of_role in told)


@pytest.mark.parametrize("shape", [JobShape(rings=ALWAYS), JobShape(has_rings=False)], ids=["entries", "blind"])
def test_who_waits_for_the_part_of_the_model_before_is_told_of_it_while_the_job_runs(shape: JobShape) -> None:
    """Of about nine seconds each rank works three: on its input, on its part, with all others."""
    works_s, lasts_s = 1.0 + PART_S + 0.1, 1.0 + PARTS * PART_S + 0.1

    assert told_live(list(Row(shape, 3).steps(40)), "actor") == pytest.approx(1 - works_s / lasts_s, abs=0.02)


def test_who_waits_for_another_role_is_told_of_it_while_the_job_runs() -> None:
    job = BufferedJob(JobShape(ranks=12, rollouts=4, is_async=True), 128, (8, 8), 5000)
    steps = list(job.steps(40))
    ends = [(step.entered_s.min(axis=1), step.left_s.max(axis=1)) for step in steps if step.role == "actor"]
    waits_s, lasts_s = zip(*((now[0] - last[1], now[1] - last[1]) for last, now in zip(ends[19:], ends[20:])))

    waited = float(np.mean([(wait / lasts).mean() for wait, lasts in zip(waits_s, lasts_s)]))
    assert told_live(steps, "actor") == pytest.approx(waited, abs=0.03)
    assert waited > 0.2


def told_live(steps: list[RoleStep], role: str) -> float:
    """The share of its steps from 20 on that a role waits, as the judge has it when each is over, in the mean."""
    judge, told = JobJudge(), list[float]()
    for step in steps:
        judge.close(step)
        told += [judge.wait_ratio(step)] if step.role == role and step.step >= 20 else []
    return float(np.mean(told))
