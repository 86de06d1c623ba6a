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

from ._declare import Trigger, setting

Matrix = npt.NDArray[np.float64]
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


TRIGGER = Trigger("slow_rank", "Which rank takes longer than the others for the same work?", SlowRank)


class RankSums(NamedTuple):
    """What has been added up for each rank and stage: (M, K) each.

    Args:
        score: Standard deviations above the slack, never below 0.
        steps: Steps since the score was next to nothing.
        excess: Sum over these steps of the logarithm of time over expected time.
    """

    score: Matrix
    steps: Matrix
    excess: Matrix


def empty(ranks: int, stages: int) -> RankSums:
    """Nothing has been seen."""
    return RankSums(*(np.zeros((ranks, stages)) for _ in range(3)))


def threshold(settings: SlowRank, compared: int) -> float:
    """The sum from which on it is a fault, where so many are compared: as rare for many as for few."""
    return settings.threshold + math.log(max(1.0, compared / COMPARED_BY_DEFAULT)) / (2 * settings.slack)


def added(settings: SlowRank, sums: RankSums, excess: Matrix, noise: Matrix) -> RankSums:
    """The sums with one step more.

    Args:
        settings: Of this trigger.
        sums: So far.
        excess: (M, K) logarithm of time over expected time; NaN: not seen in this step, which changes nothing.
        noise: (K,) its standard deviation in healthy steps.
    """
    seen = np.isfinite(excess)
    deviations = np.clip(np.where(seen, excess, 0.0) / noise, -settings.clip, settings.clip)
    score = np.where(seen, np.maximum(0.0, sums.score + deviations - settings.slack), sums.score)
    goes_on, has_begun = score > 0, (sums.score > _NOISE_SCORE) | ~seen
    steps = np.where(goes_on, np.where(has_begun, sums.steps, 0.0) + seen, 0.0)
    total = np.where(goes_on, np.where(has_begun, sums.excess, 0.0) + np.where(seen, excess, 0.0), 0.0)
    return RankSums(score, steps, total)


def fires(settings: SlowRank, sums: RankSums, compared: int) -> Truths:
    """(M, K): who is slow, and where."""
    mean = sums.excess / np.maximum(1.0, sums.steps)
    is_big = mean >= math.log1p(settings.effect)
    return (sums.score > threshold(settings, compared)) & (sums.steps >= settings.steps) & is_big
