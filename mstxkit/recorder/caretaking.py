"""Starts the process that looks after sealed files (`store/sealed_care.py`): every few minutes on each host, and once
the last process there has ended. Nothing else is done here, and nothing where no setting asks for it.

On the recorder's background threads and at the end of capture, never on the thread that trains.
"""

from __future__ import annotations

import time

from .. import faults
from ..host import apart, jitter
from ..store.care_record import SealedCare

_MODULE = "mstxkit.store.sealed_care"


class SealedCaretaker:
    """The keeper's. From one thread at a time; a forked child makes a new one."""

    def __init__(self, care: SealedCare) -> None:
        self._care = care
        self._due = jitter.Every(care.every_s, "care", time.monotonic())

    @property
    def is_apart(self) -> bool:
        """Are sealed files written on this host's own disk, so that recording needs no answer of the run folder?"""
        return self._care.place is not None

    def consider(self) -> None:
        """Is it time? Never raises. Cost: a comparison; else a `posix_spawn`, which copies nothing of this process."""
        try:
            if self._due.is_due(time.monotonic()):
                self._start("now")
        except Exception as exc:
            faults.note("caretaking", exc)

    def finish(self) -> None:
        """Nobody of the run is left on this host: what is on its own disk goes into the run. Never raises."""
        try:
            if self.is_apart:
                self._start("last")
        except Exception as exc:
            faults.note("caretaking", exc)

    def _start(self, when: str) -> None:
        apart.start(_MODULE, [when, *self._care.as_words()])
