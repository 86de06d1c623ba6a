"""The live file as the engine writes it: banks with their records and texts, slots of what is open, counters.

The layout is that of docs/internals/format.md. Whatever touches a bank holds `lock`, for microseconds. A record counts
once the bank's count goes beyond it, so a process that is killed leaves no half one; a slot once its mark is in.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Any, Callable

from ...errors import FormatError
from ...host import names
from ...store import livefile, records
from .. import plain_values
from . import clock, interruptions

DROPPED, SLOTS_OVERFLOWED, ATTRIBUTES_LOST, NAMES_CAPPED, TEXTS_CUT, FAULTS, _, COALESCED = range(8)
COUNTERS_AT = livefile.COUNTERS_AT // 8
_STATE_AT, _COUNT_AT, _TEXT_BYTES_AT = 1, 4, 5  # words of a bank's header
_ATTRIBUTE = records.ATTRIBUTE << records.KIND_SHIFT
_PRIME, _CHECK_SHIFT, _pack = records.CHECK_PRIME, records.CHECK_SHIFT, records.WORDS.pack
_BYTES = records.RECORD_BYTES
_CLOSED = 1 << 63
_PATIENCE_S = 0.2
# A record that made its bank rotate ended before the new one was activated.
_ORIGIN_SLACK = 4_000_000

# In a forked child another one: a thread that is not there may have held it.
lock = threading.RLock()
# Released while a bank is full or somebody woke the sealer: unlike an Event, safe in a signal handler.
_bell = threading.Lock()
_bell.acquire()
live: Any = None  # the one that is attached
detached_counters = [0] * 8
utf8: Callable[[str], bytes] = names.utf8


class Turn:
    """The lock, for who seals. Not for ever: its holder may be in a signal's handler, which waits for all that."""

    def __enter__(self) -> None:
        self.is_held = lock.acquire(timeout=_PATIENCE_S)

    def __exit__(self, *error: object) -> None:
        if self.is_held:
            lock.release()


def ring() -> None:
    """Wake the thread that sleeps in `wait`."""
    try:
        _bell.release()
    except RuntimeError:
        pass  # it rings already


def wait(seconds: float) -> bool:
    """Sleep until `ring`, at most so long; was there one?"""
    return _bell.acquire(timeout=max(seconds, 0.0))


class Bank:
    """The active bank: records from its beginning on, texts from its end back, until they meet."""

    def __init__(self, live: Live, index: int, seq: int, origin: int) -> None:
        self.view, self.words, self.index, self.origin = live.view, live.words, index, origin
        at = live.layout.bank_at(index)
        self.first, self.end, self.head = at + livefile.BANK_HEADER_BYTES, at + live.layout.bank_bytes, at // 8
        self.count = self.text_bytes = 0
        self.numbers: dict[str, int] = {}  # of texts
        self.salt = int.from_bytes(os.urandom(8), "little")
        livefile.activate_bank(live.view, live.layout, index, seq, self.salt, origin, clock.monotonic_ns())

    def put_text(self, text: tuple[int, int, bytes], spare: int) -> bool:
        """Append a text entry, where so many records still fit then."""
        entry = livefile.pack_text(*text, self.salt)
        text_bytes = self.text_bytes + len(entry)
        at = self.end - text_bytes
        if self.first + (self.count + spare) * _BYTES > at:
            return False
        self.view[at : at + len(entry)] = entry
        self.text_bytes = self.words[self.head + _TEXT_BYTES_AT] = text_bytes
        return True

    def number_of(self, text: str, spare: int) -> int:
        """The number of a text in this bank; 0 where there is no room for it."""
        if text in self.numbers:
            return self.numbers[text]
        try:
            raw = utf8(text)  # may run others, who may put texts
        except Exception as exc:
            if not interruptions.is_ours(exc, utf8):
                raise
            interruptions.note("attributes", exc)
            return 0
        number = len(self.numbers) + 1
        if not self.put_text((livefile.TEXT, number, raw), spare):
            return 0
        self.numbers[text] = number
        count_cut(text, raw)
        return number

    def encode(self, attributes: dict[str, Any], spare: int) -> list[tuple[int, int, int]]:
        """Each attribute whose texts found room, as a record has it. Of what is no plain value, its type's name."""
        rows = []
        for key, value in attributes.items():
            kind = type(value)
            if kind is bool or value is None:
                bits, word = int(value or 0), records.NULL if value is None else records.BOOL
            elif kind is int and -1 << 63 <= value < 1 << 63:
                bits, word = value & records.U64, records.INT
            elif kind is float:
                bits, word = *struct.unpack("<Q", struct.pack("<d", value)), records.FLOAT
            else:
                word = records.TEXT if kind is str else records.OTHER
                bits = self.number_of(value if kind is str else plain_values.type_name(kind), spare)
                if not bits:
                    continue
            key_id = self.number_of(key, spare)
            if key_id:
                rows.append((bits, key_id | word << 32, _ATTRIBUTE))
        return rows

    def append(self, entry: Any, more: list[tuple[int, int, int]]) -> bool:
        """Write a record, and those of its attributes, one after the other. False: there is no room.

        A signal handler, or a garbage collection, may write in between: then all is made again, to stand behind that.
        """
        since, salt = max(entry.end - self.origin, 0), self.salt
        w0 = since | (0 if entry.stage is None else entry.stage.id) << 48
        w2 = records.duration_bits(entry.end - entry.start) | entry.depth << 40 | entry.kind << records.KIND_SHIFT
        rows = [(w0, entry.w1, w2 | records.ERROR if entry.failed else w2), *more]
        if entry.busy:
            rows.append((entry.busy, records.BUSY << 32, _ATTRIBUTE))
        place = -1
        while self.count != place and since <= records.LOW_48:
            place, block = self.count, b""
            for index, (a, b, c) in enumerate(rows, place):
                block += _pack(a, b, c | (a ^ b ^ c ^ salt ^ index) % _PRIME + 1 << _CHECK_SHIFT)
            at, end = self.first + place * _BYTES, self.first + (index + 1) * _BYTES
            if self.count == place and end <= self.end - self.text_bytes:  # from here on nobody comes in between
                entry.is_written = True
                self.view[at:end] = block
                self.count = self.words[self.head + _COUNT_AT] = index + 1
                return True
        return False


class Live:
    """An attached live file."""

    def __init__(self, source: Any, nonce: int) -> None:
        self.view = memoryview(source).cast("B")
        try:
            self.layout = livefile.read_header(self.view).layout
        except FormatError as exc:
            raise ValueError(f"not the buffer of a live file: {exc}") from exc
        self.words = self.view[: len(self.view) // 8 * 8].cast("Q")
        self.nonce, self.pid = nonce, os.getpid()
        # Slots by where they are in the file, and the ranges in them: a new bank must know what those name.
        end = livefile.HEADER_BYTES + self.layout.slot_count * livefile.SLOT_BYTES
        self.free = list(range(livefile.HEADER_BYTES, end, livefile.SLOT_BYTES))[::-1]
        self.stage_slots = self.layout.stage_slots
        self.open: dict[int, Any] = {}
        self.windows: dict[Any, Any] = {}  # of coalesced calls that are not written yet: see `limits`
        self._seq, self._is_rotating = 0, False
        self.bank: Bank
        self._activate_bank(0)

    def _activate_bank(self, index: int) -> None:
        self._seq += 1
        ends = [window.end for window in tuple(self.windows.values()) if window.calls]
        self.bank = Bank(self, index, self._seq, min([max(clock.now() - _ORIGIN_SLACK, 0), *ends]))
        for opened in tuple(self.open.values()):
            self.tell(opened, 1)

    def tell(self, entry: Any, spare: int) -> bool:
        """Put what it names into the active bank, where there is room."""
        bank = self.bank
        for owner in entry.owners:
            if owner.bank is not bank:
                with lock:
                    if not bank.put_text(owner.entry, spare):
                        return False
                    owner.bank = bank
        return True

    def rotate(self) -> bool:
        """Hand the active bank to the sealer and take a free one. False: there is none.

        An empty bank is begun again. Called with `lock`; the flag is for a garbage collection that ends a range here.
        """
        if self._is_rotating:
            return False
        self._is_rotating = True
        try:
            bank, count = self.bank, self.layout.bank_count
            others = [(bank.index + i) % count for i in range(1, count)]
            is_full = bank.count > 0
            free = [index for index in others if self.state(index) == livefile.FREE] if is_full else [bank.index]
            if free:
                bank.count = _CLOSED  # what is about to be written here is written elsewhere
                self._activate_bank(free[0])
            if free and is_full:
                # Only now: were it sealed before the new bank knows what is open, a kill would leave that nameless.
                self.state(bank.index, livefile.FULL)
            if is_full:
                ring()
            return bool(free)
        finally:
            self._is_rotating = False

    def state(self, index: int, state: int | None = None) -> int:
        """FREE, ACTIVE or FULL; it is made so, where that is said."""
        at = self.layout.bank_at(index) // 8 + _STATE_AT
        if state is not None:
            self.words[at] = state
        return self.words[at] & 0xFFFFFFFF

    def write(self, entry: Any) -> None:
        """Write a record and its attributes into one bank; else count a drop.

        A text without room goes into a new bank; where there is none, the record goes without it.
        """
        attributes, spare = entry.settled, len(entry.settled) + 2
        with lock:
            for is_last in (False, True):
                bank = self.bank
                if self.tell(entry, spare):
                    rows = bank.encode(attributes, spare) if attributes else []
                    is_whole = len(rows) == len(attributes)
                    if (is_whole or is_last) and bank.append(entry, rows):
                        if entry.is_lost or not is_whole:
                            count(ATTRIBUTES_LOST)
                        return
                if not is_last:
                    self.rotate()
            entry.is_written = True
            count(DROPPED)


def open_slot(opened: Any) -> None:
    """Begin it in the live file: a slot says that it is open, also after a kill. Where there is none, that is counted.

    What it names must be known in the active bank, where that is possible, also in one that comes meanwhile.
    """
    to, stage = opened.live, opened.stage
    if len(to.free) <= (0 if opened.site.own_stage is not None else to.stage_slots):
        count(SLOTS_OVERFLOWED)
    else:
        opened.slot = slot = to.free[-1]
        to.open[slot] = opened
        del to.free[-1]
        if not to.tell(opened, 1):
            with lock:
                to.rotate() and to.tell(opened, 1)
    opened.is_written, opened.start = False, clock.now()
    if opened.slot:
        w2 = opened.depth << 16 | opened.home.os_id << 32 | (0 if stage is None else stage.id)
        mark = livefile.slot_mark(opened.start, opened.w1, w2, to.nonce)
        livefile.SLOT.pack_into(to.view, opened.slot, opened.start, opened.w1, w2, mark)


def close_slot(opened: Any) -> None:
    """It is not open any more."""
    slot, of = opened.slot, opened.live
    if of is live:
        of.words[slot // 8 + 3] = 0
    opened.slot = 0
    del of.open[slot]
    of.free.append(slot)


def count(which: int) -> None:
    """One more in a counter: of the live file, or of the time without one."""
    with lock:
        if live is None:
            detached_counters[which] += 1
        else:
            live.words[COUNTERS_AT + which] += 1


def count_cut(text: str, raw: bytes) -> None:
    """Count where `raw` is shorter than the whole text."""
    if len(text) > names.TEXT_LIMIT_BYTES // 4 and len(text.encode("utf-8", "backslashreplace")) > len(raw):
        count(TEXTS_CUT)
