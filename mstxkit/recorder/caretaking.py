"""Starts the process that looks after sealed files (`store/sealed_care.py`): every few minutes on each host, and once
the last process there has ended. Nothing is done where no setting asks for it, nor ever on the thread that trains: only
on the recorder's background threads and at the end of capture.
"""

from __future__ import annotations

import time
from typing import Callable

from .. import faults
from ..host import detached, jitter
from ..store.care_record import SealedCare


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
        self._start_if(lambda: self._due.is_due(time.monotonic()), "now")

    def finish(self) -> None:
        """Nobody of the run is left on this host: what is on its own disk goes into the run. Never raises."""
        self._start_if(lambda: self.is_apart, "last")

    def _start_if(self, is_time: Callable[[], bool], when: str) -> None:
        try:
            if is_time():
                detached.start_module("mstxkit.store.sealed_care", [when, *detached.words_of(self._care)])
        except Exception as exc:
            faults.note_fault("caretaking", exc)
