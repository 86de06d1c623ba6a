"""Records the other way round: bytes that only the engines write, and the inverse of what only the reader undoes."""

from __future__ import annotations

import struct
from typing import Iterator

from mstxkit.store import records, summaries
from mstxkit.store.records import Record
from mstxkit.store.summaries import UNKNOWN_16, UNKNOWN_32, StageSummary


def attribute(value: int, key: int, value_type: int, salt: int, index: int) -> bytes:
    """The 24 bytes of an attribute; `value` already as its 64 bits."""
    w1 = key | value_type << 32
    w2 = records.ATTRIBUTE << records.KIND_SHIFT
    return records.WORDS.pack(value, w1, w2 | records.check_record(value, w1, w2, salt, index) << records.CHECK_SHIFT)


def from_planes(planes: bytes) -> Iterator[tuple[int, int, int]]:
    """The inverse of `segment.to_planes`, without numpy."""
    n = len(planes) // records.RECORD_BYTES
    raw = bytearray(len(planes))
    for k in range(records.RECORD_BYTES):
        raw[k :: records.RECORD_BYTES] = planes[k * n : (k + 1) * n]
    return records.WORDS.iter_unpack(bytes(raw))


def record(row: Record, salt: int, index: int) -> bytes:
    """The 24 bytes of a range or mark."""
    w0 = (row.end & records.LOW_48) | row.stage << 48
    w1 = row.site | row.track << 16 | row.step << 32
    w2 = records.duration_bits(row.duration) | min(row.depth, records.DEPTH_MAX) << 40
    w2 |= row.kind << records.KIND_SHIFT | (records.ERROR if row.error else 0)
    return records.WORDS.pack(w0, w1, w2 | records.check_record(w0, w1, w2, salt, index) << records.CHECK_SHIFT)


def value_bits(value: object) -> tuple[int, int] | None:
    """(type, 64 bits) of a bool, float, 64-bit int or None; None for what needs a text."""
    if isinstance(value, bool):
        return records.BOOL, int(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return records.INT, value & records.U64
    if isinstance(value, float):
        return records.FLOAT, int.from_bytes(struct.pack("<d", value), "little")
    return (records.NULL, 0) if value is None else None


def summaries_of(data: bytes) -> Iterator[StageSummary]:
    """The summaries in whole rows; what is left at the end is left out."""
    whole = data[: len(data) // summaries.ROW_BYTES * summaries.ROW_BYTES]
    for row in summaries.ROW.iter_unpack(whole):
        step, stage, count, entered, span, total, longest, busy, responses, tokens, longest_response = row
        yield StageSummary(
            None if step == records.NO_STEP else step, stage, count, entered, entered + _ns(span), _ns(total),
            None if busy == UNKNOWN_16 else _ns(total) * busy // summaries.BUSY_PARTS, _ns(longest),
            _or_none(tokens, UNKNOWN_32), _or_none(responses, UNKNOWN_16), _or_none(longest_response, UNKNOWN_32),
        )  # fmt: skip


def _ns(packed: int) -> int:
    us = packed if packed < summaries.COARSE else (packed - summaries.COARSE) << summaries.COARSE_SHIFT
    return us * 1000


def _or_none(value: int, unknown: int) -> int | None:
    return None if value == unknown else value
