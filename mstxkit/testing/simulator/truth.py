"""What the faults of a simulated job cost: each step's length with them, and without. A judge can be held to it."""

from __future__ import annotations

from typing import NamedTuple


class StepTruth(NamedTuple):
    """One step of one role, as it was and as it would have been.

    A step lasts from when the last rank was done with the step before to when the last rank is done with it; in a role
    where nobody waits for anybody, as the rollouts of async RL, from when they were done to when they are in the mean.

    Args:
        role, step: As in `RoleStep`.
        length_s: As it was.
        without_s: In the same job without these faults, by the same draws: the same responses, noise and idleness.
    """

    role: str
    step: int
    length_s: float
    without_s: float

    @property
    def lost_ratio(self) -> float:
        """Share of the step that the faults cost; below 0 where it makes up for what was lost before."""
        return 1 - self.without_s / self.length_s if self.length_s > 0 else 0.0


def lost_ratio(truths: list[StepTruth]) -> float:
    """Share of these steps together that the faults cost; NaN where there are none."""
    length_s = sum(truth.length_s for truth in truths)
    return 1 - sum(truth.without_s for truth in truths) / length_s if length_s > 0 else float("nan")
