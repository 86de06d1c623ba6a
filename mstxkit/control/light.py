"""Light capture on duty: a light session over whole steps, by a schedule, that gives way to an escalation and returns.

All calls come from the thread that trains, at its steps and around escalated sessions: none raises, and where a light
session cannot begin, training goes on without one until the schedule's next window.
"""

from __future__ import annotations

from typing import Callable, Protocol

from .. import faults
from ..profiling.light import Schedule
from ..profiling.session import OneSession, Order, backend_here

STAGE = "light"
_WITHOUT_DEVICE = "torch"  # torch.profiler sees the host alone: the light preset has nothing to record there


class Light(Protocol):
    """What the owner of a machine tells light capture."""

    def stepped(self, step: int) -> None:
        """The thread's step is this from now on."""

    def pause(self) -> None:
        """A session is about to begin: end the light one, and begin none until `resume`."""

    def resume(self) -> None:
        """The session has ended."""


class NoLight:
    """No light capture was asked for."""

    def stepped(self, step: int) -> None:
        """Nothing."""

    def pause(self) -> None:
        """Nothing."""

    def resume(self) -> None:
        """Nothing."""


class LightOnDuty:
    """Light sessions of one rank.

    Args:
        schedule: In which steps.
        session: The process's only session, which escalations use too.
        order: What a light session of a step is to be.
    """

    def __init__(self, schedule: Schedule, session: OneSession, order: Callable[[int], Order]) -> None:
        self._schedule, self._session, self._order = schedule, session, order
        self._step: int | None = None
        self._steps: list[int] = []  # of the light session that is open
        self._is_paused = self._is_over = False
        self._gave_up_at: int | None = None  # a window

    @property
    def is_recording(self) -> bool:
        """Is the open session ours?"""
        return bool(self._steps)

    def stepped(self, step: int) -> None:
        """Begin or end by the schedule; a step that is not in it, or the next window's, ends what is open."""
        self._step = step
        if self.is_recording and (self._is_paused or not self._goes_on(step)):
            self._end("the schedule's steps are over")
        if self._is_paused:
            return
        if self.is_recording:
            self._steps.append(step)
        elif self._schedule.wants(step):
            self._begin(step)

    def pause(self) -> None:
        """End what is open; it goes on as a session of its own after `resume`."""
        self._is_paused = True
        self._end("an escalation")

    def resume(self) -> None:
        """Go on, if this step is still one of the schedule's."""
        self._is_paused = self._is_over
        if not self._is_paused and self._step is not None and self._schedule.wants(self._step):
            self._begin(self._step)

    def finish(self) -> None:
        """The process ends."""
        self._is_paused = self._is_over = True
        self._end("the end of the process")

    def _goes_on(self, step: int) -> bool:
        return self._schedule.wants(step) and self._window(step) == self._window(self._steps[0])

    def _window(self, step: int) -> int:
        return step // self._schedule.every

    def _begin(self, step: int) -> None:
        if self.is_recording or self._window(step) == self._gave_up_at:
            return
        problem = self._why_not() or self._session.begin(self._order(step))
        if problem is None:
            self._steps = [step]
        else:
            self._gave_up_at = self._window(step)
            faults.warn_once("light capture", f"no light capture in step {step}: {problem}")

    def _why_not(self) -> str | None:
        if self._session.is_open:
            return "another session is open"
        backend, refused = backend_here()
        if backend == _WITHOUT_DEVICE and not self._schedule.any_device:
            return "this process has no NPU; add 'any device' to the schedule to record all the same"
        return None if backend else "; ".join(f"{name}: {why}" for name, why in refused.items())

    def _end(self, why: str) -> None:
        steps, self._steps = self._steps, []
        if steps:
            self._session.end(why, steps)
            if self._session.is_open:  # it began on another thread, which ends it at its next step
                self._steps = steps
