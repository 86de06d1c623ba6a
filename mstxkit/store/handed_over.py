"""`<process>.sums`, `<process>.rings`: rings in a host's shared memory: what a process hands on to be judged by.

One process writes it, any number may read it; a reader is never waited for. Layout: docs/internals/cluster.md. Both
ends go through the file, not through a mapping of it: nobody is killed by a file that somebody cuts short, and the
kernel orders what is written on every machine. A reader takes nothing on trust.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FormatError
from ..host import folders
from . import documents, records
from .documents import Unusable

MAGIC, VERSION = b"MSTXSUMS", 1
MAGIC_OF_RINGS = b"MSTXRING"
SUMMARY_BYTES, COLLECTIVE_BYTES = 40, 32  # of a row of `summaries`, of `collectives`
# Of 10 stages a step: 400 steps before a keeper that does not read misses any.
ROWS = 4096
ROWS_AT_MOST = 1 << 16
DOCUMENT_AT, ROWS_AT = 64, 16384
DOCUMENT_ROOM = ROWS_AT - DOCUMENT_AT
STAGES, STEP, END, LOST, WHO, LEFT_OUT = "stages", "step", "end", "lost", "who", "stages_left_out"
# CLOCK_MONOTONIC, and since the process began how long its main thread ran, and waited for a CPU; ns. And: the stages
# in which it only waits, with whom it waits for: a role, "controller", "loader"; "": nobody says. Of a ring of entries:
# the groups in it.
CPU, WAITS, GROUPS = "cpu", "waits", "groups"

_HEAD = struct.Struct("<8sIIQIIQ8s")
_WRITTEN_AT, _LENGTH_AT, _BEGUN_AT, _NONCE_AT = 16, 24, 32, 40
_COUNT, _DOCUMENT = struct.Struct("<Q"), struct.Struct("<II")
# What a turn begins and ends with: no document, and rows begun; rows written, and the document.
_BEGIN, _END = struct.Struct("<IIQ"), struct.Struct("<QII")
_NO_STEP = records.NO_STEP.to_bytes(4, "little")


def has_steps(rows: bytes) -> bool:
    """Is any of these rows of `summaries` in a step?"""
    return any(rows[at : at + len(_NO_STEP)] != _NO_STEP for at in range(0, len(rows), SUMMARY_BYTES))


class RowKind(NamedTuple):
    """What rows a ring holds: its magic, and the bytes of each."""

    magic: bytes
    row_bytes: int


OF_SUMMARIES = RowKind(MAGIC, SUMMARY_BYTES)
OF_COLLECTIVES = RowKind(MAGIC_OF_RINGS, COLLECTIVE_BYTES)


class NewSummaries(NamedTuple):
    """What a process has handed over since it was last read."""

    rows: bytes  # whole rows of 40 bytes, the oldest first: numpy reads them with `summaries.FIELDS`
    missed: int  # how many rows were overwritten before they were read
    # `stages`: keys, in the order of their ids from 1; `step`: in force, or None; `end`: is it over? And what else the
    # judge should know. {} while nothing whole was ever read. Of a file that nobody vouches for.
    document: dict[str, Any]


class _Head(NamedTuple):
    capacity: int
    written: int
    begun: int
    nonce: bytes


class HandedOver:
    """The reading end of one process's ring.
    `position`: rows that were read before, as it said then. What is read twice replaces itself.
    """

    def __init__(self, path: str | os.PathLike[str], position: int = 0, kind: RowKind = OF_SUMMARIES) -> None:
        self._kind = kind
        self.path, self.position = Path(path), position
        self._nonce: bytes | None = None
        self._document: dict[str, Any] = {}
        self._document_of = (0, 0)
        self._torn: tuple[int, int] | None = None
        self._state: tuple[int, ...] | None = None  # None: it has to be read; (): there was none

    @property
    def is_unchanged(self) -> bool:
        """Is the file as it was when all of it was read, or still missing? *Cost*: one system call. False for a moment
        after each write: the kernel stamps several of one moment alike.
        """
        return self._state is not None and documents.state_of(self.path) == self._state

    def read_new(self) -> NewSummaries:
        """What is new; where nothing is, no rows and the same document.

        *Cost*: five system calls where nothing is new.
        Raises Unusable: there is no such file, or none of this user, or none that can be believed.
        """
        try:
            descriptor = documents.open_regular(self.path)
        except FormatError as exc:
            raise Unusable(self.path, f"is {exc}") from None
        except OSError as exc:
            self._state = () if isinstance(exc, FileNotFoundError) else None
            raise Unusable(self.path, f"cannot be opened: {exc.strerror}") from None
        try:
            with documents.close_after(descriptor):
                if (owner := os.fstat(descriptor).st_uid) != os.geteuid():
                    raise Unusable(self.path, f"belongs to user {owner}, not to {os.geteuid()}")
                self._state, state = None, documents.settled_state(descriptor)
                new = self._read_news(descriptor)
                self._state = state if state and self._torn is None else None
                return new
        except OSError as exc:
            raise Unusable(self.path, f"cannot be read: {exc.strerror}") from None

    def _read_news(self, descriptor: int) -> NewSummaries:
        head = self._read_head(descriptor)
        if self._nonce not in (None, head.nonce):
            self.position, self._document_of = 0, (0, 0)  # it was made anew
        self._nonce = head.nonce
        position = self.position if self.position <= head.written else 0
        first = max(position, head.written - head.capacity)
        rows = _read_rows(descriptor, first, head, self._kind.row_bytes)
        # Whatever was being overwritten meanwhile is older than this.
        overwritten = min(max(0, self._read_head(descriptor).begun - head.capacity - first), head.written - first)
        # After the rows: it knows their stages.
        if not self._read_document(descriptor):
            return NewSummaries(b"", 0, self._document)
        self.position = head.written
        return NewSummaries(rows[overwritten * self._kind.row_bytes :], first - position + overwritten, self._document)

    def _read_head(self, descriptor: int) -> _Head:
        raw = documents.read_part(descriptor, 0, _HEAD.size)
        if len(raw) < _HEAD.size or raw[: len(MAGIC)] != self._kind.magic:
            raise Unusable(self.path, "is no file of its kind, or is being made")
        _, version, capacity, written, _, _, begun, nonce = _HEAD.unpack(raw)
        if version != VERSION:
            raise Unusable(self.path, f"is of format {version}, not {VERSION}")
        size = os.fstat(descriptor).st_size
        if not 0 < capacity <= ROWS_AT_MOST or size < ROWS_AT + capacity * self._kind.row_bytes:
            raise Unusable(self.path, "has sizes that do not fit it")
        return _Head(capacity, written, max(begun, written), nonce)

    def _read_document(self, descriptor: int) -> bool:
        """False: it is being replaced, and is looked at again; True at the second time: its writer was killed in it."""
        raw = documents.read_part(descriptor, 0, ROWS_AT)
        length, crc = _DOCUMENT.unpack_from(raw, _LENGTH_AT)
        if length and (length, crc) == self._document_of:
            return True
        text = raw[DOCUMENT_AT : DOCUMENT_AT + min(length, DOCUMENT_ROOM)]
        if not text or len(text) != length or zlib.crc32(text) != crc:
            is_left, self._torn = self._torn == (length, crc), (length, crc)
            return is_left
        self._document, self._document_of, self._torn = documents.object_in(text), (length, crc), None
        return True


def _read_rows(descriptor: int, first: int, head: _Head, row_bytes: int) -> bytes:
    begin, count = first % head.capacity, head.written - first
    until_end = min(count, head.capacity - begin)
    pieces = ((begin, until_end), (0, count - until_end))
    rows = b"".join(
        documents.read_part(descriptor, ROWS_AT + place * row_bytes, number * row_bytes)
        for place, number in pieces
        if number
    )
    if len(rows) != count * row_bytes:
        raise OSError(errno.EIO, "it was cut short")
    return rows


class SummaryRing:
    """The writing end, of one process. The file is made when there is something to put into it. `capacity`: in rows.

    Threads/fork: one thread at a time. A forked child makes its own, elsewhere; nothing is open or mapped in between.
    """

    def __init__(self, path: Path, capacity: int = ROWS, kind: RowKind = OF_SUMMARIES) -> None:
        self._kind = kind
        self.path, self.capacity = path, capacity
        self._nonce = b""
        self._written, self._text = 0, b""
        self._fixed: dict[str, Any] = {}
        self._fixed_text = b""

    @property
    def is_made(self) -> bool:
        """Was anything ever put into it?"""
        return bool(self._nonce)

    def put(self, rows: bytes, document: dict[str, Any], fixed: dict[str, Any] | None = None) -> None:
        """Add whole rows; of more than it holds, the newest. The document is replaced where it is another. `fixed`:
        more of the document, which seldom changes. Raises OSError: they were not added; a later call may succeed.
        """
        with documents.close_after(self._open_file()) as descriptor:
            self._put_block(descriptor, rows, self._text_of(document, fixed))

    def _open_file(self) -> int:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        if not self._nonce:
            self._make_file()
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:  # somebody has cleared away
            self._make_file()
            descriptor = os.open(self.path, flags)
        if os.pread(descriptor, len(self._nonce), _NONCE_AT) == self._nonce:
            return descriptor
        os.close(descriptor)
        raise OSError(errno.ESTALE, f"{self.path} is another file by now")

    def _make_file(self) -> None:
        size, nonce = ROWS_AT + self.capacity * self._kind.row_bytes, os.urandom(8)
        with folders.allocate_file(self.path, size, documents.FILE_MODE) as descriptor:
            os.pwrite(descriptor, _HEAD.pack(self._kind.magic, VERSION, self.capacity, 0, 0, 0, 0, nonce), 0)
            self._nonce, self._written, self._text = nonce, 0, b""

    def _put_block(self, descriptor: int, rows: bytes, text: bytes) -> None:
        """First how far it goes, then all of it, then that it is there: a reader always knows what is whole."""
        written = self._written + len(rows) // self._kind.row_bytes
        is_new = text != self._text
        if is_new:
            self._text = b""
            os.pwrite(descriptor, _BEGIN.pack(0, 0, written), _LENGTH_AT)
            os.pwrite(descriptor, text, DOCUMENT_AT)
        else:
            os.pwrite(descriptor, _COUNT.pack(written), _BEGUN_AT)
        count = len(rows) // self._kind.row_bytes
        kept = rows[max(0, count - self.capacity) * self._kind.row_bytes : count * self._kind.row_bytes]
        begin = (written - len(kept) // self._kind.row_bytes) % self.capacity
        until_end = (self.capacity - begin) * self._kind.row_bytes
        for part, place in ((kept[:until_end], begin), (kept[until_end:], 0)):
            if part:
                os.pwrite(descriptor, part, ROWS_AT + place * self._kind.row_bytes)
        if is_new:
            os.pwrite(descriptor, _END.pack(written, len(text), zlib.crc32(text)), _WRITTEN_AT)
        else:
            os.pwrite(descriptor, _COUNT.pack(written), _WRITTEN_AT)
        self._text, self._written = text, written

    def _text_of(self, document: dict[str, Any], fixed: dict[str, Any] | None) -> bytes:
        if fixed is None:
            return _fit_document(document)
        if fixed != self._fixed:
            self._fixed, self._fixed_text = dict(fixed), _as_json(fixed)
        text = self._fixed_text[:-1] + b"," + _as_json(document)[1:]
        return text if len(text) <= DOCUMENT_ROOM else _fit_document({**fixed, **document})


def _fit_document(document: dict[str, Any]) -> bytes:
    """JSON that fits; where it would not, the last stages are left out, and their number is said."""
    text = _as_json(document)
    stages = list(document.get(STAGES, ()))
    left_out = 0
    while len(text) > DOCUMENT_ROOM and stages:
        drop = max(1, len(stages) // 8)
        del stages[-drop:]
        left_out += drop
        text = _as_json({**document, STAGES: stages, LEFT_OUT: left_out})
    return text if len(text) <= DOCUMENT_ROOM else b"{}"


def _as_json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), default=str).encode("ascii", "backslashreplace")
