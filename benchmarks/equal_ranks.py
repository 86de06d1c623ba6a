"""Jobs of equal ranks that meet at barriers: which faults are injected, what counts as right, and simpler rules.

The matrix of other shapes is `detection.py`; these cells stand beside it as they were measured from the beginning.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import Any, Iterator, NamedTuple

import numpy as np
from builders.simulated_job import SimulatedJob

from mstxkit.judging.evidence import RoleStep
from mstxkit.judging.judge import JobJudge
from mstxkit.store.verdicts import Verdict
from mstxkit.testing.simulator import InjectedFault, JobShape

# Jobs of a seed: so many cases, and one healthy job beyond them.
_OF_A_SEED, _HEALTHY = 1000, 999
ONSET, HORIZON = 30, 120
HIDDEN = ("inside", "behind")
# How often each kind is injected, of 25.
MIX = {"before": 5, "input": 2, "gap": 2, "drift": 1, "inside": 8, "behind": 4, "link": 3}
STAGES = {
    "before": ("actor_generate",), "drift": ("actor_generate",), "inside": ("actor_update", "actor_compute_log_prob"),
    "behind": ("actor_update",), "input": ("load_batch",), "gap": ("load_batch",), "link": ("actor_update",),
}  # fmt: skip
NAMES_SOMEBODY = ("compute", "input", "link", "communication", "jitter", "imbalance")


class Case(NamedTuple):
    """A job with a fault in it."""

    shape: JobShape
    seed: int
    fault: InjectedFault


class Outcome(NamedTuple):
    """What became of a case: was the first cause that was named the right one, after how many steps, who else was."""

    kind: str
    factor: float
    is_right: bool
    steps: int
    blamed_victims: int
    before_onset: int


def case(seed: int, number: int) -> Case:
    """A case of a seed, of 25: its kind goes by the mix, all else is drawn."""
    seed = _OF_A_SEED * seed + number
    draw = random.Random(seed)
    kind = [kind for kind, count in MIX.items() for _ in range(count)][number]
    shape = job_shape(draw, is_async=kind in ("before", "drift") and draw.random() < 0.25)
    first, count = (shape.ranks, shape.rollouts) if shape.is_async else (0, shape.ranks)
    factor = draw.choice((2.5, 4.0)) if kind == "link" else draw.choice((1.10, 1.25, 1.25, 1.5, 2.0))
    if kind == "link":  # without these, a slow link and slow ranks all alike are the same
        shape = replace(shape, knows_left=True)
    fault = InjectedFault(kind, draw.choice(STAGES[kind]), first + draw.randrange(count), factor, ONSET)
    return Case(shape, seed, fault)


def job_shape(draw: random.Random, is_async: bool) -> JobShape:
    """A job of any kind that the simulator has; its mismatch is 0.3 at least."""
    ranks = draw.choice((8, 16, 32))
    return JobShape(
        ranks=ranks, rollouts=draw.choice((8, 16)), is_async=is_async, is_dispatched=draw.random() < 0.3,
        partial_tokens=draw.choice((0, 0, 0, 6000)), mismatch=draw.choice((0.3, 0.45, 0.6)),
        noise_ratio=draw.choice((0.03, 0.04, 0.05)), step_s=draw.choice((0.6, 2.0, 20.0)),
        knows_left=draw.random() < 0.7, group_ranks=draw.choice((0, 0, ranks // 2, ranks // 4)),
        error_s=draw.choice((2e-5, 5e-5)),
    )  # fmt: skip


def is_right(verdict: Verdict, of: Case) -> bool:
    """Does it name the stage and the rank; of a link the stage and the group?"""
    if verdict.stage != of.fault.stage:
        return False
    if of.fault.kind == "link":
        return verdict.kind in ("link", "communication") and of.fault.rank in verdict.group
    return verdict.kind in ("compute", "input") and verdict.rank == of.fault.rank


def judged(of: Case, horizon: int = HORIZON) -> Outcome:
    """Judge a case, until its cause has been named for some steps or the horizon is reached."""
    job, judge = SimulatedJob(of.shape, of.seed, [of.fault]), JobJudge()
    first: tuple[bool, int] | None = None
    victims, early = set(), 0
    for step in job.steps(ONSET + horizon):
        done = judge.close(step)
        job.grant(done.wants)
        for verdict in done.verdicts:
            if verdict.kind not in NAMES_SOMEBODY or verdict.withdrawn:
                continue
            if step.step < ONSET:
                early += 1
                continue
            right = is_right(verdict, of)
            first = first or (right, step.step - ONSET + 1)
            if not right and verdict.rank is not None and verdict.rank != of.fault.rank:
                victims.add(verdict.rank)
        if first is not None and step.step > ONSET + first[1] + 20:
            break
    right, steps = first or (False, horizon)
    return Outcome(of.fault.kind, of.fault.factor, right, steps, len(victims), early)


def false_alarms(seed: int, steps: int, is_async: bool) -> tuple[int, int, list[str]]:
    """Of a healthy job: steps of a role that were judged, and verdicts that blame somebody or something."""
    drawn = _OF_A_SEED * seed + _HEALTHY
    job, judge = SimulatedJob(job_shape(random.Random(drawn), is_async), drawn), JobJudge()
    count, alarms = 0, dict[str, str]()
    last: dict[str, int] = {}
    for step in job.steps(steps):
        count += step.step > last.get(step.role, -1)
        last[step.role] = max(step.step, last.get(step.role, -1))
        done = judge.close(step)
        job.grant(done.wants)
        for v in done.verdicts:
            if v.is_blaming:
                alarms.setdefault(v.id, f"{seed}: {v.kind} {v.stage} {v.rank} step {step.step}")
    return count, len(alarms), list(alarms.values())


# Simpler rules, on the same steps: durations of stages as they are, or over the longest response.


class Rule:
    """A rule on durations: which stage and rank it flags in a step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._past: dict[str, deque[Any]] = {}

    def flags(self, step: RoleStep) -> Iterator[tuple[str, int]]:
        """Of one step: stage and place of the member."""
        for at, stage in enumerate(step.stages):
            times = step.total_s[:, at]
            if not np.isfinite(times).all():
                continue
            past = self._past.setdefault(f"{step.role} {stage}", deque(maxlen=10 if self.name == "nvrx" else 5))
            past.append(times if self.name == "nvrx" else _deviations(times))
            for place in np.flatnonzero(self._is_flagged(past)).tolist():
                yield stage, place

    def _is_flagged(self, past: deque[Any]) -> Any:
        if self.name == "nvrx":
            # nvidia-resiliency-ext, straggler/reporting.py at d8686d9: the fastest rank's median over a rank's own.
            middle = np.median(np.stack(past), axis=0)
            return (middle.min() / np.maximum(middle, 1e-12) < 0.75) & (len(past) == 10)
        if self.name == "mad5":
            return past[-1] > 5
        return (np.stack(past) > 3).sum(axis=0) >= 3


def _deviations(times: Any) -> Any:
    middle = np.median(times)
    return (times - middle) / max(1.4826 * float(np.median(np.abs(times - middle))), 1e-12)


def ruled(of: Case, horizon: int = 40) -> dict[str, tuple[bool, bool]]:
    """Of each simpler rule: was its first flag from the onset on right, and did it flag somebody else at all?"""
    rules = [Rule(name) for name in ("nvrx", "mad5", "mad3of5")]
    first: dict[str, bool] = {}
    wrong: dict[str, bool] = {}
    job = SimulatedJob(of.shape, of.seed, [of.fault])
    for step in job.steps(ONSET + horizon):
        if step.collectives is not None and step.step not in (20,):
            continue
        for rule in rules:
            for stage, place in rule.flags(step):
                if step.step >= ONSET:
                    rank = step.members[place].rank
                    right = stage == of.fault.stage and rank == of.fault.rank
                    first[rule.name] = (
                        first.get(rule.name, True) and right if step.step == ONSET else first.get(rule.name, right)
                    )
                    wrong[rule.name] = wrong.get(rule.name, False) or rank != of.fault.rank
    return {rule.name: (first.get(rule.name, False), wrong.get(rule.name, False)) for rule in rules}
