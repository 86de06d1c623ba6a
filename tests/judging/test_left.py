"""What becomes of an earlier judge's verdicts: it was killed, or it is another attempt at the job."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from builders import soak  # noqa: E402
from builders.judged import alone  # noqa: E402

from mstxkit.judging.evidence import RoleStep  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.store.verdicts import Verdict  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape, SimulatedJob  # noqa: E402

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
