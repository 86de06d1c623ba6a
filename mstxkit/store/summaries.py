"""One stage of one step of one process, summed up in 40 bytes: what a process hands over when a step is over.

Written by the engines, passed on by the host's keeper, read by whoever judges. A step that is handed over again
replaces what was said of it before: a range of it has ended since.

Little-endian: u32 step (0xFFFFFFFF none) · u16 stage, an id of its process · u16 occurrences, saturating · i64 entered,
ns of CLOCK_MONOTONIC · u32 span, from there to when it was left last · u32 total · u32 longest · u16 busy, in 1/65,534
of total (0xFFFF: not measured apart) · u16 responses, saturating (0xFFFF: not known) · u32 tokens · u32 longest
response, in tokens (0xFFFFFFFF: not known). A duration is in microseconds; with its highest bit set, in units of 1,024
of them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..host import parts
from . import records

ROW = struct.Struct("<IHHqIIIHHII")
ROW_BYTES = ROW.size
# The same for numpy: `numpy.dtype(FIELDS)`.
FIELDS = [
    ("step", "<u4"), ("stage", "<u2"), ("occurrences", "<u2"), ("entered_ns", "<i8"), ("span", "<u4"), ("total", "<u4"),
    ("longest", "<u4"), ("busy", "<u2"), ("responses", "<u2"), ("tokens", "<u4"), ("longest_response", "<u4"),
]  # fmt: skip
# Attributes of a stage's ranges that say how much it did: summed, summed, and the largest. Where a range has no
# "responses", its "prompts" count.
TOKENS, RESPONSES, PROMPTS, LONGEST_RESPONSE = "tokens", "responses", "prompts", "longest_response"
WAITS_FOR, WORKERS = "waits_for", parts.WORKERS  # others, and nothing is computed
UNKNOWN_16, UNKNOWN_32 = 0xFFFF, 0xFFFFFFFF
BUSY_PARTS = 65_534
COARSE, COARSE_SHIFT, _US = 1 << 31, 10, 1000


class StageSummary(NamedTuple):
    """One stage of one step in one process."""

    step: int | None  # None: in no step
    stage: int  # the process's own id of it
    occurrences: int  # outermost occurrences that have ended
    # entered_ns, left_ns: first begin and last end, CLOCK_MONOTONIC of its host
    entered_ns: int
    left_ns: int
    total_ns: int  # the union of their time
    busy_ns: int | None  # time really spent inside; None where that is not measured apart
    longest_ns: int  # the longest occurrence
    # tokens, responses, longest_response: work done, as its ranges say; None where they do not
    tokens: int | None = None
    responses: int | None = None
    longest_response: int | None = None

    def pack(self) -> bytes:
        """Its 40 bytes; durations are rounded down to microseconds, from 36 minutes on to milliseconds."""
        return ROW.pack(
            records.NO_STEP if self.step is None else self.step, self.stage, min(self.occurrences, UNKNOWN_16),
            self.entered_ns, _pack_time(self.left_ns - self.entered_ns), _pack_time(self.total_ns),
            _pack_time(self.longest_ns),
            _pack_busy(self.busy_ns, self.total_ns), _pack_known(self.responses, UNKNOWN_16),
            _pack_known(self.tokens, UNKNOWN_32), _pack_known(self.longest_response, UNKNOWN_32),
        )  # fmt: skip


def _pack_time(ns: int) -> int:
    us = max(0, ns) // _US
    return us if us < COARSE else COARSE | min(us >> COARSE_SHIFT, COARSE - 1)


def _pack_busy(busy_ns: int | None, total_ns: int) -> int:
    if busy_ns is None:
        return UNKNOWN_16
    return min(BUSY_PARTS, busy_ns * BUSY_PARTS // total_ns) if total_ns > 0 else 0


def _pack_known(value: int | None, unknown: int) -> int:
    return unknown if value is None else min(max(0, value), unknown - 1)
