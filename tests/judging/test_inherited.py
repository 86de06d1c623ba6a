"""What becomes of an earlier judge's verdicts: it was killed, or it is another attempt at the job."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from builders import soak  # noqa: E402
from builders.judged import alone  # noqa: E402
from builders.simulated_job import SimulatedJob  # noqa: E402

from mstxkit.judging.controller import Controller  # noqa: E402
from mstxkit.judging.evidence import RoleStep  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.store.verdicts import Verdict  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape  # noqa: E402

pytestmark = pytest.mark.days("odd")

KINDS = [
    ("before", "actor_generate", 2.0), ("inside", "actor_update", 3.0), ("link", "actor_update", 6.0),
    ("all", "actor_update", 2.0), ("input", "load_batch", 2.0),
]  # fmt: skip


def taken_over(fault: InjectedFault, at: int, until: int) -> tuple[list[Verdict], JobJudge, list[Verdict]]:
    """What stands when one judge stops after a step; the one that goes on from there, and what that has said."""
    job, first, judge = SimulatedJob(JobShape(ranks=4, step_s=2.0), 3, [fault]), JobJudge(), JobJudge()
    left: list[Verdict] = []
    said: list[Verdict] = []
    for step in job.steps(until):
        if step.step == at and not left:
            left = first.standing()
            judge = JobJudge(standing=left)
        if step.step < at:
            job.grant(first.close(step).wants)
        elif left:
            done = judge.close(step)
            job.grant(done.wants)
            said += done.verdicts
    return left, judge, said


@pytest.mark.parametrize(("kind", "stage", "factor"), KINDS)
def test_what_goes_on_while_another_judge_takes_over_stays_and_keeps_its_id(
    kind: str, stage: str, factor: float
) -> None:
    """However often nothing new is found: to the new judge a slow link, or what is slow for all, looks usual."""
    left, judge, said = taken_over(InjectedFault(kind, stage, rank=1, factor=factor, since=30), 60, 140)

    assert left
    assert {verdict.id for verdict in left} <= {verdict.id for verdict in judge.standing()}
    assert [verdict for verdict in said if verdict.withdrawn and verdict.id in {v.id for v in left}] == []


@pytest.mark.parametrize(("kind", "stage", "factor"), KINDS)
def test_what_has_ended_before_another_judge_took_over_is_withdrawn_as_soon_as_it_would_have_been(
    kind: str, stage: str, factor: float
) -> None:
    fault = InjectedFault(kind, stage, rank=1, factor=factor, since=30, until=60)
    left, judge, said = taken_over(fault, 60, 190)
    withdrawn = {verdict.id: verdict for verdict in said if verdict.withdrawn}

    assert left
    assert {verdict.id for verdict in left} <= set(withdrawn)
    assert judge.standing() == []
    by_rings = kind in ("inside", "link")  # these show in few steps only
    assert all((verdict.step or 0) < (190 if by_rings else 60 + 10 + 35) for verdict in withdrawn.values())


def lines(steps: list[RoleStep], judge: JobJudge) -> list[Verdict]:
    return [verdict for step in steps for verdict in judge.close(step).verdicts]


EVIDENCE: list[dict[str, Any]] = [
    {}, {"where": 3, "excess_ratio": "much"}, {"where": "in", "excess_ratio": -5.0},
    {"where": "in", "excess_ratio": 1e308, "steps": 1e308}, {"where": "link", "excess_ratio": 1.0, "usual_s": 0},
]  # fmt: skip


@pytest.mark.parametrize(("evidence", "rank"), soak.sample([*product(EVIDENCE, (None, 1, 99))], 5))
def test_of_whatever_somebody_has_written_nothing_fails_and_it_does_not_stand_for_ever(
    evidence: dict[str, Any], rank: int | None
) -> None:
    left = Verdict("ab", 1, 9, "compute", "actor_generate", rank, "actor", evidence=evidence)
    judge = JobJudge(standing=[left])
    lines(alone(170), judge)

    assert judge.standing() == []


def test_of_a_role_that_takes_no_step_what_was_said_stands() -> None:
    judge = JobJudge(standing=[Verdict("ab", 1, 9, "compute", "actor_generate", 1, "rollout")])
    lines(alone(170), judge)

    assert [verdict.id for verdict in judge.standing()] == ["ab"]


def replayed(steps: list[RoleStep], left: list[Verdict], first: int) -> tuple[list[Verdict], JobJudge]:
    """What a judge says that goes through the steps from there on again, and itself."""
    judge = JobJudge(standing=left)
    return lines(steps[first:], judge), judge


@pytest.mark.parametrize("since", [100, 135])
def test_steps_from_before_it_was_said_that_are_gone_through_again_withdraw_nothing(since: int) -> None:
    """A judge that was killed is followed by one that reads some of the steps again, to know what is usual."""
    steps = alone(220, slow=(2, 1.3, since))
    first = JobJudge()
    lines(steps[:150], first)
    said, judge = replayed(steps, first.standing(), 40)

    (before,) = first.standing()
    assert [(verdict.id, verdict.since_step) for verdict in judge.standing()] == [(before.id, before.since_step)]
    assert {(verdict.id, verdict.withdrawn) for verdict in said} == {(before.id, "")}


def test_what_was_said_in_an_earlier_attempt_is_withdrawn_in_the_first_steps_of_the_next() -> None:
    first = JobJudge()
    lines(alone(150, slow=(2, 1.3, 100)), first)
    controller = Controller("run", tuple(first.standing()))
    controller._last["actor"] = 149
    for step in alone(60):
        controller._begin_anew_before(step)
        controller.judge.close(step)

    assert controller.judge.standing() == []


@pytest.mark.parametrize(
    ("changes", "ids"),
    [({"evidence": {"where": "behind"}}, ["left"]), ({"kind": "jitter"}, ["new"])],
    ids=["in another place of the stage", "by what is less sure"],
)
def test_one_cause_has_one_verdict_also_where_the_next_judge_sees_it_otherwise(
    changes: dict[str, Any], ids: list[str]
) -> None:
    steps = alone(150, slow=(2, 1.3, 0))
    first = JobJudge()
    lines(steps[:60], first)
    (before,) = first.standing()
    changed = {**changes, "evidence": {**before.evidence, **changes.get("evidence", {})}}
    _, judge = replayed(steps, [before._replace(id="left", **changed)], 40)

    assert ["left" if verdict.id == "left" else "new" for verdict in judge.standing()] == ids


@pytest.mark.parametrize("has_ranks", [True, False])
def test_what_was_said_of_a_rank_is_withdrawn_while_all_are_well_also_where_it_has_no_number(has_ranks: bool) -> None:
    def named(steps: list[RoleStep]) -> list[RoleStep]:
        members = [tuple(p if has_ranks else p._replace(rank=None) for p in step.members) for step in steps]
        return [step._replace(members=peers) for step, peers in zip(steps, members)]

    first = JobJudge()
    for step in named(alone(60, slow=(2, 1.3, 20))):
        first.close(step)
    judge = JobJudge(standing=first.standing())
    for step in named(alone(240)):
        judge.close(step._replace(step=step.step + 60))

    assert [verdict.kind for verdict in first.standing()] == ["compute"]
    assert judge.standing() == []
