"""The longest of 10 million ranges, in CPU time of its thread, while banks rotate and are sealed.

The thread's CPU clock is read after every range (a quarter of a microsecond, part of the figure). Every 10,000 ranges
the loop waits, untimed, until the sealer has taken all full banks, so that nothing is dropped. The same loop around the
reference shows what the machine alone does: interrupts are charged to whoever runs.
"""

from __future__ import annotations

import time
from typing import Any, Callable

from .harness import NATIVE, Row, reference
from .recording import recording

VARIANTS = {"native": NATIVE}
RANGES, CHUNK = 10_000_000, 10_000


def measure(variant: str) -> list[Row]:
    """Milliseconds; the chunk's figure is the slowest mean of 10,000 ranges in a row, in ns."""
    from mstxkit import mstx_range

    with recording(native=True) as session:
        longest, slowest, total = _longest(lambda: mstx_range("x"), session.drain)
        session.expect({"x": RANGES})
    nothing = reference()()
    control, _, _ = _longest(lambda: nothing, lambda: None)
    return [
        Row(
            "stall.longest_ms",
            longest / 1e6,
            "ms",
            note=f"of {RANGES:,} ranges; {total / RANGES:.0f} ns mean, clock included",
        ),
        Row("stall.slowest_chunk_ns", slowest, "ns", note=f"mean of the slowest {CHUNK:,} in a row"),
        Row("stall.reference_longest_ms", control / 1e6, "ms", note="the same loop around the reference"),
    ]


def _longest(make: Callable[[], Any], pause: Callable[[], None]) -> tuple[int, float, int]:
    """(longest, slowest chunk's mean, total) in ns."""
    longest, slowest, total = 0, 0.0, 0
    for _ in range(RANGES // CHUNK):
        most, taken = _chunk(make)
        longest, slowest, total = max(longest, most), max(slowest, taken / CHUNK), total + taken
        pause()
    return longest, slowest, total


def _chunk(make: Callable[[], Any]) -> tuple[int, int]:
    now = time.thread_time_ns
    most = 0
    first = before = now()
    for _ in range(CHUNK):
        with make():
            pass
        after = now()
        if after - before > most:
            most = after - before
        before = after
    return most, before - first
