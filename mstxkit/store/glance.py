"""A live file at a glance: in which step and stage its process is now, from the ranges that are open and the newest
records.

A few kilobytes of shared memory are read, and nothing is waited for. The process that writes it does not notice.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence

from ..errors import FormatError
from ..host import parts
from . import documents, livefile, records

# So many of the newest records are looked at for one that has a step.
_RECORDS = 64
# Slots are used from the first one on: so many are read with the head, more only where the last of these was used.
SLOTS = 64
# More than this of one bank's names is never read: who has so many texts is not looked into for its stage.
_TEXTS_AT_MOST = 1 << 18
# What a rank does is not to be seen in the processes that only load or compute for it.
_NOT_LOOKED_AT = (parts.POOL, parts.DATALOADER)


class Glimpse(NamedTuple):
    """What was to be seen of a process."""

    identity: dict[str, Any]  # as it has told it
    step: int | None  # the newest that it has recorded; None before its first
    stage: str | None  # key of the innermost stage that is open, of several the latest; None while none is
    since_ns: int | None  # CLOCK_MONOTONIC, when that stage was entered; None while none is open


class LiveGlance:
    """One process's live file, to be looked at again and again. Keeps the names of its stages, and its last step.
    `file`: the live file.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stages: dict[int, str] = {}
        self._step: int | None = None
        self._is_beside = False
        self._last: tuple[tuple[bytes, bytes, livefile.BankHead], Glimpse] | None = None

    def look(self) -> Glimpse | None:
        """What it does now; None where it is not recording, and of a worker of a pool or a data loader.
        Raises OSError: it cannot be read; FormatError: it is no live file.
        """
        if self._is_beside:
            return None
        with documents.close_after(documents.open_regular(self._file)) as descriptor:
            raw = documents.read_part(descriptor, 0, livefile.HEADER_BYTES + SLOTS * livefile.SLOT_BYTES)
            head = raw[: livefile.HEADER_BYTES]
            header = livefile.read_header(head, os.fstat(descriptor).st_size)
            last, mark = self._last, head[livefile.IDENTITY_AT :]
            identity = last[1].identity if last is not None and last[0][0] == mark else livefile.read_identity(head)
            self._is_beside = identity.get("under") in _NOT_LOOKED_AT
            if header.state != livefile.RECORDING or self._is_beside:
                return None
            (active,) = struct.unpack_from("<I", head, livefile.ACTIVE_BANK_AT)
            if active >= header.layout.bank_count:
                raise FormatError("a live file whose active bank is none of it", livefile.ACTIVE_BANK_AT)
            at = header.layout.bank_at(active)
            bank = livefile.read_bank_head(documents.read_part(descriptor, at, livefile.BANK_HEADER_BYTES))
            used = used_slots(descriptor, header, raw[livefile.HEADER_BYTES :])
            seen = mark, used, bank
            if last is None or last[0] != seen:  # most processes of a host do nothing between two looks
                slots = open_slots(head, header, used)
                self._last = last = seen, self._look_anew(descriptor, head, header, slots, (at, bank))
            return last[1]

    def _look_anew(
        self, descriptor: int, head: bytes, header: livefile.Header, slots: list[livefile.Slot],
        placed: tuple[int, livefile.BankHead],
    ) -> Glimpse:  # fmt: skip
        at, bank = placed
        seen = [(slot.start, slot.step) for slot in slots if slot.step != records.NO_STEP]
        newest = newest_records(descriptor, at, bank, _RECORDS)
        stepped = (record for record in newest if record.step != records.NO_STEP)
        seen += [(bank.origin + record.end, record.step) for record in itertools.islice(stepped, 1)]
        self._step = max(seen)[1] if seen else self._step
        stage, start = self._find_stage(descriptor, at + header.layout.bank_bytes, bank, slots)
        since_ns = None if start is None else monotonic_ns(head, header, start)
        return Glimpse(livefile.read_identity(head), self._step, stage, since_ns)

    def _find_stage(
        self, descriptor: int, end: int, bank: livefile.BankHead, slots: Sequence[livefile.Slot]
    ) -> tuple[str | None, int | None]:
        """Its key, and the ticks at which it was entered."""
        staged = [slot for slot in slots if slot.stage]
        if not staged:
            return None, None
        latest = max(staged, key=lambda slot: slot.start)
        if latest.stage not in self._stages and bank.text_bytes <= _TEXTS_AT_MOST:
            text = documents.read_part(descriptor, end - bank.text_bytes, bank.text_bytes)
            self._stages.update(livefile.read_texts(text, bank.salt)[0].stages)
        start = min(slot.start for slot in staged if (slot.track, slot.stage) == (latest.track, latest.stage))
        return self._stages.get(latest.stage), start


def used_slots(descriptor: int, header: livefile.Header, first: bytes) -> bytes:
    """Those that were ever used: most were not. `first`: as many as were read with the head."""
    size = header.layout.slot_count * livefile.SLOT_BYTES
    used = first[:size]
    if len(used) < size and any(used[-livefile.SLOT_BYTES :]):
        used = documents.read_part(descriptor, livefile.HEADER_BYTES, size)
    return used.rstrip(b"\0")


def open_slots(head: bytes, header: livefile.Header, used: bytes) -> list[livefile.Slot]:
    """Those that are open."""
    count = -(-len(used) // livefile.SLOT_BYTES)
    layout = header.layout._replace(slot_count=count)
    return livefile.read_slots(head + used.ljust(count * livefile.SLOT_BYTES, b"\0"), header._replace(layout=layout))


def newest_records(descriptor: int, at: int, bank: livefile.BankHead, at_most: int) -> Iterator[records.Record]:
    """The ranges and marks among so many of the newest records of the bank `at` this offset, the newest first."""
    first, raw = _newest_raw(descriptor, at, bank, at_most)
    for index in reversed(range(len(raw) // records.RECORD_BYTES)):
        w0, w1, w2 = records.WORDS.unpack_from(raw, index * records.RECORD_BYTES)
        if records.kind_of(w2) != records.ATTRIBUTE and records.is_whole(w0, w1, w2, bank.salt, first + index):
            yield records.unpack_record(w0, w1, w2)


def newest_kinds(descriptor: int, at: int, bank: livefile.BankHead, at_most: int) -> Counter[tuple[int, int, int]]:
    """How often each (stage, site, track) is among these; of those that are alike the first one's check speaks for all.
    A fifth of the cost.
    """
    first, raw = _newest_raw(descriptor, at, bank, at_most)
    kinds = Counter[tuple[int, int, int]]()
    for index, (w0, w1, w2) in enumerate(records.WORDS.iter_unpack(raw), first):
        kind = w0 >> 48, w1 & 0xFFFF, w1 >> 16 & 0xFFFF
        if w2 >> records.KIND_SHIFT & 3 != records.ATTRIBUTE and (
            kind in kinds or records.is_whole(w0, w1, w2, bank.salt, index)
        ):
            kinds[kind] += 1
    return kinds


def _newest_raw(descriptor: int, at: int, bank: livefile.BankHead, at_most: int) -> tuple[int, bytes]:
    first = max(0, bank.record_count - at_most)
    size, place = records.RECORD_BYTES, at + livefile.BANK_HEADER_BYTES
    raw = documents.read_part(descriptor, place + first * size, (bank.record_count - first) * size)
    return first, raw[: len(raw) // size * size]


def monotonic_ns(head: bytes, header: livefile.Header, ticks: int) -> int | None:
    """Ticks on CLOCK_MONOTONIC, by the newest anchor."""
    anchor = livefile.newest_anchor(head)
    if anchor is None or not header.ticks_per_ns > 0:  # nor NaN
        return None
    return anchor.monotonic_ns + int((ticks - anchor.ticks) / header.ticks_per_ns)
