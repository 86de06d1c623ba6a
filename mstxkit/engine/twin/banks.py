"""The live file as the engine writes it: banks with their records and texts, slots of what is open, counters.

The layout is that of docs/internals/format.md. Whatever touches a bank holds `lock`, for microseconds. A record counts
once the bank's count goes beyond it, so a process that is killed leaves no half one; a slot once its mark is in.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Any, Callable, Sequence

from ...errors import FormatError
from ...host import names
from ...store import livefile, records
from .. import plain_values
from . import clock, interruptions

DROPPED, SLOTS_OVERFLOWED, ATTRIBUTES_LOST, NAMES_CAPPED, TEXTS_CUT, FAULTS, _, COALESCED = range(8)
_COUNTERS_AT = livefile.COUNTERS_AT // 8
_PRIME, _CHECK_SHIFT, _ATTRIBUTE = records.CHECK_PRIME, records.CHECK_SHIFT, records.ATTRIBUTE << records.KIND_SHIFT
_INT, _FLOAT, _BOOL, _TEXT, _OTHER, _NULL, _BUSY = (kind << 32 for kind in range(1, 8))  # as in `records`
_HALF, _LOW_48, _CLOSED = 1 << 63, records.LOW_48, 1 << 63
_put_slot, _put_record = livefile.SLOT.pack_into, records.WORDS.pack_into
_double, _bits_of = struct.Struct("<d").pack, struct.Struct("<Q").unpack
_NONE: dict[str, Any] = {}
_COUNT_AT, _TEXT_BYTES_AT, _STATE_AT = 4, 5, 1  # words of a bank's header
_TRIES = 16  # of a record, while what its texts let run takes its place
# A record that made its bank rotate ended before the new one was activated.
_ORIGIN_SLACK = 4_000_000

# In a forked child another one: a thread that is not there may have held it.
lock = threading.RLock()
# Released while a bank is full or somebody woke the sealer: unlike an Event, safe in a signal handler.
_bell = threading.Lock()
_bell.acquire()
live: Any = None  # the one that is attached
_COUNTED = 8
_detached_counters = [0] * _COUNTED
utf8: Callable[[str], bytes] = names.utf8


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
        self.at = live.layout.bank_at(index)
        self.count_at = self.at // 8 + _COUNT_AT
        self.first, self.end = self.at + livefile.BANK_HEADER_BYTES, self.at + live.layout.bank_bytes
        self.count = self.text_bytes = 0
        self.limit = (self.end - self.first) // records.RECORD_BYTES  # how many records fit above the texts
        self.texts: dict[str, int] = {}
        self.salt = int.from_bytes(os.urandom(8), "little")
        livefile.activate_bank(live.view, live.layout, index, seq, self.salt, origin, clock.monotonic_ns())

    def knows(self, entry: Any) -> bool:
        """Has it the texts of what this names?"""
        return entry.site.bank is self and entry.home.bank is self and (entry.stage is None or entry.stage.bank is self)

    def put_text(self, kind: int, entry_id: int, payload: bytes, spare: int) -> bool:
        """Append a text entry, where so many records still fit then."""
        entry = livefile.pack_text(kind, entry_id, payload, self.salt)
        text_bytes = self.text_bytes + len(entry)
        limit = (self.end - self.first - text_bytes) // records.RECORD_BYTES
        if self.count + spare > limit:
            return False
        self.view[self.end - text_bytes : self.end - text_bytes + len(entry)] = entry
        self.text_bytes, self.limit = text_bytes, limit
        self.words[self.at // 8 + _TEXT_BYTES_AT] = text_bytes
        return True

    def put_new(self, text: str, spare: int) -> int:
        """The number of a text that is new to this bank; 0 where there is no room for it."""
        try:
            raw = utf8(text)  # may run others, who may put texts
        except Exception as exc:
            if not interruptions.is_ours(exc, utf8):
                raise
            interruptions.note("attributes", exc)
            return 0
        new_id = len(self.texts) + 1
        if not self.put_text(livefile.TEXT, new_id, raw, spare):
            return 0
        self.texts[text] = new_id
        count_cut(text, raw)
        return new_id

    def encode(self, attributes: dict[str, Any], spare: int) -> list[tuple[int, int]]:
        """The first two words of each attribute whose texts found room. Of what is no plain value, its type's name."""
        encoded = []
        for key, value in attributes.items():
            kind, text, bits = type(value), None, 0
            if kind is int and -_HALF <= value < _HALF:
                bits, word = value & records.U64, _INT
            elif kind is str:
                text, word = value, _TEXT
            elif kind is float:
                (bits,), word = _bits_of(_double(value)), _FLOAT
            elif kind is bool:
                bits, word = int(value), _BOOL
            elif value is None:
                word = _NULL
            else:
                text, word = plain_values.type_name(kind), _OTHER
            if text is not None:
                bits = self.texts.get(text) or self.put_new(text, spare)
            key_id = self.texts.get(key) or self.put_new(key, spare)
            if key_id and (bits or text is None):
                encoded.append((bits, key_id | word))
        return encoded

    def append(self, entry: Any, w2: int, more: Sequence[tuple[int, int]] = ()) -> bool:
        """Write a record, and those of its attributes, one after the other. False: there is no room.

        A signal handler, or a garbage collection, may write in between: then all is written again behind that.
        """
        w0, w1, salt, n = entry.end - self.origin, entry.w1, self.salt, 1 + len(more)
        if w0 < 0:
            w0 = 0
        elif w0 > _LOW_48:
            return False
        if entry.stage is not None:
            w0 |= entry.stage.id << 48
        while self.count + n <= self.limit:
            place = self.count
            at = self.first + place * 24
            for index, (bits, key) in enumerate(more, place + 1):
                w = _ATTRIBUTE | (bits ^ key ^ _ATTRIBUTE ^ salt ^ index) % _PRIME + 1 << _CHECK_SHIFT
                if self.count == place:
                    _put_record(self.view, self.first + 24 * index, bits, key, w)
            w = w2 | (w0 ^ w1 ^ w2 ^ salt ^ place) % _PRIME + 1 << _CHECK_SHIFT
            if self.count == place:
                entry.is_written, self.count = True, place + n
                _put_record(self.view, at, w0, w1, w)
                self.words[self.count_at] = self.count
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
        self.open: dict[int, Any] = {}
        self.windows: dict[Any, Any] = {}  # of coalesced calls that are not written yet: see `limits`
        self._seq, self._is_rotating = 0, False
        self.bank: Bank = self._activate(0)

    def let_go(self) -> None:
        """Release the buffer: what still refers to this live file fails with ValueError."""
        with lock:
            self.words.release()
            self.view.release()

    def _activate(self, index: int) -> Bank:
        self._seq += 1
        at = clock.now()
        ends = [window.end for window in tuple(self.windows.values()) if window.calls]
        self.bank = bank = Bank(self, index, self._seq, min([max(at - _ORIGIN_SLACK, 0), *ends]))
        for opened in tuple(self.open.values()):
            self._tell(opened)
        return bank

    def _tell(self, entry: Any, spare: int = 1) -> bool:
        """Put what it names into the active bank, where there is room."""
        bank = self.bank
        for owner in entry.owners():
            if owner.bank is not bank:
                kind, number, payload = owner.entry
                if not bank.put_text(kind, number, payload, spare):
                    return False
                owner.bank = bank
        return True

    def define(self, entry: Any) -> None:
        """What begins must be known in the active bank, where that is possible."""
        with lock:
            if not self._tell(entry) and self.rotate():
                self._tell(entry)

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
            is_empty = not bank.count
            free = bank.index if is_empty else next((i for i in others if self.state(i) == livefile.FREE), None)
            if free is not None:
                bank.count = _CLOSED  # what is about to be written here is written elsewhere
                self._activate(free)
            if not is_empty:
                if free is not None:
                    # Only now: were it sealed before the new bank knows what is open, a kill would leave that nameless.
                    self.state(bank.index, livefile.FULL)
                ring()
            return free is not None
        finally:
            self._is_rotating = False

    def state(self, index: int, state: int | None = None) -> int:
        """FREE, ACTIVE or FULL; it is made so, where that is said."""
        at = self.layout.bank_at(index) // 8 + _STATE_AT
        if state is not None:
            self.words[at] = state
        return self.words[at] & 0xFFFFFFFF

    def write(self, entry: Any, w2: int, attributes: dict[str, Any] = _NONE, is_lost: bool = False) -> None:
        """Write a record and its attributes into one bank; else count a drop.

        A text without room goes into a new bank; where there is none, the record goes without it.
        """
        if not (attributes or is_lost or entry.busy) and self.bank.knows(entry) and self.bank.append(entry, w2):
            return  # as nearly always: what takes no text needs no lock
        spare, is_last = len(attributes) + 2, False
        with lock:
            for _ in range(_TRIES):
                bank = self.bank
                if bank.count + spare <= bank.limit and (bank.knows(entry) or self._tell(entry, spare)):
                    more = bank.encode(attributes, spare)
                    is_whole = len(more) == len(attributes)
                    if entry.busy:
                        more.append((entry.busy, _BUSY))
                    if self.bank is not bank:
                        continue  # others have written meanwhile
                    if (is_whole or is_last) and bank.append(entry, w2, more):
                        if is_lost or not is_whole:
                            self.count(ATTRIBUTES_LOST)
                        return
                if is_last:
                    break
                self.rotate()
                is_last = True
            entry.is_written = True
            self.count(DROPPED)

    def count(self, which: int, more: int = 1) -> None:
        """So many more in the header's counter."""
        self.words[_COUNTERS_AT + which] += more


def open_slot(opened: Any) -> None:
    """Say in a slot that a range is open, where there is one; else count that."""
    to, start, w1, stage = opened.live, opened.start, opened.w1, opened.stage
    kept_for_stages = 0 if opened.site.own_stage is not None else to.layout.stage_slots
    if len(to.free) <= kept_for_stages:
        count(SLOTS_OVERFLOWED)
        return
    w2 = opened.depth << 16 | opened.home.thread.os_id << 32
    if stage is not None:
        w2 |= stage.id
    mark = start ^ w1 ^ w2 ^ to.nonce or 1
    opened.slot = slot = to.free[-1]
    to.open[slot] = opened
    del to.free[-1]
    _put_slot(to.view, slot, start, w1, w2, mark)


def close_slot(opened: Any, failed: bool = False) -> None:
    """It is not open any more."""
    slot, of = opened.slot, opened.live
    if not slot:
        return
    if of is live:
        of.words[slot // 8 + 3] = 0
    opened.slot = 0
    del of.open[slot]
    of.free.append(slot)


def count(which: int) -> None:
    """One more in a counter: of the live file, or of the time without one."""
    with lock:
        if live is None:
            _detached_counters[which] += 1
        else:
            live.count(which)


interruptions.on_count = lambda: count(FAULTS)


def count_cut(text: str, raw: bytes) -> None:
    """Count where `raw` is shorter than the whole text."""
    if len(text) > names.TEXT_LIMIT_BYTES // 4 and len(text.encode("utf-8", "backslashreplace")) > len(raw):
        count(TEXTS_CUT)


def counters() -> list[int]:
    """The counters, in the order of their numbers."""
    return list(_detached_counters if live is None else live.words[_COUNTERS_AT : _COUNTERS_AT + _COUNTED])


def after_fork() -> None:
    """A forked child touches nothing of its parent's file."""
    global lock, live
    lock, live = threading.RLock(), None
