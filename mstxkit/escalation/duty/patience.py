"""What this rank knows of the patience of those who wait for it: its own environment, and what sessions took here."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import Iterator

from ...store import hccl


class Patiently:
    """The clock of this rank's sessions, and how long others wait for one: nobody for the only rank of a run."""

    def __init__(self, world_size: int) -> None:
        self._has_others = world_size > 1
        self._longest_s: dict[str | None, float] = {}
        self._began: tuple[str | None, float] = None, 0.0

    @contextmanager
    def begins(self, preset: str | None) -> Iterator[None]:
        """Around the start of a session with this preset."""
        before = time.monotonic()
        yield
        self._began = preset, time.monotonic() - before

    @contextmanager
    def ends(self) -> Iterator[None]:
        """Around its stop."""
        before = time.monotonic()
        yield
        preset, began_s = self._began
        took_s = began_s + time.monotonic() - before
        self._longest_s[preset] = max(took_s, self._longest_s.get(preset, 0.0))

    def of_others(self, backend: str | None, is_connecting: bool) -> hccl.Patience | None:
        """How long others wait now; None where nobody does, or for ever.

        `backend`: the profiler that a session would be made with; `is_connecting`: has the first step not ended yet?
        """
        if not self._has_others or backend in (None, hccl.WITHOUT_HCCL):
            return None
        patience = hccl.find_patience(
            hccl.set_here(), "as set in its environment", is_connecting, dict(self._longest_s)
        )
        return None if patience.seconds == math.inf else patience
