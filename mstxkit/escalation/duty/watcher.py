"""The thread of a process on duty that looks into the control folder again and again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable, Sequence

from ... import faults
from ...host import jitter
from ...host.folder_events import FolderEvents
from ...host.threads import Latch
from ...recorder.background import Background

POLL_S = 0.25
# How often a process looks while nothing is going on: who is told of news, and who reads a shared folder for his host.
# Who has just begun enters stages for the first time, and is asked for them by name: its first looks come sooner.
TOLD_S, ASKING_S = 30.0, 1.0


class Watcher:
    """A background thread that polls. It does not survive a fork: end it before, start it again after.
    `poll`: called every `interval_s`; a mailbox's. `interval_s`: seconds; a quarter less at most, by the process. A
    message takes two of them at most to reach every process of a host. `places`: into which folders news come; `None`:
    something is going on. While the kernel tells of all of them, and nothing goes on, seconds between two looks are
    enough; one second where there are none to be told of, and where the kernel refuses to tell. `beside`: done at each
    look while nothing goes on: it costs less than waking another thread for it.
    """

    def __init__(
        self, poll: Callable[[], object], interval_s: float = POLL_S,
        places: Callable[[], Sequence[Path] | None] = lambda: None, beside: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._poll, self._places, self._beside, self._cost_ns = poll, places, beside, 0
        self._interval_s = jitter.own_period_s(interval_s, "poll")
        self._told_s, self._asking_s = (jitter.own_period_s(period_s, "quiet") for period_s in (TOLD_S, ASKING_S))
        self._first_s = self._asking_s
        self._urgent = Latch()
        self._events = FolderEvents()
        self.background = Background("mstxkit-control", self._look, self.look_now)

    def serve(self, poll: Callable[[], object], places: Callable[[], Sequence[Path] | None]) -> None:
        """Poll this from now on, and that soon."""
        self._poll, self._places = poll, places
        self.look_now()

    def start(self) -> None:
        """Start polling, at once; nothing where it polls."""
        self.background.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self.background.pause()
        self.forget()

    def forget(self) -> None:
        """Close what it waits on; a forked child, which shares it. Its parent keeps it: to close it takes 10 ms."""
        self._events.close()

    def look_now(self) -> None:
        """Let it poll now, and not only after its interval."""
        self._urgent.set()
        self._events.wake()

    def take_cost_ns(self) -> int:
        """CPU time of the thread since the last call."""
        cost_ns, self._cost_ns = self._cost_ns, 0
        return cost_ns

    def _look(self) -> bool:
        before = time.thread_time_ns()
        self._urgent.clear()
        wait_s = self._interval_s
        try:
            can_wait = self._events.open()
            self._poll()
            places = self._places() if can_wait else None
            if places is not None:
                wait_s = self._until_next_s(places)
                self._beside()
        except Exception as exc:  # the next look may succeed, and nobody else looks
            faults.note_fault("control.watcher", exc)
        self._cost_ns += time.thread_time_ns() - before
        if not (self.background.is_pausing or self._urgent.is_set):
            wait = self._events.wait if self._events.open() else self._urgent.wait
            self.background.rest(lambda: wait(wait_s))
        return True

    def _until_next_s(self, places: Sequence[Path]) -> float:
        """Nothing goes on. Where the kernel refuses to tell of news, as a host of many processes uses up its limits, a
        look a second has to do.
        """
        is_told = bool(places) and self._events.watch(places)
        if is_told and self._events.is_new:
            return 0.0  # news may have come since the look and before that
        if places and not is_told and not self._events.is_refused:
            return self._interval_s
        if is_told:  # twice as long each time, until it is long enough
            self._first_s = min(self._told_s, 2 * self._first_s)
        return max(self._interval_s, self._first_s if is_told else self._asking_s)
