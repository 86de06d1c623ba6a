"""What processes do every so often, not all at once: those that a job starts together share one folder.

Each has periods of its own, drawn from what it is. No generator of random numbers is touched, nor kept: whoever is
forked draws anew.
"""

from __future__ import annotations

import zlib

from . import identity

SHARE = 0.25


def own_period_s(period_s: float, what: str) -> float:
    """The period of this process, shorter than that by a quarter at most: what is promised for the period holds.
    `what`: is done. Each has a period of its own.
    """
    drawn_from = f"{what} {sorted(identity.of_life().items())}"
    return period_s * (1 - SHARE * zlib.crc32(drawn_from.encode()) / (1 << 32))


class Every:
    """Something that is due every so often in this process, and at other moments in others.
    `period_s`: seconds between two of it at most; what comes late is done once, not for each that was missed. `what`:
    as for `own_period_s`. `now_s`: on any clock.
    """

    def __init__(self, period_s: float, what: str, now_s: float) -> None:
        self.period_s = own_period_s(period_s, what)
        self._due_s = now_s + self.period_s

    def left_s(self, now_s: float) -> float:
        """How long until it is due; not below 0."""
        return max(0.0, self._due_s - now_s)

    def is_due(self, now_s: float) -> bool:
        """Is it time? If so, the next one is due a period later: looks that come late do not add up to lock-step."""
        if now_s <= self._due_s:
            return False
        self._due_s = max(self._due_s + self.period_s, now_s)
        return True
