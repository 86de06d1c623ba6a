"""When nothing is judged: at the beginning, after members came or went, and around stages that disturb a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from ..triggers._declare import setting

# A step with one of these is not judged, nor is the next: caches are cold, weights lie elsewhere, engines wake up.
# Unless they are part of most steps, as weight_sync is where rollouts and training take turns.
DISTURBING = ("save_checkpoint", "evaluate", "weight_sync", "sleep", "wake_up")


@dataclass(frozen=True)
class Gates:
    """What is left out of the judging."""

    warm_up: int = setting(10, 0, 100_000, "Steps of a role before any verdict.")
    first: int = setting(2, 0, 1000, "First steps of each stage that count for nothing: compilation, allocation.")
    after_resize: int = setting(5, 0, 1000, "Steps without a verdict after members came or went.")
    after_disturbance: int = setting(1, 0, 1000, "Steps left out after a checkpoint or an evaluation.")


class Holding:
    """Counts the steps of one role, and says which of them are judged."""

    _FOLLOWS, _REGULAR = 0.05, 0.2

    def __init__(self) -> None:
        self.steps = 0
        self._left_out = 0
        self._presence = dict.fromkeys(DISTURBING, 0.0)

    def resized(self, gates: Gates) -> None:
        """Members have come or gone."""
        self._left_out = max(self._left_out, gates.after_resize)

    def is_judged(self, gates: Gates, stages: Iterable[str]) -> tuple[bool, bool]:
        """One step more: is it usable as evidence, and may it lead to a verdict? `stages`: those somebody was in."""
        self.steps += 1
        if self._is_disturbed(set(stages)):
            self._left_out = max(self._left_out, gates.after_disturbance + 1)
        is_left_out = self._left_out > 0
        self._left_out -= is_left_out
        is_evidence = self.steps > gates.first and not is_left_out
        return is_evidence, is_evidence and self.steps > gates.warm_up

    def _is_disturbed(self, stages: set[str]) -> bool:
        """Is there a stage that disturbs, and that is no part of most steps?"""
        is_disturbed = False
        for stage, share in self._presence.items():
            is_there = stage in stages
            is_disturbed |= is_there and share < self._REGULAR and self.steps > 3
            rate = max(self._FOLLOWS, 1 / self.steps)
            self._presence[stage] = share + rate * (is_there - share)
        return is_disturbed
