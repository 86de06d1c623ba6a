"""Goes on duty once there is something to be asked for: when this process has entered a stage, and knows its rank.

A process that has no stage (a data loader, a driver that only waits) costs one look a second, and writes nothing. One
that has stands by (`sentry.py`) until the first message comes. Where windows are planned, it is the first stage or step
itself that brings the process on duty: it may be in one.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Callable

from ... import faults
from ...engine.choose import engine
from ...host import identity, imports
from ...recorder.background import ENDS_WITHIN_S, Background
from ...stages import meant_by
from .settings import DutySettings

if TYPE_CHECKING:
    from .duty import Duty
    from .first_step import FirstStep
    from .sentry import Sentry

# With these come profilers that are not ours (`profiling/theirs.py`).
_PROFILED = ("torch", "torch_npu", "mindspore")


class Standby:
    """From the start of capture to its end. `place`: the run's folder, its id, its folder on this host.

    Threads/fork: `consider` is for the recorder's background thread; all others for `capturing`. A forked
        child begins anew.
    """

    def __init__(self, place: tuple[Path, str, Path], settings: DutySettings) -> None:
        self._place, self._settings = place, settings
        self._lock = threading.Lock()
        self._guard: Duty | Sentry | None = None
        self._is_over = settings.poll_every_s <= 0
        self._first_step: FirstStep | None = None
        self._origin: int | None = None
        self._names = 0  # of stages that were looked at
        # What is done beside each look into the control folder while nothing goes on; must not raise.
        self.each_look: Callable[[], object] = lambda: None
        self._look_away: Callable[[], None] | None = None
        self._looks_on: imports.Hook = self._look_on
        for name in _PROFILED if not self._is_over else ():
            imports.when_imported(name, self._looks_on)

    def _look_on(self, _: ModuleType) -> None:
        from ...profiling import theirs

        if self._look_away is None:
            self._look_away = theirs.watch_profilers()

    def consider(self) -> int:
        """Is it time? Never raises. Returns: CPU time of the watcher's thread since the last call, ns."""
        self._look_at_names()
        guard = self._guard
        was_assumed = guard is not None and guard.post.is_assumed and identity.read_current()["rank"] is not None
        if guard is not None and not (was_assumed and guard.retire()):
            return guard.cost_ns()
        if guard is not None and guard.origin is not None:
            self._origin = guard.origin
        if guard is self._guard:  # else it has gone on duty meanwhile, and retires the next time
            self._guard = None
        if not self._is_over and engine.stages_seen():
            with self._lock:
                try:
                    self._begin()
                except Exception as exc:
                    self._is_over = True
                    faults.note_fault("control.standby", exc)
        return 0

    def _look_at_names(self) -> None:
        """Say once what a stage's name is nearly like: no tool takes it for that. Of many ranks the first says it."""
        names = engine.stages_seen()[self._names :]
        self._names += len(names)
        for name in names if names and identity.read_current()["rank"] in (None, 0) else ():
            if (meant := meant_by(name)) is not None:
                faults.say_once(f"no stage that mstxkit knows is called {name!r}: {meant!r} may be meant")

    def _begin(self) -> Duty | Sentry | None:
        if self._is_over or self._guard is not None:
            return self._guard
        from .post import post_here
        from .sentry import Sentry

        post = post_here(*self._place)
        # Before the first step the rank of many is still to be learnt: none records its windows as rank 0.
        is_early = post is not None and post.is_assumed and engine.process_step() is None
        if post is None or (is_early and self._settings.planned):
            return None
        sentry = Sentry(post, self._settings, self._relieve, self.each_look)
        if self._settings.planned or self._settings.light is not None or sentry.memory() is not None:
            self._go_on_duty(sentry)
        else:
            self._guard = sentry
            sentry.watcher.start()
        return self._guard

    def _relieve(self, sentry: Sentry) -> None:
        """On the watcher's thread: a message is there."""
        from . import duty  # noqa: F401  (before the lock, for which the end of capture may wait)

        with self._lock:
            if self._guard is sentry and not self._is_over:
                self._go_on_duty(sentry)

    def _go_on_duty(self, sentry: Sentry) -> None:
        from . import duty

        origin = self._origin if self._origin is not None or self._first_step is None else self._first_step.origin
        guard = duty.Duty(sentry, self._settings, origin=origin)
        if self._settings.planned:
            guard.look()
        if self._first_step is not None:
            self._first_step.is_over()
        guard.start()
        self._guard = guard

    def expect_plans(self) -> None:
        """Windows are planned in this run: go on duty with the first stage or step. Only while configuring: it loads
        what a duty needs.
        """
        from .first_step import FirstStep

        if self._guard is None and not self._is_over:
            self._settings = self._settings._replace(planned=1)
            self._first_step = FirstStep(self._lock, self._begin)

    @property
    def background(self) -> Background | None:
        """The thread, which ends before a fork and is started again in the parent; None: there is none yet."""
        guard = self._guard
        return None if guard is None else guard.watcher.background

    def forget(self) -> None:
        """In a forked child: what the thread waits on is its parent's, and whoever looks on is forgotten there."""
        self._look_away = None
        self._look_no_more()
        if self._guard is not None:
            self._guard.watcher.forget()

    def _look_no_more(self) -> None:
        for name in _PROFILED:
            imports.forget_hook(name, self._looks_on)
        if self._look_away is not None:
            self._look_away()

    def stop(self, deadline: float | None = None) -> None:
        """Capture ends: what is open is closed on this thread, and said, if the run folder answers by `deadline`."""
        self._is_over = True
        is_alone = self._lock.acquire(timeout=ENDS_WITHIN_S)  # else a finalizer of the program is in it
        if self._first_step is not None:
            self._first_step.give_up()
        if is_alone:
            self._lock.release()
        guard = self._guard  # the background thread may just be letting go of it
        if guard is not None:
            guard.stop(deadline)
        self._look_no_more()

    def doing(self) -> str | None:
        """What is recorded now, in words; None while nothing is."""
        guard = self._guard
        return None if guard is None else guard.doing()
