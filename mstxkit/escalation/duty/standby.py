"""Goes on duty once there is something to be asked for: when this process has entered a stage, and knows its rank.

A process that has no stage (a data loader, a driver that only waits) costs one look a second, and writes nothing.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ... import faults
from ...engine.choose import engine
from .post import post_here
from .settings import DutySettings

if TYPE_CHECKING:
    from .duty import Duty


class Standby:
    """From the start of capture to its end.

    Args:
        place: The run of this process: its folder, its id, its folder on this host.
        settings: What it may do about requests.

    Threads/fork: `consider` is for the recorder's background thread; all others for `capturing`. A forked
        child begins anew.
    """

    def __init__(self, place: tuple[Path, str, Path], settings: DutySettings) -> None:
        self._place, self._settings = place, settings
        self._lock = threading.Lock()
        self._duty: Duty | None = None
        self._is_over = settings.poll_every_s <= 0

    def consider(self) -> int:
        """Is it time? Never raises. Returns: CPU time of the watcher's thread since the last call, ns."""
        duty = self._duty
        if duty is not None and not (duty.post.is_assumed and duty.retire()):
            return duty.cost_ns()
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

        post = None if self._is_over else post_here(*self._place)
        if post is not None:
            duty = Duty(post, self._settings)
            duty.start()
            self._duty = duty

    def park(self, deadline: float | None = None) -> bool:
        """End the thread before a fork, but wait no longer than `deadline`. Has one ended?"""
        return self._duty is not None and self._duty.park(deadline)

    def resume(self) -> None:
        """Start them again, in the parent."""
        if self._duty is not None:
            self._duty.resume()

    def stop(self, deadline: float | None = None) -> None:
        """Capture ends: what is open is closed on this thread, and said, if the run folder answers by `deadline`."""
        with self._lock:
            self._is_over = True
        duty = self._duty  # the background thread may just be letting go of it
        if duty is not None:
            duty.stop(deadline)

    def doing(self) -> str | None:
        """What is recorded now, in words; None while nothing is."""
        duty = self._duty
        return None if duty is None else duty.doing()
