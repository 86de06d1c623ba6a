"""After a session, starts the process that looks after profiles (`store/aftercare.py`); nothing else is done here.

On the recorder's background thread and at the end of capture, never on the thread that trains.
"""

from __future__ import annotations

from ... import faults
from ...host import detached
from ...store.aftercare import Care

_MODULE = "mstxkit.store.aftercare"


class Caretaker:
    """Starts one process after sessions have ended. `consider` from one thread at a time."""

    def __init__(self, care: Care) -> None:
        self._care, self._seen = care, 0

    def consider(self, ended: int) -> None:
        """So many sessions have ended in this process. Never raises.

        Cost: a comparison; after a session a `posix_spawn`, which copies nothing of this process.
        """
        try:
            if ended != self._seen and self._care.is_needed:
                self._seen = ended
                detached.start_module(_MODULE, detached.words_of(self._care))
        except Exception as exc:
            faults.note_fault("caretaker", exc)
