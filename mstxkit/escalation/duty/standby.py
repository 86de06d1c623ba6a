"""Goes on duty once there is something to be asked for: when this process has entered a stage, and knows its rank.

A process that has no stage (a data loader, a driver that only waits) costs one look a second, and writes nothing.
Where windows are planned, it is the first stage or step itself that brings the process on duty: it may be in one.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from ... import faults
from ...engine.choose import engine
from ...pieces import boundaries
from ...profiling import theirs
from ..machine import plans
from .post import own_rank, post_here
from .settings import DutySettings

if TYPE_CHECKING:
    from ...recorder.background import Background
    from .duty import Duty


WAITS_AT_MOST_S = 0.05


class Standby:
    """From the start of capture to its end. `place`: the run's folder, its id, its folder on this host.

    Threads/fork: `consider` is for the recorder's background thread; all others for `capturing`. A forked
        child begins anew.
    """

    def __init__(self, place: tuple[Path, str, Path], settings: DutySettings) -> None:
        self._place, self._settings = place, settings
        self._lock = threading.Lock()
        self._duty: Duty | None = None
        self._is_over = settings.poll_every_s <= 0
        self._look_away = theirs.watch() if settings.poll_every_s > 0 else None
        self._expects_since: int | None = None  # the process in which the hooks are this object's
        self._origin: int | None = None
        self._was_tried = False
        # What is done beside each look into the control folder while nothing goes on; must not raise.
        self.each_look: Callable[[], object] = lambda: None

    def consider(self) -> int:
        """Is it time? Never raises. Returns: CPU time of the watcher's thread since the last call, ns."""
        duty = self._duty
        if duty is not None and not (duty.post.is_assumed and duty.retire()):
            return duty.cost_ns()
        if duty is not None and duty.origin is not None:
            self._origin = duty.origin
        self._duty = None
        if not self._is_over and engine.stages_seen():
            with self._lock:
                try:
                    self._begin()
                except Exception as exc:
                    self._is_over = True
                    faults.note("control.standby", exc)
        return 0

    def _begin(self) -> None:
        from .duty import Duty

        post = None if self._is_over or self._duty is not None else post_here(*self._place)
        # Before the first step the rank of many is still to be learnt: none records its windows as rank 0.
        is_early = post is not None and post.is_assumed and engine.current_step() is None
        if post is not None and not (is_early and self._settings.planned):
            duty = Duty(post, self._settings, origin=self._origin, beside=self.each_look)
            if self._settings.planned:
                duty.look()
            self._expects_since = None  # its hooks replace ours
            duty.start()
            self._duty = duty

    def expect_plans(self) -> None:
        """Windows are planned in this run: go on duty with the first stage or step. Only while configuring: it loads
        what a duty needs.
        """
        from . import duty  # noqa: F401  (loaded here, so that the first stage does not wait for it)

        if self._duty is None and not self._is_over:
            self._settings = self._settings._replace(planned=1)
            self._expects_since = os.getpid()
            engine.set_watch(self._first_entered, None, self._first_stepped)
            engine.watch(True)

    def _first_entered(self, site: Any, may_move: bool) -> None:
        step = engine.current_step()
        if self._origin is None and step is not None and plans.is_of_a_step(boundaries.stage_of(site)):
            self._origin = step
        duty = self._begun_at_once()
        if duty is not None:
            duty.entered(site, may_move)
        elif self._origin is not None and self._lock.acquire(blocking=False):  # else another thread is going on duty
            try:
                self._expect_no_more()  # with no post, or none yet, no stage need be seen any more
            finally:
                self._lock.release()

    def _first_stepped(self, step: int) -> None:
        duty = self._begun_at_once()
        if duty is not None:
            duty.stepped(step)

    def _begun_at_once(self) -> Duty | None:
        """Go on duty now, on another thread, for which this one waits 50 ms: the run's folder may hang."""
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
                self._begin()
            except Exception as exc:
                faults.note("control.standby", exc)

    def _expect_no_more(self) -> None:
        """The hooks are nobody's again."""
        if self._expects_since == os.getpid():
            engine.watch(False)
            engine.set_watch(None, None, None)
        self._expects_since = None

    @property
    def background(self) -> Background | None:
        """The thread, which ends before a fork and is started again in the parent; None: there is none yet."""
        return None if self._duty is None else self._duty.watcher.background

    def forget(self) -> None:
        """In a forked child: what the thread waits on is its parent's."""
        if self._duty is not None:
            self._duty.watcher.forget()

    def stop(self, deadline: float | None = None) -> None:
        """Capture ends: what is open is closed on this thread, and said, if the run folder answers by `deadline`."""
        with self._lock:
            self._is_over = True
            self._expect_no_more()
        duty = self._duty  # the background thread may just be letting go of it
        if duty is not None:
            duty.stop(deadline)
        if self._look_away is not None:
            self._look_away()

    @property
    def is_on_duty(self) -> bool:
        """Does it look into the control folder?"""
        return self._duty is not None

    def doing(self) -> str | None:
        """What is recorded now, in words; None while nothing is."""
        duty = self._duty
        return None if duty is None else duty.doing()
