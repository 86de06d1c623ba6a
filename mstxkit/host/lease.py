"""Who holds a lock shows now and then that it gets on, by when its file was touched last.

The dead let go of their locks. Who is stopped, starved, or hangs in a call, lives on, and shows nothing.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

# Who shows nothing for so long is followed by another one; a look that is late itself counts for so much at most.
SILENT_S, LOOK_AT_MOST_S = 15.0, 5.0
# After each that was followed in vain twice as long is waited; who gets on is trusted again, little by little.
_DOUBLED, _EASED = 2.0, 0.9


def show_life(lock: int) -> None:
    """Show that it gets on, by the descriptor that holds the lock. Never raises. *Cost*: a call of the kernel."""
    with suppress(OSError):  # it is closed, or another's by now: who looks finds that too
        os.utime(lock)


class Lease:
    """Of one lock, looked at every few seconds by one thread. `lock`: its file."""

    def __init__(self, lock: Path) -> None:
        self._lock, self._patience_s = lock, SILENT_S
        self._seen, self._silent_s, self._looked_s = (0, 0), 0.0, 0.0

    def is_silent(self) -> bool:
        """Has who holds it shown nothing for long? Then it is waited longer for the next one. *Cost*: a call."""
        try:
            status, now_s = os.lstat(self._lock), time.monotonic()
        except OSError:
            return False
        before, self._seen = self._seen, (status.st_ino, status.st_mtime_ns)
        passed_s, self._looked_s = min(LOOK_AT_MOST_S, now_s - self._looked_s), now_s
        self._silent_s = self._silent_s + passed_s if self._seen == before else 0.0
        if self._seen != before and self._seen[0] == before[0]:
            self._patience_s = max(SILENT_S, self._patience_s * _EASED)
        if self._silent_s < self._patience_s:
            return False
        self._patience_s, self._silent_s = self._patience_s * _DOUBLED, 0.0
        return True
