"""The thread of a process on duty that looks into the control folder again and again."""

from __future__ import annotations

import threading
import time
from typing import Callable

from ... import faults
from ...host import jitter
from ...recorder.background import Background

POLL_S = 0.25


class Watcher:
    """A background thread that polls. It does not survive a fork: end it before, start it again after.

    Args:
        poll: Called every `interval_s`; a mailbox's.
        interval_s: Seconds; a quarter less at most, by the process. A message takes two of them at most to reach every
            process of a host.
    """

    def __init__(self, poll: Callable[[], object], interval_s: float = POLL_S) -> None:
        self._poll, self._cost_ns = poll, 0
        self._interval_s = jitter.own_period_s(interval_s, "poll")
        self._urgent = threading.Event()
        self.background = Background("mstxkit-control", self._look, self._urgent.set)

    def start(self) -> None:
        """Start polling, at once; nothing where it polls."""
        self.background.start()

    def stop(self, deadline: float | None = None) -> bool:
        """End the thread, and wait for it, at most until `deadline` of `time.monotonic`. Has one ended?"""
        return self.background.pause(deadline)

    def look_now(self) -> None:
        """Let it poll now, and not only after its interval."""
        self._urgent.set()

    def take_cost_ns(self) -> int:
        """CPU time of the thread since the last call."""
        cost_ns, self._cost_ns = self._cost_ns, 0
        return cost_ns

    def _look(self) -> bool:
        before = time.thread_time_ns()
        self._urgent.clear()
        try:
            self._poll()
        except Exception as exc:  # the next look may succeed, and nobody else looks
            faults.note("control.watcher", exc)
        self._cost_ns += time.thread_time_ns() - before
        if not self.background.is_pausing:
            self._urgent.wait(self._interval_s)
        return True
