"""`summaries/<host>-<digest>.mxb`: batches of what the processes of a host have handed over, one after the other.

Each is a message under Ray as well. Who reads trusts no byte: what is damaged, foreign or torn is left out up to the
next batch, and counted. docs/internals/cluster.md, "A batch".
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..errors import FormatError
from . import documents, layout, values
from .handed_over import COLLECTIVE_BYTES, SUMMARY_BYTES
from .values import list_of, small_number, table_of, text_of, whole_number

MAGIC, FORMAT = b"MXS1", 1
HEAD_AT_MOST, BODY_AT_MOST = 1 << 20, 2 << 20
STAGES, COLLECTIVES = "stages", "collectives"
ROW_BYTES = {STAGES: SUMMARY_BYTES, COLLECTIVES: COLLECTIVE_BYTES}
# Of an older part of a file that has grown too large: `<host>-<digest>.old.mxb`.
OLD_SUFFIX = f".old{layout.SUMMARIES_SUFFIX}"
PROCESSES_AT_MOST, STAGES_AT_MOST = 4096, 1024
_FRAME = struct.Struct("<4sIII")
_FRAME_AT_MOST = _FRAME.size + HEAD_AT_MOST + BODY_AT_MOST
_PIECE_BYTES = 1 << 16
# Who judges after another one reads so much again, to know what is usual: 80 steps of 8 ranks with 10 stages.
READ_AGAIN_BYTES = 256 << 10
_NAME_AT_MOST = 200


class HandingProcess(NamedTuple):
    """A process of a batch: who it is, and its stages by their ids, from 1 on."""

    number: int  # in this sender's batches
    name: str  # of its live file
    rank: int | None = None
    role: str = ""
    part: str = ""
    pid: int = 0
    under: str = ""  # what it works under; docs of `host/parts.py`
    waits: bool = False  # does it wait for others, and compute nothing?
    world_size: int = 0  # ranks of its job, as far as it knows; 0: it does not
    stages: tuple[str, ...] = ()
    place: str = ""  # which part of the model it has, as "pp1"; "": nobody says
    waits_for: Mapping[str, str] = {}  # its stages in which it only waits, with whom it waits for; "": nobody says

    def as_json(self) -> dict[str, Any]:
        """As a head holds it."""
        return {**self._asdict(), "stages": list(self.stages)}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> HandingProcess | None:
        """Of a head; None where it is none."""
        number = small_number(fields.get("number"))
        if number is None or number >= PROCESSES_AT_MOST or not text_of(fields.get("name")):
            return None
        return _read_process(fields)


def _read_waits_for(value: Any) -> dict[str, str]:
    waiting = list(table_of(value).items())[:STAGES_AT_MOST]
    return {stage[:_NAME_AT_MOST]: _read_name(whom) for stage, whom in waiting}


_read_name = values.short_text(_NAME_AT_MOST)
_read_process = values.record_with(HandingProcess, {
    _read_name: "name role part under place", small_number: "number rank", whole_number: "pid", values.is_true: "waits",
    values.count_of: "world_size", values.list_with(_read_name, STAGES_AT_MOST): "stages", _read_waits_for: "waits_for",
})  # fmt: skip


class Batch(NamedTuple):
    """One batch, checked: its head, and the rows of each section."""

    head: Mapping[str, Any]  # docs/internals/cluster.md
    parts: Sequence[tuple[str, int, bytes]]  # kind, number of the process, rows
    size_bytes: int  # with its frame
    host: str  # who sends
    boot: str  # of the kernel, whose CLOCK_MONOTONIC its times are on
    place: str  # which host it is, and which of several with one name
    sender: str  # of whom the numbers of processes and of batches are: another one after each start of an agent
    number: int | None  # how many batches its sender had made before; None where it does not say
    clock: tuple[int, int, int] | None  # CLOCK_MONOTONIC, CLOCK_REALTIME, half the bracket, ns; None where it has none
    time_s: float  # when it was made, by its host's wall clock; 0.0 where it does not say
    settings: int  # the version of the settings that its sender has
    has_ended: bool  # does its host say goodbye?

    @classmethod
    def of(cls, head: Mapping[str, Any], parts: Sequence[tuple[str, int, bytes]], size_bytes: int = 0) -> Batch:
        """What a head says of its batch."""
        host, boot, place, sender = (_read_name(head.get(key)) for key in ("host", "boot", "place", "sender"))
        times = tuple(map(whole_number, list_of(head.get("clock"))))
        clock = times if len(times) == 3 and times[0] and times[1] else None
        return cls(
            head, parts, size_bytes, host, boot, place or host, sender or host, small_number(head.get("number")), clock,
            clock[1] / 1e9 if clock else 0.0, values.count_of(head.get("settings")), head.get("goodbye") is True,
        )  # fmt: skip

    def processes(self) -> Iterator[HandingProcess]:
        """Those that are new or have changed."""
        for fields in list_of(self.head.get("processes"))[:PROCESSES_AT_MOST]:
            process = HandingProcess.read(table_of(fields))
            if process is not None:
                yield process

    def cpu(self) -> Iterator[tuple[int, list[Any]]]:
        """Of processes by number: `[CLOCK_MONOTONIC, ran, waited for a CPU]`, unchecked."""
        for row in list_of(self.head.get("cpu"))[:PROCESSES_AT_MOST]:
            number, *counts = list_of(row) or [None]
            if small_number(number) is not None:
                yield number, counts

    def numbers(self, key: str) -> list[int]:
        """Numbers of processes, under a key of the head."""
        return list(values.small_numbers(list_of(self.head.get(key))[:PROCESSES_AT_MOST]))


def encode_batch(head: Mapping[str, Any], parts: Sequence[tuple[str, int, bytes]]) -> bytes:
    """The bytes of a batch. Raises FormatError: it is larger than a batch may be, or a section is not whole rows."""
    if any(len(rows) % ROW_BYTES[kind] for kind, _, rows in parts):
        raise FormatError("a section that is not whole rows")
    sections = [[kind, number, len(rows) // ROW_BYTES[kind]] for kind, number, rows in parts]
    words = json.dumps({"format": FORMAT, **head, "sections": sections}, separators=(",", ":")).encode()
    body = b"".join(rows for _, _, rows in parts)
    if len(words) > HEAD_AT_MOST or len(body) > BODY_AT_MOST:
        raise FormatError(f"a batch of {len(words)} + {len(body)} bytes is too large")
    return _FRAME.pack(MAGIC, len(words), len(body), zlib.crc32(body, zlib.crc32(words))) + words + body


class Decoded(NamedTuple):
    """What was in some bytes."""

    batches: list[Batch]  # whole ones
    used_bytes: int  # from there on the end of the last one may still come
    damaged_bytes: int  # that are no batch


def decode_batches(data: bytes, run_id: str) -> Decoded:
    """The batches in these bytes, whatever else is in them; those of another run ("": any) are damage. Never raises."""
    batches: list[Batch] = []
    end = damaged = 0
    begun: int | None = None  # where one begins whose end may still come, unless a whole one follows
    start = data.find(MAGIC)
    while start >= 0:
        batch = _batch_at(data, start, run_id)
        if batch is not None:
            batches.append(batch)
            damaged, end, begun = damaged + start - end, start + batch.size_bytes, None
        elif begun is None and _may_go_on(data, start):
            begun = start
        start = data.find(MAGIC, max(end, start + 1))
    used = max(end, len(data) - len(MAGIC) + 1) if begun is None else begun  # its magic may be half there
    return Decoded(batches, used, damaged + used - end)


def _may_go_on(data: bytes, start: int) -> bool:
    """Is a batch begun there whose end is not here yet?"""
    if len(data) - start < _FRAME.size:
        return True
    _, head, body, _ = _FRAME.unpack_from(data, start)
    return bool(head <= HEAD_AT_MOST and body <= BODY_AT_MOST and start + _FRAME.size + head + body > len(data))


def _batch_at(data: bytes, start: int, run_id: str) -> Batch | None:
    if len(data) - start < _FRAME.size:
        return None
    _, head_bytes, body_bytes, checksum = _FRAME.unpack_from(data, start)
    middle = start + _FRAME.size + head_bytes
    end = middle + body_bytes
    if head_bytes > HEAD_AT_MOST or body_bytes > BODY_AT_MOST or end > len(data):
        return None
    if zlib.crc32(memoryview(data)[start + _FRAME.size : end]) != checksum:
        return None
    head = documents.object_in(data[start + _FRAME.size : middle])
    if head.get("format") != FORMAT or (run_id and head.get("run") != run_id):
        return None
    parts = _split_body(head, data, middle, end)
    return None if parts is None else Batch.of(head, parts, end - start)


def _split_body(head: Mapping[str, Any], data: bytes, at: int, end: int) -> list[tuple[str, int, bytes]] | None:
    """None: they do not fit the body. Of a kind that is not known here nobody knows how long it is."""
    parts = []
    for section in list_of(head.get("sections")):
        if not isinstance(section, list) or len(section) != 3:
            return None
        kind, number, rows = text_of(section[0]), small_number(section[1]), small_number(section[2])
        if kind not in ROW_BYTES or number is None or rows is None or at + rows * ROW_BYTES[kind] > end:
            return None
        parts.append((kind, number, data[at : at + rows * ROW_BYTES[kind]]))
        at += rows * ROW_BYTES[kind]
    return parts if at == end else None


class BatchFile:
    """Follows one growing file of a host. Nothing is kept open, nothing of it is kept in memory. Batches of other runs
    are damage.
    `was_at`: `position` of an earlier reader: begin `READ_AGAIN_BYTES` before that; None: with its older part.
    """

    def __init__(self, path: Path, run_id: str, was_at: tuple[int, int] | None = None) -> None:
        self._path, self._run_id, self._was_at = path, run_id, was_at or (0, 0)
        self._old = path.with_name(path.name[: -len(layout.SUMMARIES_SUFFIX)] + OLD_SUFFIX)
        self._which: tuple[int, int] | None = None
        self._at, self._size = 0, -1
        self.damaged_bytes = 0  # that are no batch, so far

    @property
    def position(self) -> tuple[int, int]:
        """Which file it is that is read, and how far it was: for the next reader."""
        return self._was_at if self._which is None else (self._which[1], self._at)

    def read(self) -> Iterator[Batch]:
        """What has come since the last time. What cannot be read now is read later."""
        try:
            status = os.lstat(self._path)
            which = status.st_dev, status.st_ino
            if which == self._which and status.st_size == self._size:
                return
            if self._which is None and which[1] != self._was_at[0]:
                yield from self._of_old(None)
            elif self._which is not None and which != self._which:
                yield from self._of_old(self._which)  # it has been put aside since: its rest first
                self._at = 0
            with documents.close_after(documents.open_regular(self._path)) as descriptor:
                yield from self._read_rest(descriptor)
        except (OSError, FormatError):
            self._size = -1

    def _read_rest(self, descriptor: int) -> Iterator[Batch]:
        status = os.fstat(descriptor)
        if self._which is None and status.st_ino == self._was_at[0]:
            self._at = max(0, self._was_at[1] - READ_AGAIN_BYTES)
        self._which, self._size = (status.st_dev, status.st_ino), status.st_size
        self._at = min(self._at, status.st_size)  # what was half written has been taken back
        size = _PIECE_BYTES
        while piece := documents.read_part(descriptor, self._at, size):
            decoded = decode_batches(piece, self._run_id)
            self._at += decoded.used_bytes
            self.damaged_bytes += decoded.damaged_bytes
            yield from decoded.batches
            if len(piece) < size:
                return
            # Small pieces, as many files are read side by side; a batch that is larger needs a larger one.
            size = _PIECE_BYTES if decoded.used_bytes else min(2 * size, _FRAME_AT_MOST + _PIECE_BYTES)

    def _of_old(self, which: tuple[int, int] | None) -> Iterator[Batch]:
        """The part that was put aside, if it is what was read before (None: whatever it is), from there on."""
        try:
            descriptor = documents.open_regular(self._old)
        except (OSError, FormatError):
            return
        try:
            status = os.fstat(descriptor)
            if which in (None, (status.st_dev, status.st_ino)):
                yield from self._read_rest(descriptor)
        finally:
            os.close(descriptor)
            self._at, self._which = 0, None


def files_in(run: Path) -> list[Path]:
    """The file of each host of a run."""
    names = documents.names_in(run / layout.SUMMARIES, layout.SUMMARIES_SUFFIX)
    return [run / layout.SUMMARIES / name for name in names if not name.endswith(OLD_SUFFIX) and name[0] != "."]
