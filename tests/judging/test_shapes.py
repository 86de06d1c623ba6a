"""Jobs of other shapes than equal ranks that meet: what is said of a fault, held to a second run without it."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

from builders.handed_on import Row

from benchmarks import detection
from mstxkit.judging import whole_run
from mstxkit.testing.simulator import JobShape

pytestmark = pytest.mark.days("even")


@pytest.mark.parametrize(("fault", "seed"), [("rank", 0), ("rank", 2), ("two", 1), ("role", 0), ("host", 3)])
def test_of_trainers_for_whom_rollouts_wait_it_is_said_who_is_slow_and_only_then_that_all_are(
    fault: str, seed: int
) -> None:
    """Rings come a step after they were asked for, and those that came before it began tell nothing."""
    outcome = detection.judged(detection.case("one_step_off", fault, seed))

    assert (outcome.is_right, outcome.is_right_at_end, outcome.victims) == (True, True, 0), outcome.wrong


def test_a_batch_of_two_slow_rollouts_is_whole_no_sooner_than_the_second_is_done() -> None:
    outcome = detection.judged(detection.case("queue", "two", 0))

    assert outcome.is_right_at_end
    assert outcome.off is not None and outcome.off < 0.1


@pytest.mark.parametrize("seed", [5, 6])
def test_in_a_row_of_which_nothing_is_told_nobody_is_named_before_it_is_known_for_one(seed: int) -> None:
    """In 2 of 6 jobs it took more than 8 steps to see that each waits for who is before it: the last two were named."""
    judged = whole_run.judged(list(Row(JobShape(has_rings=False), seed).steps(40)))

    assert (judged.standing, judged.withdrawn) == ((), ())


@pytest.mark.parametrize("fault", ["two", "rank"])
def test_of_a_pipeline_nobody_is_named_by_what_was_measured_before_it_was_known_for_one(fault: str) -> None:
    """Of the first 39 steps, in which nothing is wrong yet: up to three were named, and taken back."""
    steps = detection.verdicts_of(detection.case("pipeline", fault, 9000, 16).job(), detection.ONSET - 1)

    assert [verdict for _, verdicts, _ in steps for verdict in verdicts] == []


def test_who_waits_in_a_pipeline_for_what_comes_back_from_a_slow_one_is_not_named() -> None:
    """Two chains have a slow rank each, 13 and 11: forwards of those before it end late, as its backwards do."""
    case = detection.case("pipeline_blind", "two", 0)
    steps = detection.verdicts_of(case.job(), detection.ONSET + 6)
    said = [verdict for _, verdicts, _ in steps for verdict in verdicts]

    assert {verdict.rank for verdict in said} == {11, 13}
