"""Records to columns: a sealed block or a copied live bank as numpy arrays, one element a range or mark."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np
import numpy.typing as npt

from ..store import livefile, records, segment

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]

_ERROR_BIT, _SCALED_BIT, _KIND_SHIFT, _KIND_MASK = 1, 2, 2, 3


class Attributes(NamedTuple):
    """Attribute records; `owner` is the row they belong to, rising."""

    value: U64
    key: U32
    value_type: U8
    owner: I64


class Columns(NamedTuple):
    """Ranges and marks of one block. `end` and `duration` in ticks, `end` absolute."""

    end: I64
    duration: I64
    site: U16
    stage: U16
    track: U16
    step: U32
    depth: U8
    error: Bits
    is_mark: Bits
    scaled: Bits
    attributes: Attributes


NO_ATTRIBUTES = Attributes(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint8), np.empty(0, np.int64))
Choose = Callable[[U16, Callable[[], U16], Callable[[], U32]], Optional[Bits]]


def from_payloads(blocks: Sequence[tuple[segment.Payload, int]], choose: Choose | None = None) -> Columns:
    """Decode the planes of sealed blocks that follow each other and have the same texts.

    *Cost*: about 15 ns a record that is chosen, 5 ns of the others; a small block costs more than its rows.

    Args:
        blocks: Payloads with their origins.
        choose: Of sites, stages and steps (functions give the last two): which rows are asked for; None for all.
    """
    sizes = [payload.n for payload, _ in blocks]
    planes = _side_by_side([payload.planes for payload, _ in blocks], sizes)
    w0 = np.cumsum(_join_planes(planes[0:8]), dtype=np.uint64)
    if len(sizes) > 1:  # each block's sums begin anew
        before = np.concatenate((np.zeros(1, np.uint64), w0))[np.cumsum([0, *sizes[:-1]])]
        w0 -= np.repeat(before, sizes)
    origin = _by_row([origin & records.U64 for _, origin in blocks], sizes, np.uint64)
    if choose is not None:
        stages_of = lambda: (w0 >> np.uint64(48)).astype(np.uint16)  # noqa: E731
        chosen = choose(_join_planes(planes[8:10]), stages_of, lambda: _join_planes(planes[12:16]))
        if chosen is not None:
            rows = np.flatnonzero(chosen)
            w1, w2 = np.ascontiguousarray(planes[8:, rows].T).view("<u8").reshape(-1, 2).T.astype(np.uint64)
            depth, flags = (w2 >> np.uint64(40)).astype(np.uint8), (w2 >> np.uint64(48)).astype(np.uint8)
            duration = (w2 & np.uint64(records.DURATION_MAX)).view(np.int64)
            own = _owned_by(blocks, chosen, rows)
            return _make_columns(w0[rows], w1, duration, depth, flags, own, origin[rows])
    duration = _join_planes(planes[16:20]).astype(np.int64) | planes[20].astype(np.int64) << 32
    return _make_columns(w0, _join_planes(planes[8:16]), duration, planes[21], planes[22], _owned_by(blocks), origin)


def _side_by_side(parts: Sequence[livefile.Buffer], sizes: Sequence[int]) -> U8:
    planes = [np.frombuffer(part, np.uint8).reshape(records.RECORD_BYTES, size) for part, size in zip(parts, sizes)]
    return planes[0] if len(planes) == 1 else np.hstack(planes)


def _by_row(values: Sequence[int], sizes: Sequence[int], dtype: Any) -> npt.NDArray[Any]:
    """Of each block its value, as often as it has rows."""
    numbers = np.array(values, dtype=dtype)
    return np.broadcast_to(numbers, sizes[0]) if len(sizes) == 1 else np.repeat(numbers, sizes)


def _owned_by(
    blocks: Sequence[tuple[segment.Payload, int]], chosen: Bits | None = None, rows: I64 | None = None
) -> Attributes:
    """Attributes of all rows, or of chosen ones: of the others not more than their owner is looked at."""
    counts = [payload.m for payload, _ in blocks]
    if not any(counts) or (rows is not None and not len(rows)):
        return NO_ATTRIBUTES
    sizes = [payload.n for payload, _ in blocks]
    words = _side_by_side([payload.attributes for payload, _ in blocks], counts)
    owner = _join_planes(words[16:24]).view(np.int64)
    has_row = (owner >= 0) & (owner < _by_row(sizes, counts, np.int64))
    owner = np.where(has_row, owner + _by_row(np.cumsum([0, *sizes[:-1]]).tolist(), counts, np.int64), -1)
    if chosen is not None and rows is not None:
        theirs = np.flatnonzero(has_row & chosen[owner])
        words, owner = np.ascontiguousarray(words[:, theirs]), np.searchsorted(rows, owner[theirs])
    return _decode_attributes(_join_planes(words[0:8]), _join_planes(words[8:16]), owner, sum(sizes))


def pick_rows(columns: Columns, chosen: Bits) -> Columns:
    """These rows, with their attributes."""
    rows = {name: column[chosen] for name, column in columns._asdict().items() if name != "attributes"}
    own = columns.attributes
    if len(own.owner):
        is_theirs, place = chosen[own.owner], np.cumsum(chosen) - 1
        owner = place[own.owner[is_theirs]]
        own = Attributes(own.value[is_theirs], own.key[is_theirs], own.value_type[is_theirs], owner)
    return Columns(**rows, attributes=own)


def _join_planes(planes: U8) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Byte planes, low byte first, as one unsigned number a column. Plane by plane: twice as fast as to transpose."""
    width, count = planes.shape
    joined = np.empty((count, width), np.uint8)
    for place, plane in enumerate(planes):
        joined[:, place] = plane
    numbers: npt.NDArray[np.unsignedinteger[Any]] = joined.view(f"<u{width}")[:, 0]
    return numbers


def from_bank(bank: livefile.BankCopy) -> tuple[Columns, int]:
    """Decode a live bank's records whose check bits hold; the second value counts the others that were written.

    An attribute whose owner may be one that does not hold is left out with it.
    """
    words = np.frombuffer(bank.raw, "<u8").reshape(-1, 3).astype(np.uint64)
    w0, w1, w2 = words[:, 0], words[:, 1], words[:, 2]
    whole = is_whole(w0, w1, w2, bank.salt)
    kind = (w2 >> np.uint64(records.KIND_SHIFT)).astype(np.uint8) & np.uint8(_KIND_MASK)
    is_row, is_attribute = whole & (kind != records.ATTRIBUTE), whole & (kind == records.ATTRIBUTE)
    rows_before, lost_before = np.cumsum(is_row), np.cumsum(~whole)
    owner, lost_at_row = rows_before[is_attribute], np.concatenate(([0], lost_before[is_row]))
    sure = lost_before[is_attribute] == lost_at_row[owner]
    w2_low = w2[is_row] & np.uint64(records.LOW_52)
    columns = _make_columns(
        w0[is_row], w1[is_row], (w2_low & np.uint64(records.DURATION_MAX)).view(np.int64),
        (w2_low >> np.uint64(40)).astype(np.uint8), (w2_low >> np.uint64(48)).astype(np.uint8),
        _decode_attributes(
            w0[is_attribute][sure], w1[is_attribute][sure], owner[sure] - 1, int(rows_before[-1:].sum())
        ),
        np.uint64(bank.origin & records.U64),
    )  # fmt: skip
    return columns, int(np.count_nonzero(~whole & words.any(axis=1)))


def is_whole(w0: U64, w1: U64, w2: U64, salt: int) -> Bits:
    """`records.is_whole` for all records of a bank, from its first."""
    index = np.arange(len(w0), dtype=np.uint64)
    mixed = w0 ^ w1 ^ (w2 & np.uint64(records.LOW_52)) ^ np.uint64(salt) ^ index
    expected = mixed % np.uint64(records.CHECK_PRIME) + np.uint64(1)
    return np.asarray(expected == w2 >> np.uint64(records.CHECK_SHIFT))


def _decode_attributes(value: U64, w1: U64, owner: I64, rows: int) -> Attributes:
    """Attributes in the order of their owners, without those that have none."""
    has_row = (owner >= 0) & (owner < rows)
    if not has_row.all():
        value, w1, owner = value[has_row], w1[has_row], owner[has_row]
    if len(owner) and (np.diff(owner) < 0).any():
        order = np.argsort(owner, kind="stable")
        value, w1, owner = value[order], w1[order], owner[order]
    return Attributes(value, w1.astype(np.uint32), (w1 >> np.uint64(32)).astype(np.uint8), owner)


def _make_columns(
    w0: U64, w1: U64, duration: I64, depth: U8, flags: U8, attributes: Attributes, origin: U64 | np.uint64
) -> Columns:
    scaled = (flags & _SCALED_BIT).astype(bool)
    if scaled.any():
        duration = np.where(scaled, duration << records.SCALE_SHIFT, duration)
    return Columns(
        end=((w0 & np.uint64(records.LOW_48)) + origin).view(np.int64), duration=duration,
        site=w1.astype(np.uint16), stage=(w0 >> np.uint64(48)).astype(np.uint16),
        track=(w1 >> np.uint64(16)).astype(np.uint16), step=(w1 >> np.uint64(32)).astype(np.uint32),
        depth=depth, error=(flags & _ERROR_BIT).astype(bool),
        is_mark=(flags >> _KIND_SHIFT & _KIND_MASK) == records.MARK, scaled=scaled, attributes=attributes,
    )  # fmt: skip
