"""Steps of simulated jobs as the reader takes them, and how long a step would have been without a fault."""

from __future__ import annotations

from typing import Sequence

import numpy as np
from builders.simulated_job import SimulatedJob

from mstxkit.reading import role_runs
from mstxkit.reading.role_runs import RoleRun
from mstxkit.testing.simulator import InjectedFault, JobShape


def runs_of(
    shape: JobShape, faults: Sequence[InjectedFault] = (), seed: int = 7, steps: int = 60
) -> tuple[RoleRun, ...]:
    return role_runs.of_steps(list(SimulatedJob(shape, seed, faults).steps(steps)))


def role_of(
    shape: JobShape, faults: Sequence[InjectedFault] = (), seed: int = 7, steps: int = 60, role: str = "actor"
) -> RoleRun:
    return next(run for run in runs_of(shape, faults, seed, steps) if run.role == role)


def step_s(run: RoleRun, since: int) -> float:
    """How long a step takes from that one on, in the mean: until the last member is done; where all go on for
    themselves, until all are, in the mean.
    """
    ends = np.nanmax(run.done_s, axis=2)
    over = ends.mean(axis=1) if run.is_free else ends.max(axis=1)
    return float(over[-1] - over[since - 1]) / (len(over) - since)
