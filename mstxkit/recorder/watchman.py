"""Starts the process that watches the others of the run on this host for hangs (`incidents/watchman.py`), and starts it
again where it was killed, or gets on no more: on the keeper's background threads, never on one that trains.
"""

from __future__ import annotations

import time
from pathlib import Path

from .. import faults
from ..host import detached, life
from ..host.lease import Lease
from ..store import layout

_MODULE = "mstxkit.incidents.watchman"
# How often it is looked whether there is one, in shared memory. Who lives for a moment needs nobody beside it. Seconds.
_AGAIN_AFTER_S, _AFTER_S, _DOUBLED_AT_MOST = 5.0, 2.0, 7


class WatchmanStarter:
    """The keeper's. From one thread at a time; a forked child makes a new one.
    `words`: run folder, run id, folder of the live files. `hang_s`: how long a range may stay open at least; 0: nobody
    watches. `incidents`: so many are kept. `incidents_bytes`: what they may take.
    `is_on`: does anybody watch?
    """

    def __init__(self, words: tuple[Path, str, Path], hang_s: float, incidents: int, incidents_bytes: int) -> None:
        self._lock, self.is_on = words[2] / layout.WATCH_LOCK, hang_s > 0
        self._words = [*map(str, words), f"{hang_s:g}", str(incidents), str(incidents_bytes)]
        self._next_s, self._lease = time.monotonic() + min(_AFTER_S, hang_s / 2), Lease(self._lock)
        self._starts = 0

    def consider(self) -> None:
        """Start it, if there is none. Never raises. *Cost*: a comparison; every few seconds a look at its lock."""
        if not self.is_on or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _AGAIN_AFTER_S
        detached.reap_children()
        with faults.noted("watchman"):
            if self._lease.is_silent():
                detached.end_process(life.holder_of(self._lock), _MODULE)
                self._lock.unlink(missing_ok=True)  # who hangs so that it cannot end finds later that it is another's
            if self.is_there():
                self._starts = 0
                return
            detached.start_module(_MODULE, self._words)
            # Where it hangs before it has its lock, the run folder answers nothing: no more than a few are to wait.
            self._next_s += _AGAIN_AFTER_S * (2 ** min(self._starts, _DOUBLED_AT_MOST) - 1)
            self._starts += 1

    def is_there(self) -> bool:
        """Does somebody watch? *Cost*: three calls of the kernel, in shared memory."""
        return bool(life.has_holder(self._lock))
