"""Which ranks take longer than the others for the same work, in what they do without waiting for each other.

The logarithm of the time is predicted from the work that was done. What is left is added up step by step (CUSUM): a
rank that is slower in every step stands out after a few steps, a rank that was slow once does not.
Source of k and h: half of the shift that is to be found, of a tenth in times whose noise is about as large; h by the
false alarms of seeds 0 to 19 of `testing.simulator`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._declare import setting

Sums = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]
# A score below this is noise of a single step: what comes after it has begun with the next one.
_NOISE_SCORE = 1.0
# For so many comparisons `threshold` is meant as it stands.
COMPARED_BY_DEFAULT = 64


@dataclass(frozen=True)
class SlowRank:
    """When is a rank slow?"""

    effect: float = setting(0.04, 0.01, 10, "Time that it takes more than the others for the same work, as a share.")
    impact: float = setting(0.015, 0.0, 1, "Share of the step that this is at least.")
    slack: float = setting(0.5, 0.1, 10, "Standard deviations a step that are taken for noise (k).")
    threshold: float = setting(12.0, 1, 1000, "Standard deviations, added up, that are taken for a fault (h).")
    clip: float = setting(4.0, 1, 100, "Standard deviations that one step counts at most.")
    steps: int = setting(3, 1, 1000, "Steps in which it was seen, at least.")
    apart: float = setting(4.0, 0, 100, "By how many times the ranks' usual spread it stands out.")


TRIGGER = SlowRank


class AddedUp(NamedTuple):
    """What has been added up for each rank and stage, (M, K) each, or for each stage, (K,) each.

    Args:
        score: Standard deviations above the slack, never below 0.
        steps: Steps since the score was next to nothing.
        excess: Sum over these steps of the logarithm of time over expected time.
    """

    score: Sums
    steps: Sums
    excess: Sums

    @property
    def mean(self) -> Sums:
        """Logarithm of time over expected time since it began."""
        return np.asarray(self.excess / np.maximum(1.0, self.steps))

    def of(self, stages: npt.NDArray[np.int64]) -> AddedUp:
        """That of some stages: a copy."""
        return AddedUp(*(part[..., stages] for part in self))

    def put(self, stages: npt.NDArray[np.int64], new: AddedUp) -> None:
        """That of some stages is this from now on."""
        for part, values in zip(self, new):
            part[..., stages] = values


def empty_sums(*shape: int) -> AddedUp:
    """Nothing has been seen."""
    return AddedUp(*(np.zeros(shape) for _ in range(3)))


def threshold_for(settings: SlowRank, compared: int) -> float:
    """The sum from which on it is a fault, where so many are compared: as rare for many as for few."""
    return settings.threshold + math.log(max(1.0, compared / COMPARED_BY_DEFAULT)) / (2 * settings.slack)


def added(sums: AddedUp, excess: Sums, noise: Sums, slack: float, clip: float, begins: float = _NOISE_SCORE) -> AddedUp:
    """The sums with one step more.

    Args:
        sums: So far.
        excess: (M, K) logarithm of time over expected time; NaN: not seen in this step, which changes nothing.
        noise: (K,) its standard deviation in healthy steps.
        slack, clip: Of the settings.
        begins: Up to this score it is noise, and what comes after it has begun with the next step.
    """
    seen = np.isfinite(excess)
    deviations = np.clip(np.where(seen, excess, 0.0) / noise, -clip, clip)
    score = np.where(seen, np.maximum(0.0, sums.score + deviations - slack), sums.score)
    goes_on, has_begun = score > 0, (sums.score > begins) | ~seen
    steps = np.where(goes_on, np.where(has_begun, sums.steps, 0.0) + seen, 0.0)
    total = np.where(goes_on, np.where(has_begun, sums.excess, 0.0) + np.where(seen, excess, 0.0), 0.0)
    return AddedUp(score, steps, total)


def find_slow(settings: SlowRank, sums: AddedUp, compared: int) -> Truths:
    """(M, K): who is slow, and where."""
    is_big = sums.mean >= math.log1p(settings.effect)
    return (sums.score > threshold_for(settings, compared)) & (sums.steps >= settings.steps) & is_big
