"""Records the other way round: bytes that only the engines write, and the inverse of what only the reader undoes."""

from __future__ import annotations

from typing import Iterator

from mstxkit.store import records


def attribute(value: int, key: int, value_type: int, salt: int, index: int) -> bytes:
    """The 24 bytes of an attribute; `value` already as its 64 bits."""
    w1 = key | value_type << 32
    w2 = records.ATTRIBUTE << records.KIND_SHIFT
    return records.WORDS.pack(value, w1, w2 | records.check(value, w1, w2, salt, index) << records.CHECK_SHIFT)


def from_planes(planes: bytes) -> Iterator[tuple[int, int, int]]:
    """The inverse of `segment.to_planes`, without numpy."""
    n = len(planes) // records.RECORD_BYTES
    raw = bytearray(len(planes))
    for k in range(records.RECORD_BYTES):
        raw[k :: records.RECORD_BYTES] = planes[k * n : (k + 1) * n]
    return records.WORDS.iter_unpack(bytes(raw))
