"""After a session, starts the process that looks after profiles (`store/aftercare.py`); nothing else is done here.

On the recorder's background thread and at the end of capture, never on the thread that trains.
"""

from __future__ import annotations

from ... import faults
from ...host import detached
from ...store import aftercare
from ...store.aftercare import Care


class Caretaker:
    """Starts one process after sessions have ended, and clears it away. `consider` from one thread at a time."""

    def __init__(self, care: Care) -> None:
        self._care, self._seen, self._child = care, 0, 0

    def consider(self, ended: int) -> None:
        """So many sessions have ended in this process. Never raises.

        Cost: a comparison; after a session a `posix_spawn`, which copies nothing of this process.
        """
        try:
            if self._child and detached.has_ended(self._child):
                self._child = 0
            if ended != self._seen and not self._child and self._care.is_needed:
                self._seen = ended
                self._child = detached.start(aftercare.__name__, self._care.as_words())
        except Exception as exc:
            faults.note("caretaker", exc)
