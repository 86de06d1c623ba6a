"""Which stages have become slower for everybody, against their own history."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._declare import setting
from .slow_rank import AddedUp


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


TRIGGER = SlowStage


def find_slower(settings: SlowStage, change: AddedUp) -> npt.NDArray[np.bool_]:
    """(K,): which have become slower."""
    is_big = change.mean >= math.log1p(settings.effect)
    return (change.score > settings.threshold) & (change.steps >= settings.steps) & is_big


def find_suspected(settings: SlowStage, change: AddedUp) -> npt.NDArray[np.bool_]:
    """(K,): of which more evidence is worth having."""
    return (change.score > settings.asks_at) & (change.steps >= 2) & (change.mean > 0.02)
