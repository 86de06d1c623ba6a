"""A look at every nth step, whether or not anything seems wrong; off by default."""

from __future__ import annotations

from dataclasses import dataclass

from ._declare import setting


@dataclass(frozen=True)
class EveryN:
    """How often is a step looked at more closely?"""

    steps: int = setting(0, 0, 1_000_000_000, "One light step of each role in so many; 0: none.")


TRIGGER = EveryN


def is_turn(settings: EveryN, step: int) -> bool:
    """Is this step's turn?"""
    return settings.steps > 0 and step > 0 and step % settings.steps == 0
