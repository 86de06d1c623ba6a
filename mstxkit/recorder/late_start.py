"""A forked child begins to record with its first range or mark, or a second after its fork; a process whose run folder
does not answer when it begins, once that does.

Programs fork for each sample of a batch. What a child takes that has nothing to say is a thread that sleeps: a live
file, locks, threads and descriptors come with the recorder.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import Any, Callable

from .. import faults
from ..engine.choose import engine
from ..errors import CaptureError
from ..host.threads import Latch
from .background import Background
from .forking import WAITS_AT_MOST_S

_AFTER_S = 1.0  # a child that lives so long is looked after, whatever it does
# Its first range waits for what hangs as long as a fork does; beyond that, so long, while all it lacks is a CPU.
_LACKS_CPU_AT_MOST_S, _LOOKS_EVERY_S = 2.0, 0.01


class LateChildren:
    """Those that could not begin, or not in time for their first range, as who is another user by then: a page that
    their parent shares with them. Two at once whose pids are alike there count as one.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    def add(self, pid: int) -> None:
        """In such a child, which has nothing else yet."""
        self._page[pid % mmap.PAGESIZE] = 1

    def count(self) -> None:
        """In the parent, now and then: those since the last time are among its faults, in the run too."""
        for _ in range(bytes(self._page).count(1)):
            faults.count_event("a late child")
            engine.count_fault()
            self._page[self._page.find(b"\1")] = 0


class LateStart:
    """Begins in a thread of its own, so that nobody waits for a run folder that hangs.
    `parent`: the recorder of whoever forked this process, which is not touched; or a `SlowFolder`. `begin`: called
    once, in that thread; raises nothing but CaptureError. `is_ready`: called again and again before that: may it begin,
    within so many seconds?

    Threads/fork: any thread. A forked child makes a new one.
    """

    def __init__(
        self, parent: Any, begin: Callable[[Any], None], is_ready: Callable[[float], bool] = lambda wait_s: True
    ) -> None:
        self.parent, self.pid, self._begin, self._is_ready = parent, os.getpid(), begin, is_ready
        self._due_s, self._asked, self._begun = time.monotonic() + _AFTER_S, Latch(), Latch()
        self._background = Background("mstxkit-begin", self._turn, self._asked.set)

    def start(self) -> None:
        """Wait for the first range, here or again after `leave_off`. Raises RuntimeError: no thread can be started."""
        self._asked.clear()
        self._background.start()
        if self._is_ready(0.0):
            engine.await_first(self._at_first)

    def leave_off(self, deadline: float) -> bool:
        """End the thread, around a fork or for good. Has one ended?"""
        engine.await_first(None)
        return self._background.pause(deadline)

    def now(self, wait_s: float) -> bool:
        """Begin now. Has it begun, within so many seconds?"""
        self._due_s = 0.0
        self._asked.set()
        return self._begun.wait(wait_s)

    def _at_first(self) -> None:
        hung_s, deadline_s = 0.0, time.monotonic() + _LACKS_CPU_AT_MOST_S
        while not self.now(_LOOKS_EVERY_S):
            hung_s += 0.0 if self._background.lacks_cpu else _LOOKS_EVERY_S
            if hung_s >= WAITS_AT_MOST_S or time.monotonic() > deadline_s:
                engine.await_first(None)  # which counts as recording
                if not engine.recording():  # else it has begun, but for what comes last
                    faults.count_event("a late child")  # not logged: a program may fork for each sample of a batch
                    self.parent.late_children.add(self.pid)
                return

    def _turn(self) -> bool:
        self._asked.wait(max(0.0, self._due_s - time.monotonic()))
        if not self._is_ready(_LOOKS_EVERY_S) or self._background.is_pausing:
            return True
        try:
            self._begin(self.parent)
        except CaptureError as exc:  # one line for each child of a program that forks all the time, and no traceback
            faults.warn_once("capturing.late", f"process {self.pid} is not recorded: {exc}")
            self.parent.late_children.add(self.pid)
        engine.await_first(None)
        self._begun.set()
        return False
