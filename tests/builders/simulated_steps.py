"""Steps of simulated jobs as the reader takes them, and how long a step would have been without a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

import numpy as np
from builders.simulated_job import SimulatedJob

from mstxkit.judging import whole_run
from mstxkit.reading import replay, role_runs
from mstxkit.reading.role_runs import RoleRun, Seconds
from mstxkit.store.verdicts import Verdict
from mstxkit.testing.simulator import InjectedFault, JobShape

if TYPE_CHECKING:
    import polars as pl

    from mstxkit.reading.tables.split import AskedSplit


def runs_of(
    shape: JobShape, faults: Sequence[InjectedFault] = (), seed: int = 7, steps: int = 60
) -> tuple[RoleRun, ...]:
    return role_runs.of_steps(list(SimulatedJob(shape, seed, faults).steps(steps)))


def role_of(
    shape: JobShape, faults: Sequence[InjectedFault] = (), seed: int = 7, steps: int = 60, role: str = "actor"
) -> RoleRun:
    return next(run for run in runs_of(shape, faults, seed, steps) if run.role == role)


def verdicts_of(runs: Sequence[RoleRun]) -> tuple[Verdict, ...]:
    """All that the judge says of these steps, of what it has withdrawn too."""
    steps = sorted((step for run in runs for step in run.parts), key=lambda step: float(np.nanmedian(step.left_s)))
    by_judge = whole_run.judge_steps(steps)
    return (*by_judge.standing, *by_judge.withdrawn)


def stragglers_of(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    from mstxkit.reading.tables import stragglers

    return stragglers.table(runs, verdicts_of(runs))


def what_if_of(runs: tuple[RoleRun, ...], asked: AskedSplit | None = None) -> pl.DataFrame:
    from mstxkit.reading.tables import what_if

    return what_if.table(runs, verdicts_of(runs), asked)


def saved_s(runs: Sequence[RoleRun], run: RoleRun, own_s: Seconds, since: int = 0) -> float:
    """By how much a step would be shorter with these own times of a role, in the mean from that step on."""
    return replay.saved_s(runs, run, replay.take_away(run, run.own_s - own_s), range(since, len(run.steps)))[1]


def step_s(run: RoleRun, since: int) -> float:
    """How long a step takes from that one on, in the mean: until the last member is done; where all go on for
    themselves, until all are, in the mean.
    """
    ends = np.nanmax(run.done_s, axis=2)
    over = ends.mean(axis=1) if run.is_free else ends.max(axis=1)
    return float(over[-1] - over[since - 1]) / (len(over) - since)
