"""Protobuf messages made of numpy columns: all with the same fields at once, each field as wide as its largest.

A varint may be longer than it needs to be, with zeros at its end: so the messages of a form have one length, and a
field one place. Source: protobuf.dev, "Encoding"; perfetto writes lengths that way itself (protozero).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Iterable, Sequence, Union

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
VARINT, LENGTH = 0, 2
WORD_BYTES = 8
# Of a form: bytes as they are, or the name of a number and its width.
Part = Union[bytes, tuple[str, int]]
_SHORT = [bytes([value]) for value in range(0x80)]


def encode_varint(value: int) -> bytes:
    """A whole number from 0 on, in as few bytes as will do."""
    if value < 0x80:
        return _SHORT[value]
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


@cache
def encode_tag(field: int, kind: int = VARINT) -> bytes:
    """What stands before the value of a field."""
    return encode_varint(field << 3 | kind)


def encode_number(field: int, value: int) -> bytes:
    """A field with a whole number; a negative one takes ten bytes."""
    return encode_tag(field) + encode_varint(value & (1 << 64) - 1)


def encode_block(field: int, content: bytes) -> bytes:
    """A field with a message or with bytes."""
    return encode_tag(field, LENGTH) + encode_varint(len(content)) + content


def encode_text(field: int, content: str) -> bytes:
    """A field with a text; what UTF-8 has no form for is written as an escape."""
    return encode_block(field, content.encode("utf-8", "backslashreplace"))


def width_of(largest: int) -> int:
    """So many bytes a varint of this number has."""
    return max(1, -(-max(largest, 0).bit_length() // 7))


def size_of(parts: Sequence[Part]) -> int:
    """So many bytes a message of these parts has."""
    return sum(len(part) if isinstance(part, bytes) else part[1] for part in parts)


class Form:
    """A message of fixed parts with places for numbers: made once, filled for many messages.
    `parts`: bytes as they are, or the name of a number and its width.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self.places: list[tuple[str, int, int]] = []
        fixed = b""
        for part in parts:
            if isinstance(part, bytes):
                fixed += part
            else:
                self.places.append((part[0], len(fixed), part[1]))
                fixed += bytes(part[1])
        self.size = len(fixed)
        self._row = np.frombuffer(fixed, dtype=np.uint8)

    def fill(self, values: dict[str, npt.NDArray[Any]], count: int) -> Bytes:
        """(count, size) bytes. *Cost*: about 5 ns a number and message."""
        made = np.empty((count, self.size), dtype=np.uint8)
        made[:] = self._row
        for name, at, width in self.places:
            numbers = values[name].astype(np.uint64, copy=False)
            for place in range(width):  # seven bits in each byte, the lowest first
                made[:, at + place] = (numbers >> np.uint64(7 * place)).astype(np.uint8) | np.uint8(0x80)
            made[:, at + width - 1] &= 0x7F
        return made
