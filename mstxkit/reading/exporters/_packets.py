"""The file of a Perfetto trace: packets, packed together, and the texts that events refer to by number.

Source: perfetto v52, protos/perfetto/trace/{trace,trace_packet}.proto, interned_data/interned_data.proto,
track_event/track_descriptor.proto, clock_snapshot.proto. `compressed_packets` holds packets as a zlib stream.
"""

from __future__ import annotations

import zlib
from typing import IO, Iterable

from . import _track_events as events
from ._protobuf import encode_block, encode_number, encode_text

_COMPRESSED_FROM_BYTES = 1 << 20
_LEVEL = 1
# ClockSnapshot and its clocks
_CLOCKS, _CLOCK, _CLOCK_AT = 1, 1, 2
_REALTIME, _BOOTTIME = 1, 6
# InternedData; each entry has a number and a text.
CATEGORIES, NAMES, _KEYS, TEXTS = 1, 2, 3, 29
_IID, _IID_TEXT = 1, 2
# TrackDescriptor, and what it holds of a process, a thread, a counter
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER, _CHILDREN, _RANK = 1, 2, 3, 4, 5, 8, 11, 12
_PID, _PROCESS_NAME, _LABELS, _THREAD_TID, _THREAD_NAME, _ORDER, _UNIT = 1, 6, 8, 2, 5, 3, 6
_EXPLICIT = 3


class Packets:
    """Writes packets to a file, some megabytes at a time, packed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._waiting: list[bytes | memoryview] = []
        self._size = 0

    def add(self, packets: bytes | memoryview) -> None:
        """Whole packets, one or more."""
        self._waiting.append(packets)
        self._size += len(packets)
        if self._size >= _COMPRESSED_FROM_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._size:
            packed = zlib.compress(b"".join(self._waiting), _LEVEL)
            self._file.write(events.encode_packet(encode_block(events.COMPRESSED, packed)))
        self._waiting, self._size = [], 0


class TraceNames:
    """Texts by number, from 1 on, each once for the whole trace; each sequence is told those that it uses."""

    def __init__(self, packets: Packets) -> None:
        self._packets = packets
        self._numbers: dict[tuple[int, str], int] = {}
        self._entries: list[tuple[int, str]] = []
        self._told: dict[int, set[int]] = {}

    def begin(self, sequence: int) -> None:
        """A sequence begins, with what it always has."""
        self._told[sequence] = set()
        self._tell(sequence, [(_KEYS, iid, name) for iid, name in events.ANNOTATIONS.items()], events.CLEARED)

    def number(self, kind: int, content: str) -> int:
        """The number of a text of these: CATEGORIES, NAMES of events, or TEXTS that are values."""
        iid = self._numbers.setdefault((kind, content), len(self._entries) + 1)
        if iid > len(self._entries):
            self._entries.append((kind, content))
        return iid

    def tell(self, sequence: int, numbers: Iterable[int]) -> None:
        """Let a sequence use these numbers from here on; 0 is none."""
        sent = self._told[sequence]
        new = [iid for iid in numbers if iid and iid not in sent]
        if new:
            sent.update(new)
            self._tell(sequence, [(self._entries[iid - 1][0], iid, self._entries[iid - 1][1]) for iid in new])

    def _tell(self, sequence: int, entries: list[tuple[int, int, str]], flags: int = events.NEEDS_STATE) -> None:
        listed = b"".join(
            encode_block(kind, encode_number(_IID, iid) + encode_text(_IID_TEXT, name)) for kind, iid, name in entries
        )
        self._packets.add(events.on_sequence(sequence, encode_block(events.INTERNED, listed), flags))


def encode_snapshot(base_ns: int) -> bytes:
    """The packet that says when the trace's zero was, ns since 1970."""
    clocks = ((_BOOTTIME, 0), (_REALTIME, base_ns))
    listed = b"".join(
        encode_block(_CLOCKS, encode_number(_CLOCK, clock) + encode_number(_CLOCK_AT, at)) for clock, at in clocks
    )
    return events.encode_packet(encode_block(events.SNAPSHOT, listed))


def process_track(uuid: int, pid: int, name: str, label: str, order: int) -> bytes:
    """The packet that describes a process."""
    about = encode_number(_PID, pid) + encode_number(_ORDER, order)
    about += encode_text(_PROCESS_NAME, name) + encode_text(_LABELS, label)
    return _describe_track(uuid, 0, order, encode_block(_PROCESS, about) + encode_number(_CHILDREN, _EXPLICIT))


def _describe_track(uuid: int, parent: int, order: int, content: bytes) -> bytes:
    """The packet that describes a track below another one; 0: below none."""
    below = encode_number(_PARENT, parent) if parent else b""
    return events.encode_packet(
        encode_block(events.DESCRIPTOR, encode_number(_UUID, uuid) + below + encode_number(_RANK, order) + content)
    )


def thread_track(uuid: int, process: int, pid: int, tid: int, name: str, order: int) -> bytes:
    """The packet that describes a thread of a process."""
    about = encode_number(_PID, pid) + encode_number(_THREAD_TID, tid)
    about += encode_number(_ORDER, order) + encode_text(_THREAD_NAME, name)
    return _describe_track(uuid, process, order, encode_block(_THREAD, about))


def plain_track(uuid: int, parent: int, name: str, order: int = 0, unit: str = "") -> bytes:
    """The packet that describes a track below another one; with a `unit`, of a counter."""
    counter = encode_block(_COUNTER, encode_text(_UNIT, unit)) if unit else b""
    return _describe_track(uuid, parent, order, encode_text(_NAME, name) + counter)
