"""Who holds a lock, and has been stopped for long: by SIGSTOP, or by a debugger. He lives, and does nothing."""

from __future__ import annotations

import time
from pathlib import Path

from . import life, proc_files

# Who has seen it for so long is not just going on himself.
LONG_S = 15.0


class StoppedHolder:
    """Of one lock, looked at every few seconds by one thread. `lock`: its file."""

    def __init__(self, lock: Path) -> None:
        self._lock, self._seen, self._since_s = lock, 0, 0.0

    def for_long(self) -> int:
        """His pid; 0 where nobody holds it, he goes on, or that cannot be told. *Cost*: five calls of the kernel."""
        pid = life.holder_of(self._lock)
        if not pid or not is_stopped(pid):
            self._seen = 0
        elif pid != self._seen:
            self._seen, self._since_s = pid, time.monotonic()
        return self._seen if self._seen and time.monotonic() - self._since_s >= LONG_S else 0


def is_stopped(pid: int) -> bool:
    """Is it stopped, or held by a debugger?"""
    try:
        return proc_files.stat_of(f"/proc/{pid}")[0] in "Tt"
    except (OSError, IndexError):
        return False
