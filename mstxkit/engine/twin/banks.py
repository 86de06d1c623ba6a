"""The live file as the engine writes it: banks with their records and texts, slots of what is open, counters, a clock.

The layout is that of docs/internals/format.md. Whatever touches a bank holds `lock`, for microseconds. A record counts
once the bank's count goes beyond it, so a process that is killed leaves no half one; a slot once its mark is in.

The clock is CLOCK_MONOTONIC or the fake one: Python cannot read a cycle counter. The heartbeat is a thread that needs
the GIL: where another thread holds it for seconds, beats come late, unlike those of the C engine.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from functools import partial
from typing import Any, Callable

from ...errors import FormatError
from ...host import names
from ...host.threads import Latch, start_without_signals
from ...store import livefile, records
from .. import plain_values
from . import interruptions

_STATE_AT, _COUNT_AT, _TEXT_BYTES_AT = 1, 4, 5  # words of a bank's header
_ATTRIBUTE = records.ATTRIBUTE << records.KIND_SHIFT
_CLOSED, _PATIENCE_S = 1 << 63, 0.2
# A record that made its bank rotate ended before the new one was activated.
_ORIGIN_SLACK = 4_000_000
MONOTONIC, FAKE = 1, 4
_EARLY_ANCHORS_NS, _ANCHOR_EVERY_NS, _ENDS_WITHIN_S = (10_000_000, 90_000_000, 900_000_000), 2_000_000_000, 0.5

# In a forked child another one: a thread that is not there may have held it.
lock = threading.RLock()
# Released while a bank is full or somebody woke the sealer: unlike an Event, safe in a signal handler.
_bell = threading.Lock()
_bell.acquire()
live: Any = None  # the one that is attached
detached = memoryview(bytearray(livefile.HEADER_BYTES)).cast("Q")  # in place of a header, for its counters
utf8: Callable[[str], bytes] = names.utf8
# The kernel's, taken once: who freezes time in a test replaces functions of `time`, also where modules hold them.
_monotonic_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
_realtime_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_REALTIME)
_clock, _fake_ticks = MONOTONIC, 0
beat: tuple[threading.Thread, Latch] | None = None  # the heartbeat, and what ends it


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
        self.told: dict[Any, tuple[int, int, bytes]] = {}  # what it knows of sites, tracks and stages
        self.salt = int.from_bytes(os.urandom(8), "little")
        livefile.activate_bank(live.view, live.layout, index, seq, self.salt, origin, _monotonic_ns())

    def put_text(self, text: tuple[int, int, bytes], spare: int) -> bool:
        """Append a text entry, where so many records still fit then."""
        entry = livefile.pack_text(*text, self.salt)
        text_bytes = self.text_bytes + len(entry)
        at = self.end - text_bytes
        if self.first + (self.count + spare) * records.RECORD_BYTES > at:
            return False
        self.view[at : at + len(entry)] = entry
        self.text_bytes = self.words[self.head + _TEXT_BYTES_AT] = text_bytes
        return True

    def number_of(self, text: str, spare: int) -> int:
        """The number of a text in this bank; 0 where there is no room for it."""
        if text not in self.numbers:
            raw = interruptions.ask("attributes", utf8, text)  # may run others, who may put texts
            number = len(self.numbers) + 1
            if raw is None or not self.put_text((livefile.TEXT, number, raw), spare):
                return 0
            self.numbers[text] = number
            count_cut(text, raw)
        return self.numbers[text]

    def encode(self, attributes: list[tuple[str, Any]], spare: int) -> list[tuple[int, int, int]]:
        """Each attribute whose texts found room, as a record has it. Of what is no plain value, its type's name."""
        rows = []
        for key, value in attributes:
            kind = type(value)
            if kind is bool or value is None:
                bits, word = int(value or 0), records.NULL if value is None else records.BOOL
            elif kind is int and -1 << 63 <= value < 1 << 63:
                bits, word = value & records.U64, records.INT
            elif kind is float:
                bits, word = *struct.unpack("<Q", struct.pack("<d", value)), records.FLOAT
            else:
                word = records.TEXT if kind is str else records.OTHER
                bits = self.number_of(value if kind is str else names.type_name(kind), spare)
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
                block += records.WORDS.pack(a, b, c | records.check_record(a, b, c, salt, index) << records.CHECK_SHIFT)
            at = self.first + place * records.RECORD_BYTES
            end = at + len(block)
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
        self.open: dict[int, Any] = {}
        self.windows: dict[Any, Any] = {}  # of coalesced calls that are not written yet: see `limits`
        self._seq, self._is_rotating = 0, False
        self.bank: Bank
        self._activate_bank(0)

    def _activate_bank(self, index: int) -> None:
        self._seq += 1
        ends = [window.end for window in tuple(self.windows.values()) if window.calls]
        self.bank = Bank(self, index, self._seq, min([max(now() - _ORIGIN_SLACK, 0), *ends]))
        for opened in tuple(self.open.values()):
            self.tell(opened, 1)

    def tell(self, entry: Any, spare: int) -> bool:
        """Put what it names into the active bank, where there is room."""
        bank = self.bank
        for owner in (entry.site, entry.home, entry.stage):
            if owner is not None and bank.told.get(owner) is not owner.entry:
                with lock:
                    if not bank.put_text(owner.entry, spare):
                        return False
                    bank.told[owner] = owner.entry
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
            free = [index for index in others if self.words[self.state_at(index)] == livefile.FREE]
            is_full = bank.count > 0
            if free or not is_full:
                bank.count = _CLOSED  # what is about to be written here is written elsewhere
                self._activate_bank(free[0] if is_full else bank.index)
            if is_full:
                if free:  # only now: were it sealed before the new bank knows what is open, that would be nameless
                    self.words[self.state_at(bank.index)] = livefile.FULL
                ring()
            return bool(free) or not is_full
        finally:
            self._is_rotating = False

    def state_at(self, index: int) -> int:
        """The word that says of a bank whether it is FREE, ACTIVE or FULL."""
        return self.layout.bank_at(index) // 8 + _STATE_AT

    def write(self, entry: Any) -> None:
        """Write a record and its attributes, by exact texts, into one bank; else count a drop.

        A text without room goes into a new bank; where there is none, the record goes without it.
        """
        pairs = tuple((entry.attributes or {}).items())
        texts = {str.__str__(key): value for key, value in pairs if issubclass(type(key), str)}
        limited = list(texts.items())[: records.ATTRIBUTE_LIMIT]
        attributes, is_lost = plain_values.settle(limited, len(limited) < len(pairs))
        spare = len(attributes) + 2
        with lock:
            for is_last in (False, True):
                bank = self.bank
                if self.tell(entry, spare):
                    rows = bank.encode(attributes, spare)
                    is_whole = len(rows) == len(attributes)
                    if (is_whole or is_last) and bank.append(entry, rows):
                        if is_lost or not is_whole:
                            count("attributes_lost")
                        return
                if not is_last:
                    self.rotate()
            entry.is_written = True
            count("dropped")

    def open_slot(self, opened: Any) -> None:
        """Begin it in the live file: a slot says that it is open, also after a kill.

        Where there is none, that is counted. What it names must be known in the active bank, where that is possible,
        also in one that comes meanwhile.
        """
        if len(self.free) <= (0 if opened.site.own_stage is not None else self.layout.stage_slots):
            count("slots_overflowed")
        else:
            opened.slot = slot = self.free[-1]
            self.open[slot] = opened
            del self.free[-1]
            if not self.tell(opened, 1):
                with lock:
                    self.rotate() and self.tell(opened, 1)
        opened.is_written, opened.start = False, now()
        if opened.slot:
            stage_id = 0 if opened.stage is None else opened.stage.id
            words = opened.start, opened.w1, opened.depth << 16 | opened.home.os_id << 32 | stage_id
            livefile.SLOT.pack_into(self.view, opened.slot, *words, livefile.slot_mark(*words, self.nonce))

    def close_slot(self, opened: Any) -> None:
        """It is not open any more."""
        slot = opened.slot
        if self is live:
            self.words[slot // 8 + 3] = 0
        opened.slot = 0
        del self.open[slot]
        self.free.append(slot)


def count(counter: str) -> None:
    """One more in a counter: of the live file, or of the time without one."""
    which = livefile.COUNTERS_AT // 8 + livefile.COUNTERS.index(counter)
    with lock:
        words = detached if live is None else live.words
        words[which] += 1


def count_cut(text: str, raw: bytes) -> None:
    """Count where `raw` is shorter than the whole text."""
    if len(text) > names.TEXT_LIMIT_BYTES // 4 and len(text.encode("utf-8", "backslashreplace")) > len(raw):
        count("texts_cut")


def now() -> int:
    """Ticks of the clock in use."""
    return _monotonic_ns() if _clock == MONOTONIC else _fake_ticks


def clock_kind() -> int:
    """1 CLOCK_MONOTONIC, 4 fake."""
    return _clock


def set_clock(kind: int) -> None:
    """Choose the clock; only while detached."""
    global _clock
    if live is not None:
        raise ValueError("the clock cannot change while a live file is attached")
    if kind not in (MONOTONIC, FAKE):
        raise ValueError(f"clock {kind!r} is not one of the Python engine: 1 is CLOCK_MONOTONIC, 4 the fake clock")
    _clock = kind


def set_fake_ticks(n: int) -> None:
    """What the fake clock says from now on."""
    global _fake_ticks
    if not 0 <= n < 1 << 64:
        raise OverflowError("ticks are from 0 to 2**64 - 1")
    _fake_ticks = n


def anchor() -> None:
    """One more anchor in the header, now, on all clocks: the tightest of a few brackets, as one may be interrupted."""
    into, brackets = live, []
    for _ in range(5):
        before, ticks, monotonic, realtime = _monotonic_ns(), now(), _monotonic_ns(), _realtime_ns()
        half = (_monotonic_ns() - before) // 2
        brackets.append(livefile.Anchor(monotonic if _clock == MONOTONIC else ticks, monotonic, realtime, half))
    if into is not None:
        livefile.write_anchor(into.view, min(brackets, key=lambda anchor: anchor.error_ns))


def start_heartbeat(seconds: float) -> None:
    """Keep the header's heartbeat and anchors, from a thread of its own."""
    global beat
    if beat is None and live is not None:
        arguments = (live.view, seconds, Latch())
        thread = threading.Thread(target=_keep_beating, args=arguments, name="mstxkit-heartbeat", daemon=True)
        start_without_signals(thread)
        beat = thread, arguments[2]


def stop_heartbeat() -> bool:
    """End that thread, and wait for it, unless a finalizer of the program keeps it. Was there one?"""
    global beat
    ended, beat = beat, None
    if ended is not None and ended[0] is not threading.current_thread():
        ended[1].set()
        ended[0].join(_ENDS_WITHIN_S)
    return ended is not None


def _keep_beating(view: memoryview, seconds: float, stop: Latch) -> None:
    early = list(_EARLY_ANCHORS_NS)
    due = _monotonic_ns() + early.pop(0)
    with view[livefile.HEARTBEAT_AT : livefile.HEARTBEAT_AT + 8].cast("Q") as words:
        while True:
            words[0] = at = _monotonic_ns()
            if at >= due:
                anchor()
                due = at + (early.pop(0) if early else _ANCHOR_EVERY_NS)
            if stop.wait(min(seconds, max(due - at, 0) * 1e-9)):
                return
