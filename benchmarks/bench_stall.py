"""The longest range in each of five rounds of two million, in CPU time of its thread, as banks rotate and are sealed.

The thread's CPU clock is read after every range (a quarter of a microsecond, part of the figure). Every 10,000 ranges
the loop waits, untimed, until the sealer has taken all full banks, so that nothing is dropped. The rounds alternate
with as many of the same loop around the reference, which shows what the machine alone does: interrupts are charged to
whoever runs. A stall of ours comes with every full bank, so it is in every round, and in the median of the rounds; what
the machine does once is in the longest of all only.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, NamedTuple

from .harness import NATIVE, Row, reference
from .recording import recording

VARIANTS = {"native": NATIVE}
ROUNDS, RANGES, CHUNK = 5, 2_000_000, 10_000


class _Round(NamedTuple):
    """The longest range, the mean of the slowest 10,000 in a row, and the sum, in ns."""

    longest: int
    slowest_chunk: float
    total: int


def measure(variant: str) -> list[Row]:
    """Milliseconds; the chunk's figure is the slowest mean of 10,000 ranges in a row, in ns."""
    from mstxkit import mstx_range

    nothing = reference()()
    ours, machine = [], []
    with recording(native=True) as session:
        for _ in range(ROUNDS):
            ours.append(_round(lambda: mstx_range("x"), session.drain))
            machine.append(_round(lambda: nothing, lambda: None))
        session.expect({"x": ROUNDS * RANGES})
    mean = sum(one.total for one in ours) / ROUNDS / RANGES
    note = f"median of {ROUNDS} rounds of {RANGES:,} ranges; {mean:.0f} ns mean, clock included"
    return [
        Row("stall.longest_ms", _median(ours), "ms", note=note),
        Row("stall.longest_of_all_ms", max(one.longest for one in ours) / 1e6, "ms", note="what the machine did, too"),
        Row("stall.slowest_chunk_ns", max(one.slowest_chunk for one in ours), "ns", note=f"mean of {CHUNK:,} in a row"),
        Row("stall.reference_longest_ms", _median(machine), "ms", note="the same rounds around the reference"),
    ]


def _median(rounds: list[_Round]) -> float:
    return statistics.median(one.longest for one in rounds) / 1e6


def _round(make: Callable[[], Any], pause: Callable[[], None]) -> _Round:
    longest, slowest, total = 0, 0.0, 0
    for _ in range(RANGES // CHUNK):
        most, taken = _chunk(make)
        longest, slowest, total = max(longest, most), max(slowest, taken / CHUNK), total + taken
        pause()
    return _Round(longest, slowest, total)


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
