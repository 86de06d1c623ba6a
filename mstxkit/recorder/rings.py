"""Entries into collectives, into a ring of ours: those that Python code makes at each tick, those of torch's ring by
schedule, on request, and at the end. What is in both is handed over once, as it was called.

A reading of torch's ring holds the GIL, so it is short or it is not done: its length is known beforehand, from how many
entries there are and how long an entry took before. Nothing here runs on a training thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Iterable

from .. import faults
from ..engine.choose import engine
from ..host import clock
from ..store import collectives, layout
from ..store.handed_over import GROUPS, OF_COLLECTIVES, SummaryRing
from ..store.values import whole_number
from . import entries, torch_rings
from .torch_rings import GroupOfRing, TorchRing

# A reading that would hold the GIL for longer is not done; one that did is followed by fewer.
HELD_AT_MOST_MS, TOO_LONG_MS, HELD_AT_THE_END_MS = 30.0, 50.0, 250.0
# As the watchman asks: as a rule nobody computes then; who does is held up once.
HELD_AT_A_HANG_MS = 120.0
# Until an entry was measured: twice what it takes on x86 at 2.5 GHz.
_GUESS_NS, _LEAST_NS, _MEASURED_FROM, _MS = 45_000.0, 5_000.0, 50, 1e6
_FIRST_STEP, _EVERY_STEPS, _EVERY_S = 20, 100, 60.0
# Beyond this the wall clock was set between two readings: what was stamped before is on no clock that is known.
_CLOCK_WAS_SET_NS = 1_000_000
_ENDS_WITHIN_S = 1.0
_GROUPS_AT_MOST, _CALLS_AT_MOST = 64, 4096

Put = Callable[[bytes, "dict[str, Any]"], None]


class RingSchedule:
    """When a ring is read: after 20 steps, then every 100 steps or 60 s, whichever is rarer."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._step: int | None = None
        self._read_s: float | None = None
        self._began_s: float | None = None
        self.every_s = _EVERY_S

    def is_due(self, step: int | None, now_s: float) -> bool:
        """Is it time? Asked once a second; `step` is the one in force, None where steps are not counted."""
        self._began_s = now_s if self._began_s is None else self._began_s
        if step is None:
            return now_s - (self._began_s if self._read_s is None else self._read_s) >= self.every_s
        self._first = step if self._first is None else self._first
        if self._read_s is None or self._step is None:
            return step - self._first >= _FIRST_STEP
        return abs(step - self._step) >= _EVERY_STEPS and now_s - self._read_s >= self.every_s

    def was_read(self, step: int | None, now_s: float) -> None:
        """It is read now."""
        self._step, self._read_s = step, now_s


class Rings:
    """Hands over what is new in this process's ring.
    `folder`: of the live files of this host. `put`: adds rows and replaces the document beside them. `inherits_groups`:
    were there groups as this process was forked? Their ring is its parent's to hand over.

    Threads/fork: `consider` on one thread of ours, `finish` on any. A forked child makes a new one.
    """

    def __init__(self, folder: Path, put: Put, inherits_groups: bool = False) -> None:
        self._folder, self._put = folder, put
        self._reading = threading.Lock()
        self._is_off = inherits_groups
        self._asked = collectives.find_asked(folder)
        self._schedule, self._entry_ns = RingSchedule(), _GUESS_NS
        self._ring: TorchRing | None = None
        self._groups: dict[str, GroupOfRing] = {}
        self._news = News()
        self._offset_ns: int | None = None
        self._why_not = ""

    def tell_calls(self, everything: bool = False) -> None:
        """At each tick: hand over what Python code has entered since. Never raises."""
        self._read_alone(lambda: self._tell_calls(everything), is_of_ring=False)

    def _read_alone(self, read: Callable[[], object], wait_s: float = 0.0, is_of_ring: bool = True) -> None:
        """Unless somebody else is at it, or torch's ring has failed before."""
        if not self._is_off and self._reading.acquire(timeout=wait_s):
            try:
                read()
            except Exception as exc:
                self._is_off |= is_of_ring
                faults.note_fault("rings" if is_of_ring else "entries", exc)
            finally:
                self._reading.release()

    def _tell_calls(self, everything: bool = False) -> None:
        rows, began_ns = entries.take_entries(everything)
        self._news.called(began_ns)
        if rows:
            self._put(rows, self._document())

    def consider(self) -> None:
        """Once a second: read the ring if it is time. Never raises. *Cost*: microseconds where it is not."""
        self._read_alone(lambda: self._read_if_due(HELD_AT_MOST_MS))

    def read_now(self) -> None:
        """At a hang, or another's death: hand over what is new, and what is waited for. Never raises."""
        self.tell_calls(everything=True)
        self._read_alone(lambda: self._read_if_due(HELD_AT_A_HANG_MS, is_wanted=True))

    def _read_if_due(self, held_at_most_ms: float, is_wanted: bool = False) -> None:
        if torch_rings.is_set_up():
            groups = torch_rings.list_groups()
            if len(groups) != len(self._groups) or any(group.name not in self._groups for group in groups):
                self._groups.update((group.name, group) for group in groups)
            if not is_wanted:
                asked = collectives.find_asked(self._folder)
                was_asked, self._asked = asked not in (self._asked, ()), asked
                is_wanted = was_asked or self._schedule.is_due(engine.current_step(), time.monotonic())
            if is_wanted:
                self._tell_calls()
                self._read(held_at_most_ms)

    def finish(self) -> None:
        """The end: hand over what is new, as far as it may still be read. Never raises."""
        self._read_alone(self._read_last, _ENDS_WITHIN_S)

    def _read_last(self) -> None:
        self._tell_calls(everything=True)
        # A group that is destroyed may leave events in the ring that are gone; those of gloo have none.
        is_safe = torch_rings.is_set_up() or all("gloo" in group.backend for group in self._groups.values())
        if self._groups and is_safe:
            self._read(HELD_AT_THE_END_MS)
        self._is_off = True

    def _read(self, held_at_most_ms: float) -> None:
        self._schedule.was_read(engine.current_step(), time.monotonic())
        self._ring = self._ring or torch_rings.find_ring()
        why_not = self._reason_against(held_at_most_ms)
        if self._ring is None or why_not:
            if not self._why_not:
                self._why_not = why_not
                why = f"who enters collectives late is not known from torch's ring: {why_not}"
                faults.say_once(why, is_asked_for=True)
                self._put(b"", self._document())
            return
        began_ns = time.monotonic_ns()
        read = self._ring.read()
        if len(read.entries) >= _MEASURED_FROM:
            self._entry_ns = max(_LEAST_NS, read.cpu_ns / len(read.entries))
        if read.held_ns > TOO_LONG_MS * _MS:
            self._schedule.every_s = min(3600.0, self._schedule.every_s * 2)
            faults.say_once(f"a reading of torch's ring took {read.held_ns / _MS:.0f} ms: it is read half as often now")
        _, mono_ns, wall_ns = clock.ask_both()
        before_ns, self._offset_ns = self._offset_ns, wall_ns - mono_ns
        rows = list(self._news.of(read.entries, self._groups, self._offset_ns, began_ns))
        if before_ns is not None and abs(self._offset_ns - before_ns) > _CLOCK_WAS_SET_NS:
            rows = []
        self._news.disturbed = began_ns, time.monotonic_ns()
        self._why_not = ""
        self._put(b"".join(row.pack() for row in rows), self._document())

    def _reason_against(self, held_at_most_ms: float) -> str:
        if self._ring is None:
            return "it is off; capture(rings=True) before the process group is made switches it on"
        expected_ms = self._ring.count() * self._entry_ns / _MS
        if expected_ms <= held_at_most_ms:
            return ""
        shorter = 1 << max(0, int(held_at_most_ms * _MS / self._entry_ns).bit_length() - 1)
        return (
            f"reading its {self._ring.size} entries would hold training up for {expected_ms:.0f} ms; "
            f"{self._ring.kind.variables[0]}={shorter} before the job starts gives one that can be read"
        )

    def _document(self) -> dict[str, Any]:
        of_ring = [*list(self._groups.values())[:_GROUPS_AT_MOST], *self._news.pairs.values()]
        groups = {str(group.number): group.as_json() for group in of_ring}
        groups.update(entries.list_groups())
        return {
            GROUPS: groups, collectives.RANK: torch_rings.find_rank(), collectives.WHY_NOT: self._why_not,
            collectives.RING: self._ring.size if self._ring else 0,
        }  # fmt: skip


def open_rings(live_file: Path, inherits_groups: bool) -> Rings:
    """Those of the process with this live file, handed over beside it."""
    ring = SummaryRing(live_file.with_suffix(layout.RINGS_SUFFIX), kind=OF_COLLECTIVES)
    return Rings(live_file.parent, ring.put, inherits_groups)


class News:
    """What of a ring was not handed over before.
    `disturbed`: when the last reading began and ended, CLOCK_MONOTONIC. `pairs`: who sends to whom, by their group and
    what the ring calls it.
    """

    def __init__(self) -> None:
        self._last = -1, 0  # record id, and when it was made
        self._sequences: dict[int, int] = {}
        self._called: dict[tuple[int, bool], deque[int]] = {}
        self._has_all = True  # of what was ever in the ring
        self.pairs: dict[tuple[int, str], GroupOfRing] = {}
        self.disturbed = 0, 0

    def called(self, began_ns: Iterable[tuple[int, bool, int]]) -> None:
        """When Python code began calls, with the number of their group, and whether they are of a pair: the next that
        the ring has of that group is the same.
        """
        for number, is_of_pair, began in began_ns:
            self._called.setdefault((number, is_of_pair), deque(maxlen=_CALLS_AT_MOST)).append(began)

    def of(
        self, entries: Iterable[dict[str, Any]], groups: dict[str, GroupOfRing], offset_ns: int, began_ns: int
    ) -> Iterable[collectives.CollectiveEntry]:
        """Its entries as rows, the oldest first; those of groups that nobody knows, and those that were handed over as
        they were called, are left out.
        `groups`: by name. `offset_ns`: CLOCK_REALTIME, which the ring has, less CLOCK_MONOTONIC. `began_ns`: when the
        reading began: what was found to be over since was over before.
        """
        (last_record, last_ns), (held_from, held_to) = self._last, self.disturbed
        for entry in entries:
            record, created_ns = whole_number(entry.get("record_id")), whole_number(entry.get("time_created_ns"))
            if record <= last_record and created_ns <= last_ns:
                continue
            self._has_all &= record == self._last[0] + 1
            self._last = record, created_ns
            row = self._row(entry, groups, created_ns - offset_ns)
            if row is None:
                continue
            if held_to and row.entered_ns >= held_from:
                row = row._replace(flags=row.flags | collectives.DISTURBED)
                held_to = 0 if row.entered_ns > held_to else held_to
            over_ns = whole_number(entry.get("time_discovered_completed_ns")) - offset_ns
            if row.entered_ns <= over_ns < began_ns:
                row = row._replace(left_ns=over_ns, flags=row.flags | collectives.LEFT_AT_MOST)
            yield row

    def _row(
        self, entry: dict[str, Any], groups: dict[str, GroupOfRing], entered_ns: int
    ) -> collectives.CollectiveEntry | None:
        names, sequence = entry.get("process_group"), whole_number(entry.get("collective_seq_id"))
        group = groups.get(str(names[0])) if isinstance(names, list) and names else None
        if group is None:
            return None
        name, number, is_of_pair = str(entry.get("profiling_name")), group.number, entry.get("is_p2p") is True
        if is_of_pair:
            number, sequence = self._in_pair(group, name)
        # Several operations of one launch have one number: the first entered.
        is_same = self._sequences.get(number) == sequence
        self._sequences[number] = sequence
        began, was_called = self._called.get((group.number, is_of_pair)) or deque(), False
        while began and began[0] <= entered_ns:
            was_called = bool(began.popleft())
        if was_called or is_same or not number:
            return None
        size = torch_rings.size_kib(entry)
        return collectives.CollectiveEntry(number, sequence, entered_ns, 0, torch_rings.number_operation(name), 0, size)

    def _in_pair(self, group: GroupOfRing, name: str) -> tuple[int, int]:
        """Number and sequence of a send or receive; (0, 0) where it is not known which of its pair it is."""
        is_known = self._has_all and len(self.pairs) < _GROUPS_AT_MOST
        ranks = torch_rings.pair_in(name, group.ranks) if is_known else None
        if ranks is None:
            return 0, 0
        pair = self.pairs.setdefault((group.number, "{}>{}".format(*ranks)), torch_rings.pair_of(group, *ranks, "ring"))
        return pair.number, self._sequences.get(pair.number, -1) + 1
