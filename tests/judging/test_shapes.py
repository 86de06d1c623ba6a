"""Jobs of other shapes than equal ranks that meet: what is said of a fault, held to a second run without it."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("numpy")

from builders.handed_on import Row

from benchmarks import detection
from mstxkit.judging import whole_run
from mstxkit.testing import judge
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


@pytest.mark.parametrize(("shape", "seed"), [("queue", 0), ("queue_undeclared", 1), ("one_step_off", 5)])
def test_who_is_slow_where_the_other_side_of_a_queue_takes_as_long_is_not_named(shape: str, seed: int) -> None:
    """It was, with 1 to 3 %, in each of 18 jobs: what it was sooner done was lost in waiting only in the step after."""
    outcome = detection.judged(detection.case(shape, "absorbed", seed))

    assert outcome.lost < detection.NOTHING
    assert (outcome.delay, outcome.wrong) == (None, "")


@pytest.mark.parametrize("seed", [5, 6])
def test_in_a_row_of_which_nothing_is_told_nobody_is_named_before_it_is_known_for_one(seed: int) -> None:
    """In 2 of 6 jobs it took more than 8 steps to see that each waits for who is before it: the last two were named."""
    judged = whole_run.judge_steps(list(Row(JobShape(has_rings=False), seed).steps(40)))

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


CALLS = (
    (("actor_generate", "actor", 60.0),), (("reward", "reward", 25.0), ("ref_log_prob", "ref", 20.0)),
    (("values", "critic", 15.0),), (("critic_update", "critic", 30.0), ("actor_update", "actor", 40.0)),
)  # fmt: skip
RANKS = {"actor": 4, "reward": 1, "ref": 2, "critic": 2}


def _calls_of_a_controller(slow: str = "", rank: int | None = None, factor: float = 2.5) -> list[dict[str, Any]]:
    """A controller that tells nothing of itself calls roles one after the other, or two at once. A call takes it 3 to
    6 ms: more than 2 % of a step. From step 40 on a stage is slower, of a rank or of all; or what is between calls.
    """
    rows, now, draw = list[dict[str, Any]](), 0.0, random.Random(7)
    for step in range(90):
        for calls in CALLS:
            is_late = slow == "between" and step >= 40
            begun, over = now + draw.uniform(3, 6) * (factor if is_late else 1), now
            for stage, role, ms in calls:
                for of in range(RANKS[role]):
                    is_slow = step >= 40 and stage == slow and rank in (None, of)
                    entered = begun + draw.uniform(0, 0.2)
                    left = begun + ms * (factor if is_slow else 1) * draw.gauss(1, 0.02)
                    who = {"role": role, "rank": of, "process": f"{role}{of}", "step": step, "stage": stage}
                    rows.append({**who, "entered_ns": int(entered * 1e6), "left_ns": int(left * 1e6)})
                    over = max(over, left)
            now = over
    return rows


def _lost_ratio(rows: list[dict[str, Any]]) -> float:
    """Share of the steps from 40 on that the same job does not take where nothing is slower."""
    healthy_ns, slow_ns = (
        max(row["left_ns"] for row in of) - max(row["left_ns"] for row in of if row["step"] == 39)
        for of in (_calls_of_a_controller(), rows)
    )  # fmt: skip
    return float(1 - healthy_ns / slow_ns)


@pytest.mark.parametrize(
    ("slow", "rank", "said"),
    [
        ("", None, []),
        ("reward", None, [("all_slow", "reward", "reward", None)]),
        ("actor_generate", 3, [("compute", "actor", "actor_generate", 3)]),
        ("values", 0, [("compute", "critic", "values", 0)]),
        ("critic_update", 1, [("compute", "critic", "critic_update", 1)]),  # by now it takes longer than the actor's
    ],
)
def test_of_roles_that_wait_for_what_another_one_does_none_is_a_second_cause(
    slow: str, rank: int | None, said: list[tuple[str, str, str, int | None]]
) -> None:
    """The gaps of the others were said to be longer, each for itself, and first where they cost more."""
    rows = _calls_of_a_controller(slow, rank)
    verdicts = judge(rows).verdicts

    assert [(of.kind, of.role, of.stage, of.rank) for of in verdicts] == said
    assert all(of.impact_ratio == pytest.approx(_lost_ratio(rows), abs=0.02) for of in verdicts)


def test_a_controller_that_is_slow_between_all_calls_is_one_cause() -> None:
    """Each role shows a part of it."""
    rows = _calls_of_a_controller("between")
    verdicts = judge(rows).verdicts

    assert [(of.kind, of.evidence.get("of_role")) for of in verdicts] == [("all_slow", "controller")]
    assert verdicts[0].impact_ratio == pytest.approx(_lost_ratio(rows), abs=0.02)


def test_of_a_whole_run_it_is_told_who_was_waited_for_in_which_step() -> None:
    """Of whom, is known before that one's step is over: the reward of a step is over before its update."""
    run = whole_run.WholeRun(of.step for of in judge(_calls_of_a_controller()).steps)
    feeds = {of.course.place: [feed for feed in of.course.feeds if feed] for of in run.steps[80:-8]}

    assert all(step == of_step for (_, step), of in feeds.items() for feed in of for _, of_step in feed.courses)
    assert {feed.courses[0][0] for (role, _), of in feeds.items() for feed in of if role == "reward"} == {"actor"}
    assert {feed.courses[0][0] for (role, _), of in feeds.items() for feed in of if role == "actor"} == {"critic"}


def test_who_is_left_out_as_it_counts_otherwise_leaves_the_others_in_their_places() -> None:
    """Of three rollouts the first counts its steps one off: whom a trainer waited for was looked up in all three."""
    rows, draw = list[dict[str, Any]](), random.Random(3)
    for step in range(90):
        begun = step * 100.0
        ends = [begun + (60 if of < 2 or step < 40 else 85) * draw.gauss(1, 0.01) for of in range(3)]
        for of, end in enumerate(ends):
            who = {"role": "rollout", "rank": of, "process": f"r{of}", "step": step + (of == 0)}
            rows.append({**who, "stage": "actor_generate", "entered_ns": int(begun * 1e6), "left_ns": int(end * 1e6)})
        for of in range(2):
            who = {"role": "trainer", "rank": of, "process": f"t{of}", "step": step, "stage": "actor_update"}
            times_ms = max(ends) + draw.uniform(0.2, 0.4), begun + 98 + draw.uniform(0, 0.2)
            rows.append({**who, **dict(zip(("entered_ns", "left_ns"), (int(at * 1e6) for at in times_ms)))})

    judged = judge(rows)

    assert [*judged.judge.counts.off["rollout"].values()] == ["rank 0"]
    assert [(of.role, of.stage, of.rank) for of in judged.verdicts if of.rank is not None] == [
        ("rollout", "actor_generate", 2)
    ]


def test_of_a_whole_run_who_is_late_in_a_gap_that_another_role_ends_is_so_in_each_step() -> None:
    """Rank 3 begins actor_update 8 ms after the others: all had what the last step but one of the run had shown."""
    rows = _calls_of_a_controller()
    for row in rows:
        if (row["stage"], row["rank"]) == ("actor_update", 3):
            row["entered_ns"] += 8_000_000
    run = whole_run.WholeRun(of.step for of in judge(rows).steps)
    gap = ("before", "actor_update")
    late = [of.excess[3, of.pieces.kinds.index(gap)] for of in run.steps if of.step.role == "actor"]

    assert min(late[20:]) > 0.05


@pytest.mark.parametrize(("shape", "fault", "seed"), [("barriers", "behind", 9004), ("nested", "input", 9000)])
def test_who_is_slow_in_each_step_is_never_late_now_and_then(shape: str, fault: str, seed: int) -> None:
    """Four steps in a row, beside some tails that cost nothing, were stalls "now and then" that nobody had."""
    case = detection.case(shape, fault, seed)
    said = [verdict for _, verdicts, _ in detection.verdicts_of(case.job(), 60) for verdict in verdicts]

    assert {verdict.rank for verdict in said} == {case.faults[0].rank}
    assert "jitter" not in {verdict.kind for verdict in said}


@pytest.mark.parametrize(("shape", "seed"), [("barriers", 9001), ("dispatched", 9000), ("nested", 9004)])
def test_one_of_many_that_stalls_is_named_also_beside_tails_of_others(shape: str, seed: int) -> None:
    """Of its host, or of all together, there are one or two stalls more: that says less of whom to look at."""
    case = detection.case(shape, "intermittent", seed)
    said = [verdict for _, verdicts, _ in detection.verdicts_of(case.job(), 110) for verdict in verdicts]

    assert said and {verdict.rank for verdict in said} == {case.faults[0].rank}


def test_tails_of_one_in_a_hundred_steps_here_and_there_are_nobodys() -> None:
    assert detection.false_alarms("barriers", 9005, 340) == (340, [])


@pytest.mark.parametrize(("fault", "seed"), [("drifting", 9000), ("two", 9001)])
def test_of_a_pipeline_that_tells_its_sends_the_slow_are_named_and_nobody_behind_them(fault: str, seed: int) -> None:
    """By when ranks were done it looked like one row after another: 22 % were silent, or blamed on who comes after."""
    case = detection.case("pipeline", fault, seed)
    verdicts = {said.id: said for _, some, _ in detection.verdicts_of(case.job(), 80) for said in some}.values()

    assert {verdict.rank for verdict in verdicts} == {fault.rank for fault in case.faults}


@pytest.mark.parametrize(("fault", "seed"), [("rank", 2), ("rank", 3), ("moving", 2), ("moving", 3)])
def test_who_waits_in_a_pipeline_for_a_slow_one_before_it_is_not_named(fault: str, seed: int) -> None:
    """Its forwards wait for the forwards and for the backwards of that one: with 2 to 11 % it was named, and first."""
    outcome = detection.judged(detection.case("pipeline_blind", fault, seed))

    assert (outcome.is_right, outcome.victims) == (True, 0), outcome.wrong


def test_all_of_one_place_in_a_pipeline_are_one_cause_though_nobody_tells_of_places() -> None:
    """Two hosts are a place: both were named, each as costing nothing, as the other one was as slow."""
    outcome = detection.judged(detection.case("pipeline_blind", "place", 2, 64), horizon=20)

    assert (outcome.is_right, outcome.is_right_at_end, outcome.victims) == (True, True, 0), outcome.wrong


@pytest.mark.parametrize(("shape", "seed"), [("barriers", 9001), ("barriers", 9003)])
def test_who_is_slow_in_three_of_ten_steps_is_named_as_long_as_it_is(shape: str, seed: int) -> None:
    """The verdict was withdrawn, and said anew, and withdrawn: seven steps are against it where three are for it."""
    outcome = detection.judged(detection.case(shape, "intermittent", seed))

    assert (outcome.is_right, outcome.is_right_at_end) == (True, True)


def test_what_is_withdrawn_is_not_named_once_more_by_what_it_was_in_other_stages() -> None:
    """Of a rank that was slow for 25 steps a second verdict came up 30 steps after it began."""
    case = detection.case("pipeline", "moving", 9000)
    steps = list(detection.verdicts_of(case.job(), 110))
    said = {verdict.id for _, some, _ in steps for verdict in some if verdict.rank == 24}

    assert len(said) == 1
    assert 24 not in {verdict.rank for verdict in steps[-1][2].standing()}


def test_of_a_host_of_eight_the_last_that_builds_up_is_named_with_the_others() -> None:
    """Seven were named, of which eight steps later there were eight."""
    outcome = detection.judged(detection.case("restarts", "host", 9003))

    assert outcome.is_right, outcome.wrong


def test_an_end_of_a_slow_link_is_not_named_while_the_link_is_suspected() -> None:
    """Two steps before it rank 2 was said to compute more slowly, and to cost 1 %."""
    case = detection.case("pipeline", "link", 9000)
    said = [verdict for _, some, _ in detection.verdicts_of(case.job(), 50) for verdict in some]

    assert {verdict.kind for verdict in said} == {"link"}


def test_a_gap_in_which_another_role_is_slow_is_not_the_controllers() -> None:
    """Actors and critics are called together: since one critic was the last, what actors waited for was unknown."""
    case = detection.case("called", "server", 9004)
    said = [verdict for _, some, _ in detection.verdicts_of(case.job(), 90) for verdict in some]

    assert {(verdict.role, verdict.kind) for verdict in said} == {("critic", "compute")}


@pytest.mark.parametrize("shape", ["pipeline", "grid"])
def test_a_link_that_is_slow_in_all_stages_is_one_cause_of_the_fewest_ranks(shape: str) -> None:
    """Each stage had a verdict of its own, with a third of the cost; the first, of eight ranks, stood."""
    case = detection.case(shape, "link", 0)
    *_, (_, _, judge) = detection.verdicts_of(case.job(), 90)
    (standing,) = judge.standing()

    assert (standing.kind, len(standing.group)) == ("link", 2)
    assert set(standing.group) & case.causes[0].ranks
    assert len({standing.stage, *standing.evidence["also_in"].split(", ")}) == 3
    assert standing.evidence["excess_ratio"] < 100
