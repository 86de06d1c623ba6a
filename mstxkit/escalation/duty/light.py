"""Light capture on duty: short sessions of all stages, by a schedule of steps, which give way to an escalation."""

from __future__ import annotations

import threading
from typing import Callable

from ... import faults
from ...profiling import backends, profilers
from ...profiling.schedule import Schedule
from ...profiling.session import OneSession, Order

_WITHOUT_DEVICE = "torch"  # torch.profiler sees the host alone: the light preset has nothing to record there


class LightOnDuty:
    """Light sessions over whole steps, by a schedule: they give way to an escalation and return.

    All calls come from the thread that trains, at its steps and around escalated sessions: none raises, and where a
    light session cannot begin, training goes on without one until the schedule's next window. `session` is the
    process's only one, which escalations use too; `order` says what a light session of a step is to be.
    """

    def __init__(self, schedule: Schedule | None, session: OneSession, order: Callable[[int], Order]) -> None:
        self._schedule, self._session, self._order = schedule, session, order
        self._step: int | None = None
        self._steps: list[int] = []  # of the light session that is open
        self._is_paused = self._is_over = False
        self._thread = 0  # of the light session that is open
        self._gave_way = ""  # in this step, and why
        self._gave_up_at: int | None = None  # a window
        self._later = 0  # so many steps, as another process has the device in those of the schedule

    def stepped(self, step: int) -> None:
        """Begin or end by the schedule; a step that is not in it, or the next window's, ends what is open."""
        if self._schedule is None:
            return
        waits = self._session.claim.wanted_by if self._steps and self._session.claim else None
        if waits is not None and waits.stage != "light":  # another light capture waits for the window's end
            self._gave_way = f"process {waits.pid} waits to record {waits.stage}"
        gave_way, self._step, self._gave_way, window = self._gave_way, step, "", self._window(step)
        if self._steps and (gave_way or self._is_paused or window != self._window(self._steps[0])):
            self._end(gave_way or "the schedule's steps are over")
        if self._is_paused:
            return
        if self._steps:
            self._steps.append(step)
        else:
            self._begin(step)

    def pause(self) -> None:
        """End what is open; it goes on as a session of its own after `resume`."""
        self._is_paused = True
        self._end("an escalation")

    def resume(self) -> None:
        """Go on, if this step is still one of the schedule's."""
        was_paused, self._is_paused = self._is_paused, self._is_over
        if was_paused and not self._is_paused and self._step is not None:
            self._begin(self._step)

    def give_way(self, why: str) -> None:
        """Somebody else's profiler is about to begin: end what is open, if it is this thread's, else at its next step.
        No light session begins in this one any more.
        """
        self._gave_way = why
        if self._thread == threading.get_ident():
            self._end(why)

    def finish(self) -> None:
        """The process ends."""
        self._is_paused = self._is_over = True
        self._end("the end of the process")

    def _begin(self, step: int) -> None:
        schedule, window = self._schedule, self._window(step)
        if schedule is None or window is None or self._steps or window == self._gave_up_at:
            return
        theirs = "" if self._session.is_open else profilers.in_the_way()
        if theirs or self._gave_way:
            waits = self._gave_way or f"it waits for {theirs}"
            faults.warn_once("light capture", f"no light capture in step {step}: {waits}")
            return
        if self._session.claim is not None and self._session.claim.is_left():
            faults.say_once("light capture takes turns with another process, which records on this device too")
            return
        problem = self._why_not(schedule) or self._session.begin(self._order(step))
        if problem is None:
            self._steps, self._thread = [step], threading.get_ident()
            return
        if self._session.taken_by:  # from now on right after it; without gaps, again in each step until it lets go
            self._later = (self._later + (schedule.steps % schedule.every or 1)) % schedule.every
            faults.say_once(f"light capture waits: {self._session.taken_by}")
            return
        self._gave_up_at = window
        faults.warn_once("light capture", f"no light capture in step {step}: {problem}")

    def _window(self, step: int) -> int | None:
        """In which window of this process's this step is; None: in none."""
        step, schedule = step - self._later, self._schedule
        return step // schedule.every if schedule is not None and schedule.wants(step) else None

    def _why_not(self, schedule: Schedule) -> str | None:
        if self._session.is_open:
            return "another session is open"
        backend, refused = backends.find_profiler()
        if backend == _WITHOUT_DEVICE and not schedule.any_device:
            return "this process has no NPU; add 'any device' to the schedule to record all the same"
        return None if backend else "; ".join(f"{name}: {why}" for name, why in refused.items())

    def _end(self, why: str) -> None:
        steps, self._steps = self._steps, []
        if steps:
            self._session.end(why, steps)
            if self._session.is_open:  # it began on another thread, which ends it at its next step
                self._steps = steps
