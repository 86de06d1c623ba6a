"""Stalls: is somebody late now and then, more often than chance has it, and not all the time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._declare import Trigger, setting


@dataclass(frozen=True)
class Jitter:
    """When do stalls count?"""

    stall: float = setting(0.05, 0.001, 10, "Share of the step that a stall takes, at least.")
    deviations: float = setting(6.0, 1, 1000, "Standard deviations by which it lies out, at least.")
    impact: float = setting(0.01, 0.0, 1, "Share of all steps that stalls take, at least.")
    usual: float = setting(0.02, 0.0001, 1, "Stalls a step that nobody minds.")
    chance: float = setting(1e-5, 1e-12, 0.1, "Probability of as many by chance, at most.")
    alike: float = setting(0.7, 0.1, 1, "Share of the stalls that are on one rank, or host, for that to be named.")


TRIGGER = Trigger("jitter", "Is somebody late now and then?", Jitter)


def is_fault(settings: Jitter, stalls: int, steps: int) -> bool:
    """Are these more stalls in so many steps than chance has?"""
    return stalls > 2 and _at_least(stalls, settings.usual * steps) <= settings.chance


def _at_least(count: int, mean: float) -> float:
    """Probability of that many or more, of a Poisson distribution."""
    term, below = math.exp(-mean), 0.0
    for number in range(count):
        below += term
        term *= mean / (number + 1)
    return max(0.0, 1 - below) if below < 1 - 1e-9 else term * (1 + mean)
