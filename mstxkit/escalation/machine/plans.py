"""Windows that a configuration names: which step of this run each begins at. Pure: no clock, no files.

A configuration counts steps from 1, the run as its loop does. What ties them together is the origin: the step in which
this process first entered a stage of a step. Where that is 0, the loop counts from 0. Every rank places its windows by
itself, so that the first step may be in one; rank 0 says where it places them, and who hears that in time keeps to it.
"""

from __future__ import annotations

from ...store.request import Planned, Request

# Stages that may come before the first step, in a step that is none: verl hands its workers the weights in step 0.
_BEFORE_THE_FIRST = ("weight_sync", "evaluate", "save_checkpoint")


class Placing:
    """The windows whose first step of the run is still to be said, by the id of their request.
    `is_own`: may this rank place them by itself? Not where it may have missed the first step, unless it is rank 0.
    `has_windows`: was any planned here? Then each step matters.
    """

    def __init__(self, is_own: bool) -> None:
        self.is_own, self.has_windows = is_own, False
        self.origin: int | None = None  # as above; None while it is not known
        self._open: dict[str, Planned] = {}

    def add(self, request: Request) -> None:
        """Another request; nothing where it is not planned."""
        if request.planned is not None:
            self._open[request.id] = request.planned
            self.has_windows = True

    def settle(self, id: str) -> None:
        """Its first step is known from elsewhere."""
        self._open.pop(id, None)

    @property
    def seeks_origin(self) -> bool:
        """Is there a window that waits for the origin?"""
        return self.is_own and self.origin is None and bool(self._open)

    def sees(self, stage: str, step: int | None) -> bool:
        """A stage is entered in this step: is that the origin?"""
        if not self.is_own or self.origin is not None or step is None or not is_of_a_step(stage):
            return False
        self.origin = step
        return True

    def take(self) -> dict[str, int]:
        """The first step of each window that can be said by now, once."""
        if self.origin is None:
            return {}
        placed = {id: first_step(planned, self.origin) for id, planned in self._open.items()}
        self._open.clear()
        return placed


def is_of_a_step(stage: str | None) -> bool:
    """Does its entry show that a step has begun?"""
    return stage is not None and stage not in _BEFORE_THE_FIRST


def first_step(planned: Planned, origin: int) -> int:
    """The step of the run at which a planned window begins."""
    if planned.counted_from == "process":
        return origin + planned.first_step - 1
    return planned.first_step - (origin == 0)


def explain_wait(planned: Planned, step: int | None) -> str:
    """Why a planned window is queued, in words; `step`: its first one of the run, None while that is not known."""
    named = planned.first_step
    if step is None:
        return f"planned for step {named}{' of this start' if planned.counted_from == 'process' else ''}"
    return f"planned for step {step}{f', {named} in the configuration' if named != step else ''}"
