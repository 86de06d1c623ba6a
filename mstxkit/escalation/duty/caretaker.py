"""After a session, starts the process that looks after profiles (`store/aftercare.py`); nothing else is done here.

On the recorder's background thread and at the end of capture, never on the thread that trains.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ... import faults
from ...host import environment
from ...store.aftercare import Care

_ROOT = str(Path(__file__).resolve().parents[3])
_START = "import sys; sys.path.append(sys.argv.pop(1)); from mstxkit.store.aftercare import main; main()"
# What would make that process a part of the training, or of its launcher.
_NOT_PASSED_ON = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LD_PRELOAD", "PYTHONSTARTUP", "PYTHONINSPECT")


class Caretaker:
    """Starts one process after sessions have ended, and clears it away. `consider` from one thread at a time."""

    def __init__(self, care: Care) -> None:
        self._care, self._seen, self._child = care, 0, 0

    def consider(self, ended: int) -> None:
        """So many sessions have ended in this process. Never raises.

        Cost: a comparison; after a session a `posix_spawn`, which copies nothing of this process.
        """
        try:
            if self._child:
                self._reap()
            if ended != self._seen and not self._child and self._care.is_needed:
                self._seen = ended
                self._child = self._started()
        except Exception as exc:
            faults.note("caretaker", exc)

    def _started(self) -> int:
        command = [sys.executable, "-I", "-S", "-c", _START, _ROOT, *self._care.as_words()]
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MSTXKIT_") and k not in _NOT_PASSED_ON}
        return os.posix_spawn(sys.executable, command, {**kept, environment.OFF: "1"}, file_actions=null)

    def _reap(self) -> None:
        """What was started ends at once: its child does the work, and belongs to nobody here."""
        try:
            pid, _ = os.waitpid(self._child, os.WNOHANG)
        except ChildProcessError:  # somebody here waits for every child there is
            pid = self._child
        if pid:
            self._child = 0
