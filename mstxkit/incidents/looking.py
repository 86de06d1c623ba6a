"""One process of the run, looked at again and again through its live file: what it is inside of, and since when
nothing goes on in there.

Its files stay open, so that its last words can be read once it is gone and they are removed. It does not notice.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple

from ..errors import FormatError
from ..host import identity, life
from ..store import documents, glance, layout, livefile, records, stacks
from ..store.livefile import BankHead, Header, Slot

# Of the newest records so many are looked at for what they were inside of; others of that moment are like them.
_RECORDS_AT_MOST, _TEXTS_AT_MOST = 64, 1 << 20
# So much of a bank may be over for an incident.
_LAST_RECORDS = 4096
_NS = 10**9
# Ranks of a job begin one after the other; one that dies at once has shown no sign of life since.
_BEGIN_TOGETHER_NS = 3 * _NS


class RangeInside(NamedTuple):
    """A range that a process is inside of."""

    slot: Slot  # as it stands in the live file
    # name, domain, stage: texts; "?" where they are not known, "" for no stage
    name: str
    domain: str
    stage: str
    since_ns: int  # when it began, CLOCK_MONOTONIC
    quiet_ns: int  # when something inside of it ended or began last, or it itself did
    ended: int = 0  # so many of its kind have ended here, at least


# A range that is open: process, track, start.
Place = tuple[str, int, int]


class LastRange(NamedTuple):
    """A range that has ended, or a mark. Times CLOCK_MONOTONIC."""

    name: str
    stage: str
    step: int | None
    end_ns: int
    duration_ns: int
    error: bool


class WatchedProcess:
    """One process. `folder`: of the live files. `name`: of its files. Raises OSError, FormatError: there is no live
    file of it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self._folder = name, folder
        self.live_file = folder / f"{name}{layout.LIVE_SUFFIX}"
        self._live = documents.open_regular(self.live_file)
        self._stacks = -1
        self.who: Mapping[str, Any] = {}
        self.pidfd = -1
        self.moved_ns = 0
        self._header: Header | None = None
        self._texts = livefile.Texts({}, {}, {}, {})
        self._before: set[Slot] = set()
        self._recorded = (0, 0)
        self._moved: dict[tuple[str, int], int] = {}
        # How many of a kind, stage and site, have ended: by records, and by slots, of which none is missed that lasts.
        self._ended, self._left = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        self._identity_mark: tuple[int, ...] = ()
        self._seen = b"", -1, -1
        self.inside: list[RangeInside] = []
        self.began_ns = self.heartbeat_ns = 0
        self.look(0)
        self.moved_ns = time.monotonic_ns()

    @property
    def pid(self) -> int:
        """Of the process; 0 where it is of another pid namespace."""
        pid = self.who.get("pid")
        return pid if isinstance(pid, int) and self.who.get("pidns") == identity.read_namespace("pid") else 0

    def look(self, now_ns: int) -> list[RangeInside]:
        """What it is inside of now; what it left since the last look is given back. `now_ns`: CLOCK_MONOTONIC. Raises
        OSError, FormatError: its live file cannot be read.
        """
        raw = documents.read_part(self._live, 0, livefile.HEADER_BYTES + glance.SLOTS * livefile.SLOT_BYTES)
        head = raw[: livefile.HEADER_BYTES]
        header = self._header = livefile.read_header(head, os.fstat(self._live).st_size)
        self.learn_who(head)
        self.began_ns = self.began_ns or min((a.monotonic_ns for a in livefile.read_anchors(head)), default=0)
        self.heartbeat_ns = livefile.heartbeat_ns(head) or self.began_ns
        used = glance.used_slots(self._live, header, raw[livefile.HEADER_BYTES :])
        (active,) = struct.unpack_from("<I", head, livefile.ACTIVE_BANK_AT)
        if active >= header.layout.bank_count:
            raise FormatError("a live file whose active bank is none of it", livefile.ACTIVE_BANK_AT)
        at, bank = self._read_bank(active, header)
        is_as_before = (used, bank.seq, bank.record_count) == self._seen
        self._seen = used, bank.seq, bank.record_count
        if is_as_before:  # most processes do nothing between two looks
            return []
        slots = glance.open_slots(head, header, used)
        self._note_progress(slots, at, bank, now_ns)
        texts = self._texts
        if not all(slot.site in texts.sites and (not slot.stage or slot.stage in texts.stages) for slot in slots):
            self._learn_texts(header)
        before, self.inside = self.inside, [self._range_inside(slot, head, header) for slot in slots]
        self._before = set(slots)
        left = [range_ for range_ in before if range_.slot not in self._before]
        self._left.update((range_.slot.stage, range_.slot.site) for range_ in left)
        return left

    def learn_who(self, head: bytes | None = None) -> None:
        """Who it is may have become known since the last look. `head`: of its file, if just read. Raises as `look`."""
        head = documents.read_part(self._live, 0, livefile.HEADER_BYTES) if head is None else head
        if self.who and livefile.identity_mark(head) == self._identity_mark:
            return
        self._identity_mark = livefile.identity_mark(head)
        who = self.who = livefile.read_identity(head)
        if self.pidfd < 0 and self.pid and identity.pid_start(self.pid) == who.get("pid_start"):
            self.pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        self._open_stacks()

    def _open_stacks(self) -> None:
        if self._stacks < 0:
            try:
                self._stacks = documents.open_regular(self._folder / f"{self.name}{layout.STACKS_SUFFIX}")
            except (OSError, FormatError):
                pass  # it has none, or is just making it

    def _note_progress(self, slots: list[Slot], at: int, bank: BankHead, now_ns: int) -> None:
        """What has ended or begun since the last look, by track, by thread, and by stage."""
        for slot in slots:
            if slot not in self._before:
                self._note_moved(slot.track, slot.stage, slot.thread, now_ns)
        recorded, before = (bank.seq, bank.record_count), self._recorded
        if recorded == before:
            return
        new = bank.record_count - (before[1] if before[0] == bank.seq else 0)
        self._recorded = recorded
        kinds = glance.newest_kinds(self._live, at, bank, max(0, min(_RECORDS_AT_MOST, new)))
        for (stage, site, number), count in kinds.items():
            track = self._texts.tracks.get(number)
            self._note_moved(number, stage, 0 if track is None else track.thread, now_ns)
            self._ended[stage, site] += count

    def _note_moved(self, track: int, stage: int, thread: int, now_ns: int) -> None:
        self.moved_ns = now_ns
        for key in (("track", track), ("stage", stage), ("thread", thread)):
            self._moved[key] = now_ns

    def _learn_texts(self, header: Header) -> None:
        for at, bank in self._read_banks(header):
            size = min(bank.text_bytes, _TEXTS_AT_MOST)
            text = documents.read_part(self._live, at + header.layout.bank_bytes - size, size)
            texts, _ = livefile.read_texts(text, bank.salt)
            self._texts.sites.update(texts.sites)
            self._texts.stages.update(texts.stages)
            self._texts.tracks.update(texts.tracks)

    def _range_inside(self, slot: Slot, head: bytes, header: Header) -> RangeInside:
        site = self._texts.sites.get(slot.site)
        since_ns = glance.monotonic_ns(head, header, slot.start) or 0
        stage = self._texts.stages.get(slot.stage, "?") if slot.stage else ""
        moved = (("track", slot.track), ("stage", slot.stage), ("thread", slot.thread))
        quiet_ns = max(since_ns, *(self._moved.get(key, 0) for key in moved))
        name, domain = ("?", "") if site is None else (site.name, site.domain)
        kind = slot.stage, slot.site
        return RangeInside(slot, name, domain, stage, since_ns, quiet_ns, max(self._ended[kind], self._left[kind]))

    def is_gone(self) -> bool:
        """Does it live no more, or as another program, as far as that can be told?"""
        lock = str(self._folder / f"{self.name}{life.SUFFIX}")
        return life.is_held(lock) is not True and (
            not self.pid or identity.pid_start(self.pid) != self.who.get("pid_start")
            or life.is_alive({**self.who, "life": lock}) is False
        )  # fmt: skip

    def has_met(self, other: WatchedProcess) -> bool:
        """Was the other one there before the last sign of life of this one, or have they begun together?"""
        return 0 < other.began_ns <= max(self.heartbeat_ns, self.began_ns + _BEGIN_TOGETHER_NS)

    def has_said_goodbye(self) -> bool:
        """Did its recorder stop, or the process end by os._exit(0) or become another program? Else it was ended."""
        head = documents.read_part(self._live, 0, livefile.HEADER_BYTES)
        is_closed = struct.unpack_from("<H", head, livefile.STATE_AT)[0] != livefile.RECORDING
        return is_closed or livefile.read_exit_status(head) == 0 or life.has_execed(self.who)

    def exit_status(self) -> int:
        """With which it has ended by os._exit; 0 where it did not."""
        return livefile.read_exit_status(documents.read_part(self._live, 0, livefile.HEADER_BYTES)) or 0

    def last_words(self) -> stacks.LastWords:
        """What it has written of its threads, exceptions and signals."""
        self._open_stacks()
        if self._stacks < 0:
            return stacks.LastWords()
        size = os.fstat(self._stacks).st_size
        start = max(0, size - stacks.LIMIT_BYTES)
        return stacks.read_stacks(documents.read_part(self._stacks, start, size).decode("utf-8", "replace"))

    def stacks_state(self) -> tuple[int, int]:
        """Another pair once it has written more."""
        self._open_stacks()
        status = os.fstat(self._stacks) if self._stacks >= 0 else None
        return (status.st_size, status.st_mtime_ns) if status is not None else (0, 0)

    def last_ranges(self, at_most: int) -> list[LastRange]:
        """What has ended last, the newest first."""
        head = documents.read_part(self._live, 0, livefile.HEADER_BYTES)
        header = self._header or livefile.read_header(head, os.fstat(self._live).st_size)
        self._learn_texts(header)
        ranges: list[LastRange] = []
        for at, bank in sorted(self._read_banks(header), key=lambda placed: -placed[1].seq):
            if not bank.seq or bank.state not in (livefile.ACTIVE, livefile.FULL):
                continue
            newest = glance.newest_records(self._live, at, bank, _LAST_RECORDS)
            for record in itertools.islice(newest, at_most - len(ranges)):
                site = self._texts.sites.get(record.site)
                end_ns = glance.monotonic_ns(head, header, bank.origin + record.end) or 0
                ranges.append(LastRange(
                    "?" if site is None else site.name, self._texts.stages.get(record.stage, ""),
                    None if record.step == records.NO_STEP else record.step, end_ns,
                    int(record.duration / header.ticks_per_ns) if header.ticks_per_ns > 0 else 0, record.error,
                ))  # fmt: skip
        return ranges

    def _read_banks(self, header: Header) -> Iterator[tuple[int, BankHead]]:
        return (self._read_bank(index, header) for index in range(header.layout.bank_count))

    def _read_bank(self, index: int, header: Header) -> tuple[int, BankHead]:
        at = header.layout.bank_at(index)
        return at, livefile.read_bank_head(documents.read_part(self._live, at, livefile.BANK_HEADER_BYTES))

    def close(self) -> None:
        """Hold none of its files any more."""
        for number in (self._live, self._stacks, self.pidfd):
            if number >= 0:
                os.close(number)
        self._live = self._stacks = self.pidfd = -1
