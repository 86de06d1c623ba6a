"""Has a stage, or the whole step, become slower for everybody, against its own history?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._declare import Trigger, setting

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SlowStage:
    """When has a stage become slower?"""

    effect: float = setting(0.08, 0.01, 10, "Time that it takes more than it did, for the same work, as a share.")
    impact: float = setting(0.02, 0.0, 1, "Share of the step that this is at least.")
    slack: float = setting(1.0, 0.1, 10, "Standard deviations a step that are taken for noise (k).")
    threshold: float = setting(10.0, 1, 1000, "Standard deviations, added up, that are taken for a change (h).")
    asks_at: float = setting(2.5, 1, 1000, "The same, from which on more evidence is asked for.")
    clip: float = setting(3.0, 1, 100, "Standard deviations that one step counts at most.")
    steps: int = setting(5, 1, 1000, "Steps in which it was seen, at least.")


TRIGGER = Trigger("slow_stage", "Has a stage become slower for everybody?", SlowStage)


class Change(NamedTuple):
    """What has been added up for each stage: (K,) each."""

    score: Vector
    steps: Vector
    excess: Vector


def empty(stages: int) -> Change:
    """Nothing has changed."""
    return Change(*(np.zeros(stages) for _ in range(3)))


def added(settings: SlowStage, change: Change, excess: Vector, noise: Vector) -> Change:
    """The sums with one step more; `excess` (K,): logarithm of time over expected time, NaN: not seen."""
    seen = np.isfinite(excess)
    deviations = np.clip(np.where(seen, excess, 0.0) / noise, -settings.clip, settings.clip)
    score = np.where(seen, np.maximum(0.0, change.score + deviations - settings.slack), change.score)
    goes_on = score > 0
    steps = np.where(goes_on, change.steps + seen, 0.0)
    return Change(score, steps, np.where(goes_on, change.excess + np.where(seen, excess, 0.0), 0.0))


def mean_excess(change: Change) -> Vector:
    """(K,) logarithm of time over expected time since it changed."""
    return change.excess / np.maximum(1.0, change.steps)


def fires(settings: SlowStage, change: Change) -> npt.NDArray[np.bool_]:
    """(K,): which have become slower."""
    is_big = mean_excess(change) >= math.log1p(settings.effect)
    return (change.score > settings.threshold) & (change.steps >= settings.steps) & is_big


def asks(settings: SlowStage, change: Change) -> npt.NDArray[np.bool_]:
    """(K,): of which more evidence is worth having."""
    return (change.score > settings.asks_at) & (change.steps >= 2) & (mean_excess(change) > 0.02)
