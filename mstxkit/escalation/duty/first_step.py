"""The first stage or step of a process for which windows are planned: it may be in one, so it brings the process on
duty at once.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Callable

from ... import faults
from ...engine.choose import engine
from ...pieces import boundaries
from ..machine import plans
from .duty import Duty
from .post import own_rank

if TYPE_CHECKING:
    from .sentry import Sentry

WAITS_AT_MOST_S = 0.05


class FirstStep:
    """Expects it from now on, by the engine's hooks. For the thread that trains.
    `lock`: held by who goes on duty, and who stops. `begin`: goes on duty, and gives who is on duty by now. Called on
    another thread, as the run's folder may hang.
    `origin`: the step in which this process first entered a stage of one; None while that is not known.
    """

    def __init__(self, lock: threading.Lock, begin: Callable[[], Duty | Sentry | None]) -> None:
        self._lock, self._begin, self._was_tried = lock, begin, False
        self._duty: Duty | None = None
        self._pid: int | None = os.getpid()  # of the process in which the hooks are this object's
        self.origin: int | None = None
        engine.set_watch(self._entered, None, self._stepped)
        engine.watch(True)

    def _entered(self, site: Any, may_move: bool) -> None:
        step = engine.current_step()
        if self.origin is None and step is not None and plans.is_of_a_step(boundaries.stage_of(site)):
            self.origin = step
        duty = self._begun_at_once()
        if duty is not None:
            duty.entered(site, may_move)
        elif self.origin is not None and self._lock.acquire(blocking=False):  # else another thread is going on duty
            try:
                self.give_up()  # with no post, or none yet, no stage need be seen any more
            finally:
                self._lock.release()

    def _stepped(self, step: int) -> None:
        duty = self._begun_at_once()
        if duty is not None:
            duty.stepped(step)

    def _begun_at_once(self) -> Duty | None:
        """Go on duty now, on another thread, for which this one waits 50 ms."""
        if self._was_tried or own_rank() is None or engine.current_step() is None:
            return None
        self._was_tried = True
        thread = threading.Thread(target=self._begin_aside, name="mstxkit-first", daemon=True)
        thread.start()
        thread.join(WAITS_AT_MOST_S)
        if thread.is_alive():
            faults.warn_once("plans", "the run folder was slow: a window that was planned for the first step is missed")
            return None
        return self._duty

    def _begin_aside(self) -> None:
        with self._lock:
            try:
                guard = self._begin()
                self._duty = guard if isinstance(guard, Duty) else None
            except Exception as exc:
                faults.note_fault("control.standby", exc)

    def is_over(self) -> None:
        """Somebody else's hooks replace these."""
        self._pid = None

    def give_up(self) -> None:
        """The hooks are nobody's again, if they are still these. With the lock."""
        if self._pid == os.getpid():
            engine.watch(False)
            engine.set_watch(None, None, None)
        self._pid = None
