"""The index of a sealed file, a block of its own: where the blocks before it are, and what they reach over.

Who opens a run reads this in place of every block's head. The last index of a file counts; it speaks of all blocks
before it, its predecessors too. A file whose last block is none (its process goes on, or was killed) is walked.
Layout: `docs/internals/format.md`, section "Index".
"""

from __future__ import annotations

import json
import struct
from typing import Any, Mapping, NamedTuple

from ..errors import FormatError
from . import documents, segment
from .values import list_of, table_of, whole_number

MAGIC = b"MXI1"
_TRAILER = struct.Struct("<I4s")  # the block's bytes, magic: the last bytes of its payload
TRAILER_BYTES = _TRAILER.size
# What a block's meta says and its entry repeats.
FIELDS = ("bank", "origin", "records", "attributes", "text_bytes", "codec", "extent", "stages")
_PLACES = ("kind", "payload_at", "size", "crc")
# More anchors than this are thinned out: a line between two of them stays within the clock's own error.
_ANCHORS_AT_MOST = 512
_BLOCKS_BETWEEN, _TIMES_AT_LEAST = 8, 16
_LIMIT_BYTES = 1 << 24
# What is read of a file's end, in the hope that its index is all of it.
_TAIL_BYTES = 1 << 12


class IndexEntry(NamedTuple):
    """One block, as an index has it: its payload's place and checksum, and what of its meta readers choose by."""

    kind: int
    payload_at: int
    size: int
    crc: int
    fields: Mapping[str, Any]


class Indexed(NamedTuple):
    """Blocks that are appended in one write, with what the index of their file will say of them."""

    data: bytes  # the blocks' bytes
    records: int = 0  # so many records are in them
    entries: tuple[IndexEntry, ...] = ()  # one each; places are counted from the first byte of `data`
    about: Mapping[str, Any] = {}  # the newest meta of their process

    def __add__(self, other: object) -> Indexed:
        """The blocks of both, one after the other."""
        if not isinstance(other, Indexed):
            return NotImplemented
        moved = tuple(entry._replace(payload_at=entry.payload_at + len(self.data)) for entry in other.entries)
        about = {**self.about, **other.about}
        return Indexed(self.data + other.data, self.records + other.records, self.entries + moved, about)


def make_block(kind: int, meta: Mapping[str, Any], payload: bytes = b"", records: int = 0) -> Indexed:
    """One block, and its entry."""
    data = segment.pack_block(kind, dict(meta), payload)
    head = segment.head_of(data, 0, len(data))
    assert isinstance(head, segment.Head)
    fields = {name: meta[name] for name in FIELDS if name in meta}
    return Indexed(data, records, (IndexEntry(kind, head.payload_at, len(payload), head.crc, fields),), meta)


class Growing:
    """The index of a file that is being written, from its header on."""

    def __init__(self) -> None:
        self._entries: list[IndexEntry] = []
        self._about: dict[str, Any] = {}
        self._anchors: dict[tuple[int, ...], None] = {}
        self._end: int | None = segment.FILE_HEADER_BYTES
        self._indexed_bytes = self._indexed_blocks = self._last_bytes = 0

    def add(self, added: Indexed, size_bytes: int) -> None:
        """Blocks were written; now the file has `size_bytes`. It gets no index once a block came without its entry."""
        if self._end is None or not added.entries or self._end + len(added.data) != size_bytes:
            self._end = None
            return
        self._entries += (entry._replace(payload_at=entry.payload_at + self._end) for entry in added.entries)
        self._about.update(added.about)
        clock = table_of(added.about.get("clock"))
        self._anchors.update(dict.fromkeys(tuple(anchor) for anchor in list_of(clock.get("anchors"))))
        self._end = size_bytes

    @property
    def is_due(self) -> bool:
        """Have so many blocks come since the last index that readers should not have to go through them?"""
        if self._end is None or len(self._entries) - self._indexed_blocks < _BLOCKS_BETWEEN:
            return False
        return self._end - self._indexed_bytes >= _TIMES_AT_LEAST * self._last_bytes

    def written(self) -> Indexed | None:
        """The index as a block, to be appended now; None where there is nothing new to say, or nothing can be said."""
        if self._end is None or len(self._entries) == self._indexed_blocks:
            return None
        anchors = sorted(self._anchors)
        while len(anchors) > _ANCHORS_AT_MOST:
            anchors = [*anchors[:-1:2], anchors[-1]]
        columns = {name: [getattr(entry, name) for entry in self._entries] for name in _PLACES}
        columns |= {name: [entry.fields.get(name) for entry in self._entries] for name in FIELDS}
        codec, content = segment.compress_stream(json.dumps([columns, anchors], separators=(",", ":")).encode())
        clock = {name: value for name, value in table_of(self._about.get("clock")).items() if name != "anchors"}
        about = {name: value for name, value in self._about.items() if name not in (*FIELDS, "clock")}
        meta = {**about, "clock": clock, "codec": codec}
        size = len(segment.pack_block(segment.INDEX, meta)) + len(content) + TRAILER_BYTES
        index = make_block(segment.INDEX, meta, content + _TRAILER.pack(size, MAGIC))
        self._last_bytes = len(index.data)
        self._indexed_blocks, self._indexed_bytes = len(self._entries) + 1, self._end + len(index.data)
        return index


def size_by_trailer(tail: bytes) -> int:
    """How many bytes the index has that ends with `tail`; 0 where none does."""
    if len(tail) < TRAILER_BYTES:
        return 0
    size, magic = _TRAILER.unpack(tail[-TRAILER_BYTES:])
    return int(size) if magic == MAGIC else 0


def index_at_end(descriptor: int, size_bytes: int) -> FileIndex | None:
    """The index with which a sealed file of so many bytes ends; None where none does, and where it is damaged, or
    compressed by what this Python has not. Raises OSError: it cannot be read.
    """
    tail = documents.read_part(descriptor, max(0, size_bytes - _TAIL_BYTES), min(size_bytes, _TAIL_BYTES))
    size = size_by_trailer(tail)
    offset = size_bytes - size
    if not size or offset < segment.FILE_HEADER_BYTES:
        return None
    data = tail[-size:] if size <= len(tail) else documents.read_part(descriptor, offset, size)
    head = segment.head_of(data, offset, size_bytes)
    if isinstance(head, segment.BlockDamage) or head.kind != segment.INDEX or head.end != size_bytes:
        return None
    try:
        return read_index(data, head)
    except FormatError:
        return None


class FileIndex(NamedTuple):
    """An index, read: the meta of its process with the clock's anchors, and the blocks that it speaks of."""

    meta: dict[str, Any]
    entries: list[IndexEntry]


def read_index(data: bytes, head: segment.Head) -> FileIndex:
    """An index block, from all of its bytes. Raises FormatError: it is damaged, or does not say what it should."""
    meta = segment.meta_of(data, head)
    payload = data[head.payload_at - head.offset : head.end - head.offset]
    if isinstance(meta, segment.BlockDamage) or not segment.is_payload(payload, head):
        raise FormatError("a damaged index", head.offset)
    content = segment.decompress_stream(str(meta.get("codec")), payload[:-TRAILER_BYTES], _LIMIT_BYTES)
    try:
        columns, anchors = json.loads(content)
        listed = [list_of(columns.get(name)) for name in (*_PLACES, *FIELDS)]
    except (ValueError, TypeError, AttributeError, RecursionError) as exc:
        raise FormatError("an index that is none", head.offset) from exc
    entries = []
    for kind, payload_at, size, crc, *rest in zip(*listed):
        fields = {name: value for name, value in zip(FIELDS, rest) if value is not None}
        kind, payload_at, size, crc = map(whole_number, (kind, payload_at, size, crc))
        entries.append(IndexEntry(kind, payload_at, size, crc, fields))
    # Is each payload behind the one before, and before the index? Then no byte is told twice.
    ends = [segment.FILE_HEADER_BYTES, *(entry.payload_at + entry.size for entry in entries)]
    begins = [*(entry.payload_at - segment.BLOCK_HEADER_BYTES for entry in entries), head.offset]
    if len({len(column) for column in listed}) != 1 or any(begin < end for begin, end in zip(begins, ends)):
        raise FormatError("an index that does not fit its file", head.offset)
    return FileIndex({**meta, "clock": {**table_of(meta.get("clock")), "anchors": anchors}}, entries)
