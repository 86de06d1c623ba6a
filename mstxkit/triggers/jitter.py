"""Stalls: is somebody late now and then, more often than chance has it, and not all the time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._declare import setting


@dataclass(frozen=True)
class Jitter:
    """When do stalls count?"""

    stall: float = setting(0.05, 0.001, 10, "Share of the step that a stall takes, at least.")
    deviations: float = setting(6.0, 1, 1000, "Standard deviations by which it lies out, at least.")
    impact: float = setting(0.01, 0.0, 1, "Share of all steps that one rank's stalls take, or one host's.")
    spread: float = setting(0.03, 0.0, 1, "The same of all stalls together.")
    alike: float = setting(0.7, 0.1, 1, "Share of that from which on one rank alone may be named.")
    usual: float = setting(0.01, 0.0001, 1, "Stalls a step that nobody minds.")
    chance: float = setting(1e-5, 1e-12, 0.1, "Probability of as many by chance, at most.")


TRIGGER = Jitter


def is_fault(settings: Jitter, stalls: int, usual: float, among: int = 1) -> bool:
    """Are these more stalls than chance has (Poisson's) of the one with most among so many, if so many are usual?"""
    numbers = range(stalls, stalls + 200)
    as_many = sum(math.exp(number * math.log(usual) - usual - math.lgamma(number + 1)) for number in numbers)
    return stalls > 2 and among * as_many <= settings.chance
