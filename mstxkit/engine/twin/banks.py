"""The live file as the Python twin writes it: banks with their records and texts, open slots, counters.

Records need no lock: a place comes from an iterator's `__next__`, which is one atomic step, and a record is whole once
its check bits are in. Everything rare (rotation, texts, records with attributes, counters) takes `lock`, for
microseconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from itertools import islice
from operator import length_hint
from typing import Callable, Iterable, Sequence

from ...errors import FormatError
from ...store import livefile, records
from ..plain_values import settle
from . import clock, encoding

DROPPED, SLOTS_OVERFLOWED, ATTRIBUTES_LOST, NAMES_CAPPED, TEXTS_CUT, FAULTS, _, COALESCED = range(8)
_COUNTED = 8
_COUNTERS_AT = livefile.COUNTERS_AT // 8
_SLOT_WORDS = livefile.SLOT_BYTES // 8
_RECORD_WORDS = records.RECORD_BYTES // 8
_COUNT_AT, _TEXT_USED_AT = 4, 5
_STATE_AT = 8
_LATE_RECORD_S = 2.0
# Records that are written together the quick way, at most: a range, its attributes, its busy time.
GROUP_LIMIT = 10

# A record that made its bank rotate ended before the new one was activated.
_ORIGIN_SLACK = 4_000_000

# Replaced at attach and detach: a lock that another thread held at a fork stays locked in the child.
lock = threading.RLock()
# Released while a bank is full or somebody woke the sealer: unlike an Event, safe in a signal handler.
_bell = threading.Lock()
_bell.acquire()
_detached_counters = [0] * _COUNTED
# The first end that is still to be written, at most the time given: a bank begins before it.
oldest_pending: Callable[[int], int] = lambda at: at  # noqa: E731


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
    """The active bank: where the next record goes, and what texts it has.

    `take()` gives the place of a record, which is an index of the three columns.
    """

    __slots__ = (
        "_lost_from", "_words", "busy_check", "capacity", "columns", "count_at", "end", "first", "groups", "index",
        "kinds", "origin", "places", "salt", "sites", "stages", "take", "text_room", "text_used", "texts",
        "tracks", "view",
    )  # fmt: skip

    def __init__(self, live: Live, index: int, seq: int, text_room: int) -> None:
        at = live.layout.bank_at(index)
        self.index = index
        self.view, self._words = live.view, live.words
        self.salt = int.from_bytes(os.urandom(8), "little")
        now = clock.now()
        self.origin = min(max(now - _ORIGIN_SLACK, 0), oldest_pending(now))
        self.end = at + live.layout.bank_bytes
        self.count_at = at // 8 + _COUNT_AT
        self.text_room, self.text_used = text_room, 0
        self.texts: dict[str, int] = {}
        # What `writers` looks up, and where the first record is in the file, in bytes.
        self.kinds = encoding.kinds()
        _, self.busy_check = encoding.attribute_words(self, records.BUSY << 32)
        self.first = at + livefile.BANK_HEADER_BYTES
        self.sites: set[int] = set()
        self.stages: set[int] = set()
        self.tracks: dict[int, int] = {}
        self.capacity = self._lost_from = (live.bank_room - text_room) // records.RECORD_BYTES
        self.columns = live.usable(index, self.capacity)
        # More than there are, so that a group is never cut short: who takes one beyond the end knows what is lost.
        self.places = iter(range(self.capacity + GROUP_LIMIT))
        # By a number: so many places that follow each other, taken in one step.
        self.groups = [zip(*[self.places] * size).__next__ for size in range(GROUP_LIMIT + 1)]
        self.take: Callable[[], int] = self.places.__next__
        now_ns = time.monotonic_ns()
        livefile.activate_bank(live.view, live.layout, index, seq, self.salt, self.origin, now_ns)

    def knows(self, site: int, track: int, stage: int) -> bool:
        """Has it the texts of these ids?"""
        return site in self.sites and track in self.tracks and (not stage or stage in self.stages)

    def taken(self) -> int:
        """How many places have been given out."""
        return min(self.capacity + GROUP_LIMIT - length_hint(self.places), self.capacity)

    def close(self) -> None:
        """Give out no more places. To drain an iterator is one atomic step."""
        left = list(self.places)
        self._words[self.count_at] = min([self._lost_from, *left[:1]])

    def lose(self, place: int) -> None:
        """A group from here on goes beyond the end: nothing is in the places before it."""
        self._lost_from = min(self._lost_from, place)

    def put_text(self, kind: int, entry_id: int, payload: bytes) -> bool:
        """Append a text entry; False where there is no room."""
        entry = livefile.pack_text(kind, entry_id, payload, self.salt)
        if self.text_used + len(entry) > self.text_room:
            return False
        self.text_used = used = self.text_used + len(entry)
        self.view[self.end - used : self.end - used + len(entry)] = entry
        self._words[self.count_at - _COUNT_AT + _TEXT_USED_AT] = used
        return True

    def store(self, place: int, w0: int, w1: int, w2: int) -> None:
        """One record with its check bits."""
        first, second, third = self.columns
        first[place] = w0
        second[place] = w1
        third[place] = w2 | records.check(w0, w1, w2, self.salt, place) << records.CHECK_SHIFT

    def publish(self, place: int) -> None:
        """Say that the record at `place` is written. The count never goes back: a thread may be late with a place."""
        if self._words[self.count_at] <= place:
            self._words[self.count_at] = place + 1


class Live:
    """An attached live file. `activated` hears of each new active bank; `definitions` gives what each has at once, and
    what it has as well where there is room.
    """

    def __init__(
        self,
        source: object,
        nonce: int,
        activated: Callable[[Bank], None],
        definitions: Callable[[Live], tuple[list[tuple[int, int, bytes]], list[tuple[int, int, bytes]]]],
    ) -> None:
        self.view = memoryview(source).cast("B")  # type: ignore[arg-type]
        try:
            header = livefile.read_header(self.view)
        except FormatError as exc:
            raise ValueError(f"not the buffer of a live file: {exc}") from exc
        self.layout = header.layout
        self.words = self.view[: len(self.view) // 8 * 8].cast("Q")
        self.nonce = nonce
        self.pid = os.getpid()
        self.bank_room = self.layout.bank_bytes - livefile.BANK_HEADER_BYTES
        self.columns = [self._columns(index) for index in range(self.layout.bank_count)]
        self._usable = [self._columns(index) for index in range(self.layout.bank_count)]
        self._slots_at = livefile.HEADER_BYTES // 8
        # Word indices. Taken from the left, given back on the right: a late thread's slot is not at once another's.
        self.free = deque(range(self._slots_at, self._slots_at + _SLOT_WORDS * self.layout.slot_count, _SLOT_WORDS))
        self.stage_slots = self.layout.stage_slots
        self._activated, self._definitions = activated, definitions
        self._seq, self._rotating = 0, False
        self._counted = [0] * self.layout.bank_count
        self._written: Counter[int] = Counter()
        self.bank = self._activate(0, 0)

    def let_go(self) -> None:
        """Release the buffer: what still refers to this live file fails with ValueError, and is caught."""
        columns = (*self.columns, *self._usable)
        for view in (*(column for of_bank in columns for column in of_bank), self.words, self.view):
            view.release()

    def usable(self, index: int, capacity: int) -> tuple[memoryview, memoryview, memoryview]:
        """The columns of a bank up to its capacity: a store beyond it fails."""
        if len(self._usable[index][0]) != capacity:
            before, (first, second, third) = self._usable[index], self.columns[index]
            self._usable[index] = first[:capacity], second[:capacity], third[:capacity]
            for column in before:
                column.release()
        return self._usable[index]

    def _columns(self, index: int) -> tuple[memoryview, memoryview, memoryview]:
        """The first, second and third words of a bank's records."""
        first = (self.layout.bank_at(index) + livefile.BANK_HEADER_BYTES) // 8
        end = first + self.bank_room // records.RECORD_BYTES * _RECORD_WORDS
        columns = [self.words[first + word : end : _RECORD_WORDS] for word in range(_RECORD_WORDS)]
        return columns[0], columns[1], columns[2]

    def is_used(self, slot: int) -> bool:
        """Is a range open in this slot?"""
        try:
            return bool(self.words[slot + 3])
        except ValueError:  # let go of
            return False

    def open_words(self) -> list[tuple[int, int]]:
        """(w1, w2) of every slot in use."""
        end = self._slots_at + _SLOT_WORDS * self.layout.slot_count
        marks = self.words[self._slots_at + 3 : end : _SLOT_WORDS].tolist() if self.layout.slot_count else []
        used = [self._slots_at + _SLOT_WORDS * i for i, mark in enumerate(marks) if mark]
        return [(self.words[at + 1], self.words[at + 2]) for at in used]

    def _activate(self, index: int, text_bytes: int) -> Bank:
        entries, likely = self._definitions(self)
        needed = _size_of(entries) + text_bytes
        self._seq += 1
        room = self.bank_room
        bank = Bank(self, index, self._seq, min(max(room // 4, needed), room // 4 * 3) // 8 * 8)
        self.bank, self._counted[index] = bank, 0
        for kind, entry_id, payload in entries:
            self.define(bank, kind, entry_id, payload)
        for entry in likely:
            if bank.text_used + text_bytes + _size_of([entry]) <= bank.text_room:
                self.define(bank, *entry)
        self._activated(bank)
        return bank

    def define(self, bank: Bank, kind: int, entry_id: int, payload: bytes) -> bool:
        """Put a site, stage or track into a bank, unless it is there already; False where there is no room."""
        if kind == livefile.SITE and entry_id in bank.sites:
            return True
        if kind == livefile.STAGE and entry_id in bank.stages:
            return True
        if kind == livefile.TRACK and bank.tracks.get(entry_id) == hash(payload):
            return True
        if not bank.put_text(kind, entry_id, payload):
            return False
        if kind == livefile.SITE:
            bank.sites.add(entry_id)
        elif kind == livefile.STAGE:
            bank.stages.add(entry_id)
        elif kind == livefile.TRACK:
            bank.tracks[entry_id] = hash(payload)
        return True

    def _define_all(self, bank: Bank, entries: list[tuple[int, int, bytes]]) -> bool:
        return all([self.define(bank, *entry) for entry in entries])  # noqa: C419  # all of them, in any case

    def define_here(self, entries: list[tuple[int, int, bytes]]) -> None:
        """What begins must be known in the active bank, where that is possible."""
        with lock:
            if not self._define_all(self.bank, entries) and self.rotate(_size_of(entries)):
                self._define_all(self.bank, entries)

    def rotate(self, text_bytes: int = 0) -> bool:
        """Hand the active bank to the sealer and take a free one, with room for so much text. False: there is none.

        An empty bank is begun again. Called with `lock`; the flag is for a garbage collection that ends a range here.
        """
        if self._rotating:
            return False
        self._rotating = True
        try:
            return self._rotate(text_bytes)
        finally:
            self._rotating = False

    def _rotate(self, text_bytes: int) -> bool:
        bank, count = self.bank, self.layout.bank_count
        if not bank.taken():
            bank.close()
            self._activate(bank.index, text_bytes)
            return True
        others = [(bank.index + i) % count for i in range(1, count)]
        free = next((i for i in others if self.state(i) == livefile.FREE), None)
        if free is None:
            ring()
            return False
        bank.close()
        self._activate(free, text_bytes)
        # Only now: were it sealed and freed before the new bank knows what is open, a kill would leave that nameless.
        self._set_state(bank.index, livefile.FULL)
        ring()
        return True

    def state(self, index: int) -> int:
        """FREE, ACTIVE or FULL."""
        return self.words[(self.layout.bank_at(index) + _STATE_AT) // 8] & 0xFFFFFFFF

    def _set_state(self, index: int, state: int) -> None:
        self.words[(self.layout.bank_at(index) + _STATE_AT) // 8] = state

    def full_bank(self) -> int:
        """The full bank with the lowest sequence number, -1 if none."""
        full = [i for i in range(self.layout.bank_count) if self.state(i) == livefile.FULL]
        return min(full, key=lambda i: self.words[self.layout.bank_at(i) // 8], default=-1)

    def release_bank(self, index: int) -> None:
        """The bank is free again; where there was none to rotate into, records may go on."""
        if self.state(index) == livefile.FULL:  # in the middle of a rotation `bank` is still the full one
            self._set_state(index, livefile.FREE)

    def copy_bank(self, index: int) -> tuple[bytes, bytes, int]:
        """(raw records, text bytes, salt) of a bank; waits a moment for threads that are late with a record of it."""
        deadline = time.monotonic() + _LATE_RECORD_S
        while True:
            bank = livefile.read_bank(self.view, self.layout, index)
            if bank is None:
                return b"", b"", 0
            if _is_complete(bank) or time.monotonic() > deadline:
                return bank.raw, bank.text, bank.salt
            time.sleep(0.001)

    def write(
        self, entries: list[tuple[int, int, bytes]], end: int, w0: int, w1: int, w2: int,
        values: Sequence[tuple[str, object]], busy: int, is_lost: bool = False,
    ) -> None:  # fmt: skip
        """Write a record and its attributes into one bank, which knows the given entries; else count a drop.

        Args:
            end: Its end in ticks; `w0` has the stage only.
            values: (key, value) pairs, at most `records.ATTRIBUTE_LIMIT`, the keys strings.
            busy: Ticks, 0 for none.
            is_lost: Has it lost attributes already?
        """
        words = (w0, w1, w2)
        if not self._write(entries, end, words, values, busy, is_lost):
            settled, is_lost = settle(values, is_lost)  # outside of the lock: it may log
            self._write(entries, end, words, settled, busy, is_lost, True)

    def _write(
        self, entries: list[tuple[int, int, bytes]], end: int, words: tuple[int, int, int],
        values: Sequence[tuple[str, object]], busy: int, is_lost: bool, is_settled: bool = False,
    ) -> bool:  # fmt: skip
        """False: the values must be settled first."""
        with lock:
            text_bytes = 0
            for last_try in (False, True):
                if end - self.bank.origin > records.LOW_48:
                    self.rotate()
                bank = self.bank
                if self._define_all(bank, entries):
                    found_room = encoding.encode(bank, values, is_settled)
                    if found_room is None:
                        return False
                    encoded, text_bytes = found_room
                    whole = len(encoded) == len(values)
                    if (whole or last_try) and self._put(bank, end, *words, encoded, busy):
                        if is_lost or not whole:
                            self.count(ATTRIBUTES_LOST)
                        return True
                if not last_try:
                    self.rotate(text_bytes + _size_of(entries))
            self.count(DROPPED)
            return True

    def _put(self, bank: Bank, end: int, w0: int, w1: int, w2: int, encoded: list[tuple[int, int]], busy: int) -> bool:
        words = [*encoded, (busy, records.BUSY << 32)] if busy else encoded
        if bank.taken() + 1 + len(words) > bank.capacity:
            return False
        places = list(islice(bank.places, 1 + len(words)))
        if len(places) <= len(words) or places[-1] >= bank.capacity:
            bank.lose(min([bank.capacity, *places]))
            return False
        kind = records.ATTRIBUTE << records.KIND_SHIFT
        for place, (value, key) in zip(places[1:], words):
            bank.store(place, value, key, kind)
        bank.store(places[0], w0 | min(max(end - bank.origin, 0), records.LOW_48), w1, w2)
        bank.publish(places[-1])
        if w2 >> records.KIND_SHIFT & 3 == records.RANGE:
            self._written[w1 & 0xFFFF] += 1
        return True

    def ranges_since(self) -> Counter[int]:
        """By site id: ranges in the banks that were not there the last time, without those of `write`."""
        counts: Counter[int] = Counter()
        for index, first in enumerate(self._counted):
            _, seconds, thirds = self.columns[index]
            self._counted[index] = last = max(first, self._count_of(index))
            both = zip(seconds[first:last].tolist(), thirds[first:last].tolist())
            counts.update(w1 & 0xFFFF for w1, w2 in both if w2 >> records.KIND_SHIFT & 3 == records.RANGE)
        counts.subtract(self._written)
        self._written.clear()
        return counts

    def _count_of(self, index: int) -> int:
        is_used = self.state(index) != livefile.FREE
        return min(self.words[self.layout.bank_at(index) // 8 + _COUNT_AT], len(self.columns[index][0])) * is_used

    def count(self, which: int, more: int = 1) -> None:
        """So many more in the header's counter."""
        self.words[_COUNTERS_AT + which] += more


def _size_of(entries: Iterable[tuple[int, int, bytes]]) -> int:
    """Bytes of text entries, at most."""
    return sum(len(payload) + 8 + livefile.TRAILER.size for _, _, payload in entries)


def _is_complete(bank: livefile.BankCopy) -> bool:
    words = records.WORDS.iter_unpack(bank.raw)
    return all(records.is_whole(w0, w1, w2, bank.salt, index) for index, (w0, w1, w2) in enumerate(words))


def count(live: Live | None, which: int) -> None:
    """One more in a counter: of the live file, or of the time without one."""
    with lock:
        if live is None:
            _detached_counters[which] += 1
        else:
            live.count(which)


def counters(live: Live | None) -> list[int]:
    """The counters, in the order of their numbers."""
    if live is None:
        return list(_detached_counters)
    return live.words[_COUNTERS_AT : _COUNTERS_AT + _COUNTED].tolist()


def renew_lock() -> None:
    """A lock of its own for the next live file: see `lock`."""
    global lock
    lock = threading.RLock()
