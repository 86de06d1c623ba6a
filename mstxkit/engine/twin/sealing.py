"""Full banks, from the first one that is to be sealed to its release. The sealer's thread alone calls these."""

from __future__ import annotations

from ...store import livefile, segment
from . import banks, limits, ranges
from .banks import Live


def full_bank() -> int:
    """The full bank with the lowest sequence number, -1 if none."""
    return -1 if ranges.live is None else ranges.live.full_bank()


def encode_bank(index: int) -> segment.Payload:
    """The uncompressed payload parts of a sealed block, as `segment.encode_bank`."""
    live = _attached()
    copied = live.copy_bank(_checked(index))
    with banks.lock:
        limits.count_quick(live)
    return segment.encode_bank(*copied)


def encode_into(index: int, room: bytearray, at: int) -> tuple[int, int, segment.Extent]:
    """Planes and attributes of a full bank, into room from `at` on: how many there are, and what they reach over."""
    payload = encode_bank(index)
    content = b"".join((payload.planes, payload.attributes))
    if at < 0 or at + len(content) > len(room):
        raise ValueError("no room for all of the bank's records")
    room[at : at + len(content)] = content
    return payload.n, payload.m, payload.extent


def bank_texts(index: int) -> bytes:
    """The texts of a full bank, as `encode_bank` gives them."""
    _, text, _ = _attached().copy_bank(_checked(index))
    return livefile.without_checksums(text)


def release_bank(index: int) -> None:
    """The bank is free again."""
    _attached().release_bank(_checked(index))


def _attached() -> Live:
    live = ranges.live
    if live is None:
        raise ValueError("no such bank: no live file is attached")
    return live


def _checked(index: int) -> int:
    if not 0 <= index < _attached().layout.bank_count:
        raise ValueError("no such bank")
    return index
