"""Many texts of a bank as columns, which compress better than entry by entry: for banks with thousands of them.

Source: `docs/internals/format.md`, "Sealed file". The C engine makes the same bytes (`engine/native/texts.c`).
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Iterator

from ..errors import FormatError
from .livefile import TRAILER, text_entries

# Fewer bytes of texts stay as they lay.
FROM_BYTES = 16 << 10
_COUNT = struct.Struct("<I")
# Of each entry: kind, id less that of the kind's entry before, bytes, of them those that entry begins with too.
_WIDTHS = (("B", 1), ("I", 4), ("H", 2), ("H", 2))
_ENTRY_BYTES = sum(width for _, width in _WIDTHS)
_KINDS, _U32 = 256, 0xFFFFFFFF
# The kind of what follows columns and looks like the trailer of an entry; its length is what they were before.
MARK = 0xFFFF
# More than what a bank has, whatever was sealed says.
_AT_MOST_BYTES, _TIMES_AT_MOST = 1 << 28, 1 << 10


def seal_texts(texts: bytes, columns: bytes | None) -> bytes:
    """What stands in a block: the columns, marked, or the texts as they lay where there are none."""
    return texts if columns is None else columns + TRAILER.pack(len(texts), MARK, 0, 0, 0)


def read_texts(stored: bytes) -> bytes:
    """The texts of a block as they lay, without checksums. Raises FormatError: they are no columns, but marked so."""
    if len(stored) < TRAILER.size:
        return stored
    size, kind, *_ = TRAILER.unpack_from(stored, len(stored) - TRAILER.size)
    if kind != MARK:
        return stored
    if size > min(_AT_MOST_BYTES, _TIMES_AT_MOST * len(stored)):
        raise FormatError("a block whose texts are longer than any bank's")
    return from_columns(stored[: -TRAILER.size], size)


def to_columns(texts: bytes) -> bytes | None:
    """The texts of a bank, without checksums, as columns; None where they are not what a bank has."""
    entries = list(_read_entries(texts))
    rest = len(texts) - sum(TRAILER.size + len(payload) + -len(payload) % 8 for _, _, payload in entries)
    if rest or any(len(payload) > 0xFFFF for _, _, payload in entries):
        return None
    before: dict[int, tuple[int, bytes]] = {}
    rows, parts = [], []
    for kind, entry_id, payload in entries:
        last_id, last = before.get(kind, (0, b""))
        most = min(len(last), len(payload))
        shared = next((at for at in range(most) if last[at] != payload[at]), most)
        rows.append((kind, entry_id - last_id & _U32, len(payload), shared))
        parts.append(payload[shared:])
        before[kind] = entry_id, payload
    columns = [struct.pack(f"<{len(rows)}{code}", *column) for (code, _), column in zip(_WIDTHS, zip(*rows))]
    return b"".join([_COUNT.pack(len(rows)), *columns, *parts])


def _read_entries(texts: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(kind, id, payload) in the order in which they were written; up to the first odd one."""
    end = len(texts)
    for first, payload, (length, kind, zero, entry_id, crc) in text_entries(texts):
        if kind >= _KINDS or zero or crc or any(texts[first + length : end - TRAILER.size]):
            return
        yield kind, entry_id, payload
        end = first


def from_columns(columns: bytes, size: int) -> bytes:
    """Undo `to_columns`; `size`: so many bytes it gives, and no more. Raises FormatError: these are no columns."""
    count = _COUNT.unpack_from(columns)[0] if len(columns) >= _COUNT.size else -1
    if count < 0 or count * TRAILER.size > size or _COUNT.size + count * _ENTRY_BYTES > len(columns):
        raise FormatError("a block whose texts are no columns")
    ends = list(accumulate((width * count for _, width in _WIDTHS), initial=_COUNT.size))
    read = (struct.unpack_from(f"<{count}{code}", columns, at) for (code, _), at in zip(_WIDTHS, ends))
    before: dict[int, tuple[int, bytes]] = {}
    parts, at, made = [], ends[-1], 0
    for kind, more, length, shared in zip(*read):
        last_id, last = before.get(kind, (0, b""))
        payload = last[:shared] + columns[at : at + length - shared]
        at += length - shared
        entry_id = last_id + more & _U32
        before[kind] = entry_id, payload
        padding = -length % 8
        made += TRAILER.size + length + padding
        if len(payload) != length or made > size:
            raise FormatError("a block whose texts are not as long as they say")
        parts.append(payload + b"\0" * padding + TRAILER.pack(length, kind, 0, entry_id, 0))
    if made != size or at != len(columns):
        raise FormatError("a block whose texts are not as long as they say")
    return b"".join(reversed(parts))
