"""The figures of a step: who is slowest in a stage is never who waits there for another."""

from __future__ import annotations

import pytest
from builders.judged import alone, peers, role_step

from mstxkit.judging import figures
from mstxkit.judging.evidence import RoleStep
from mstxkit.judging.judge import JobJudge


def slowest(step: RoleStep, waiting_in: frozenset[str] = frozenset()) -> dict[str, int | None]:
    """Stage to rank."""
    return {stage.stage: stage.slowest_rank for stage in figures.of_step(step, waiting_in=waiting_in).stages}


def test_the_slowest_is_who_takes_longest_where_each_is_alone() -> None:
    step = role_step(3, ["generate"], [[0.0], [0.0], [0.0]], [[1.0], [3.0], [2.0]])

    assert slowest(step) == {"generate": 1}


def test_where_ranks_wait_for_each_other_the_slowest_is_the_one_that_they_wait_for() -> None:
    step = role_step(3, ["update"], [[0.0], [2.0], [0.1]], [[3.0], [3.0], [3.0]])

    assert slowest(step, frozenset({"update"})) == {"update": 1}


@pytest.mark.parametrize("error_s", [0.0, 5e-3])
def test_nobody_is_late_by_less_than_clocks_may_differ(error_s: float) -> None:
    """Then the longest it is."""
    late_s = 0.5e-3 if not error_s else 4e-3
    step = role_step(3, ["update"], [[0.0], [late_s]], [[3.0], [3.0]], error_s=error_s)

    assert slowest(step, frozenset({"update"})) == {"update": 0}


@pytest.mark.parametrize(("late_s", "wait_ratio"), [(0.04, 0.0), (1.05, 0.25)])
def test_nobody_waits_by_less_than_clocks_may_differ(late_s: float, wait_ratio: float) -> None:
    step = role_step(3, ["update"], [[0.0], [late_s]], [[2.0], [2.0]], error_s=0.05)

    assert figures.of_step(step).wait_ratio == pytest.approx(wait_ratio)


def test_a_controller_that_waits_for_all_of_it_is_not_the_slowest() -> None:
    driver, *workers = peers(3)
    members = (driver._replace(is_controller=True), *workers)
    step = role_step(3, ["update"], [[0.0], [0.1], [0.2]], [[9.0], [3.0], [3.5]], members=members)

    assert slowest(step) == {"update": 2}


def test_a_judge_learns_where_ranks_wait_for_each_other() -> None:
    judge = JobJudge()
    steps = alone(30, slow=(2, 1.5, 0))
    for step in steps:
        judge.close(step)
    waiting = judge.waiting_in(steps[-1].role)
    ranks = slowest(steps[-1], waiting)

    assert len(waiting) == 1 and waiting < set(ranks)
    assert set(ranks.values()) == {2}
    assert judge.waiting_in("another") == frozenset()
