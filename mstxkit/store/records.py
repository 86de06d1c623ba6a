"""One record of 24 bytes: the words, their check bits and attribute values. In prose: docs/internals/format.md.

Pure arithmetic on ints and bytes, shared by the Python twin, the sealer, adoption and the reader. The C engine has the
same constants; `tests/store/test_records.py` compares the two.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

RECORD_BYTES = 24
WORDS = struct.Struct("<QQQ")

U64 = (1 << 64) - 1
LOW_48 = (1 << 48) - 1
LOW_52 = (1 << 52) - 1
DURATION_BITS = 40
DURATION_MAX = (1 << DURATION_BITS) - 1
SCALE_SHIFT = 12

ERROR = 1 << 48
SCALED = 1 << 49
KIND_SHIFT = 50
CHECK_SHIFT = 52
CHECK_PRIME = 4093

RANGE, MARK, ATTRIBUTE = 0, 1, 2

INT, FLOAT, BOOL, TEXT, OTHER, NULL, BUSY = 1, 2, 3, 4, 5, 6, 7
# Types of attributes that users gave.
SHOWN = (INT, FLOAT, BOOL, TEXT, OTHER, NULL)

NO_STEP = 0xFFFFFFFF
STEP_MAX = NO_STEP - 1
DEPTH_MAX = 255
SITE_LIMIT = 60_000
CATCH_ALL = "(too many names)"
ATTRIBUTE_LIMIT = 64
STAGE_MAX = 4_095
NUMBERED_STAGES = 3_000  # of them those whose key has a digit
TRACK_MAX = 65_535

_SIGNED = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_UNSIGNED = struct.Struct("<Q")


class Record(NamedTuple):
    """A decoded range or mark. `end` and `duration` in clock ticks, `end` from the bank's origin."""

    end: int
    duration: int
    site: int
    stage: int
    step: int
    track: int
    depth: int
    error: bool
    kind: int


def check_record(w0: int, w1: int, w2: int, salt: int, index: int) -> int:
    """The check bits (1 to 4093) of a record at `index` of a bank with `salt`; those in `w2` are left out."""
    return (w0 ^ w1 ^ (w2 & LOW_52) ^ salt ^ index) % CHECK_PRIME + 1


def is_whole(w0: int, w1: int, w2: int, salt: int, index: int) -> bool:
    """Does the record carry the check bits that its bank and place ask for?"""
    return w2 >> CHECK_SHIFT == check_record(w0, w1, w2, salt, index)


def duration_bits(ticks: int) -> int:
    """A duration as it stands in `w2`, with the scale flag where it is needed."""
    if ticks <= DURATION_MAX:
        return max(ticks, 0)
    return min(ticks >> SCALE_SHIFT, DURATION_MAX) | SCALED


def unpack_record(w0: int, w1: int, w2: int) -> Record:
    """A range or mark from its words; the check bits are not looked at."""
    shift = SCALE_SHIFT if w2 & SCALED else 0
    return Record(
        end=w0 & LOW_48, duration=(w2 & DURATION_MAX) << shift,
        site=w1 & 0xFFFF, stage=w0 >> 48, step=w1 >> 32, track=w1 >> 16 & 0xFFFF,
        depth=w2 >> 40 & 0xFF, error=bool(w2 & ERROR), kind=kind_of(w2),
    )  # fmt: skip


def kind_of(w2: int) -> int:
    """RANGE, MARK or ATTRIBUTE (3 is not used)."""
    return w2 >> KIND_SHIFT & 3


def value_of(value_type: int, bits: int, texts: dict[int, str]) -> object:
    """An attribute's value. NULL, unknown types and texts that are not there give None, never an error."""
    if value_type == INT:
        return _SIGNED.unpack(_UNSIGNED.pack(bits))[0]
    if value_type == FLOAT:
        return _DOUBLE.unpack(_UNSIGNED.pack(bits))[0]
    if value_type == BOOL:
        return bool(bits)
    if value_type in (TEXT, OTHER):
        return texts.get(bits)
    return bits if value_type == BUSY else None
