"""Sealed files of a run, opened: which blocks there are, whose they are, and where. Payloads are read, and checked,
when they are used.

Of a file that ends in an index only that is read. Where none is at its end, the heads of its blocks are; the whole file
only where heads are damaged, or of a version that has one checksum for head and payload together.

Of what blocks claim to hold no more is unpacked than the size of the run accounts for. Checksums say that bytes are as
they were written, not who wrote them: 34 KB of zeros, packed, claimed 8 GB.
"""

from __future__ import annotations

import math
import os
import threading
import zlib
from typing import Any, Callable, Mapping

from ..errors import FormatError
from ..store import block_index, segment
from ..store.documents import read_part
from ..store.layout import SEALED_SUFFIX, sealed_process
from ..store.values import group_by, small_number, table_of
from .folder import LIMIT_BYTES, Damage, Folder
from .processes import BlockRef, Process, Processes

VARIABLE = "MSTXKIT_READ_BEYOND_BYTES"
# The most regular ranges, with the same attributes each time, were packed to a fiftieth.
TIMES = 64
BEYOND_BYTES = 64 << 20
# What was told of a process, and the blocks that go with it.
_Told = tuple[dict[str, Any], list[BlockRef]]
IsWanted = Callable[[Mapping[str, Any]], bool]


def index_files(folder: Folder, processes: Processes, is_wanted: IsWanted | None = None) -> list[Damage]:
    """Open every sealed file; processes learn their blocks, the result lists what could not be read.
    `is_wanted`: does an identity belong to those that are read? The newest of a process decides; None takes all.
    """
    damage: list[Damage] = []
    running = processes.running()
    for stem, names in group_by(folder.names(SEALED_SUFFIX), sealed_process).items():
        parts: list[Damage] = []
        for name, contents in reversed(_open_files(folder, names, parts, is_wanted)):
            for meta, refs in contents:
                _take_blocks(meta, refs, processes.of(meta.get("identity"), sealed_process(name)))
        if stem in running:  # what the end of its file may look like for a moment
            parts = [part for part in parts if part.size and not part.reason.startswith("file ends inside")]
        damage += parts
    return sorted(damage, key=lambda part: part.path)


def _open_files(
    folder: Folder, names: list[str], damage: list[Damage], is_wanted: IsWanted | None
) -> list[tuple[str, list[_Told]]]:
    """The files of one process, the newest first: it has the newest identity, and where that is not wanted, the others
    are not opened.
    """
    files = []
    for name in reversed(names):
        path, contents = folder.path_of(name), list[_Told]()
        try:
            with folder.opened(name) as fd:
                contents = _SealedFile(name, fd, path, damage).contents()
        except (FormatError, OSError, MemoryError) as exc:
            damage.append(Damage.because(path, exc))
        if is_wanted and contents and not is_wanted(table_of(contents[-1][0].get("identity"))):
            break
        files.append((name, contents))
    return files


class _SealedFile:
    """One sealed file, while it is opened."""

    def __init__(self, name: str, fd: int, path: str, damage: list[Damage]) -> None:
        self._name, self._fd, self._path, self._damage = name, fd, path, damage
        self._size = os.fstat(fd).st_size
        if self._size > LIMIT_BYTES:
            damage.append(Damage(path, LIMIT_BYTES, 0, "the rest of this file is beyond what is read of one"))
            self._size = LIMIT_BYTES

    def contents(self) -> list[_Told]:
        """What it says, oldest first. Raises FormatError: it is no sealed file of a version that is known."""
        segment.check_file_header(read_part(self._fd, 0, segment.FILE_HEADER_BYTES))
        index = block_index.index_at_end(self._fd, self._size)
        if index is not None:
            return [self._read_index(index)]
        by_heads = self._by_heads()  # who goes through the file finds an index that is damaged, and lists it
        return self._whole_blocks() if by_heads is None else by_heads

    def _read_index(self, index: block_index.FileIndex) -> _Told:
        return index.meta, [BlockRef(self._name, *entry) for entry in index.entries]

    def _by_heads(self) -> list[_Told] | None:
        heads: list[segment.Head] = []
        at = segment.FILE_HEADER_BYTES
        while at < self._size:
            head = segment.head_of(read_part(self._fd, at, segment.HEAD_AT_MOST_BYTES), at, self._size)
            if isinstance(head, segment.BlockDamage) or head.version == segment.JOINT:
                return None
            heads.append(head)
            at = head.end
        return self._by_last_index(heads)

    def _by_last_index(self, heads: list[segment.Head]) -> list[_Told] | None:
        """What the last index says, then each block behind it; None where any of it is damaged."""
        place = max((place for place, head in enumerate(heads) if head.kind == segment.INDEX), default=-1)
        contents: list[_Told] = []
        if place >= 0:
            head = heads[place]
            try:
                last = block_index.read_index(read_part(self._fd, head.offset, head.end - head.offset), head)
            except FormatError:
                return None
            if [entry.payload_at for entry in last.entries] != [before.payload_at for before in heads[:place]]:
                return None
            contents.append(self._read_index(last))
        for head in heads[place + 1 :]:
            meta = segment.meta_of(read_part(self._fd, head.offset, head.payload_at - head.offset), head)
            if isinstance(meta, segment.BlockDamage):
                return None
            contents.append(self._told_by(head.kind, meta, head.payload_at, head.end - head.payload_at, head.crc))
        return contents

    def _told_by(self, kind: int, meta: dict[str, Any], payload_at: int, size: int, crc: int) -> _Told:
        # Anchors are by far the largest part of a meta, and the process learns them now.
        fields = {key: value for key, value in meta.items() if key not in ("clock", "identity", "counters")}
        return meta, [BlockRef(self._name, kind, payload_at, size, crc, fields)]

    def _whole_blocks(self) -> list[_Told]:
        """Every block that is whole, by reading all of it."""
        contents = []
        for block in segment.scan_blocks(read_part(self._fd, 0, self._size)):
            if isinstance(block, segment.BlockDamage):
                self._damage.append(Damage(self._path, *block))
            elif block.kind != segment.INDEX:
                sizes = block.payload_at, len(block.payload), zlib.crc32(block.payload)
                contents.append(self._told_by(block.kind, block.meta, *sizes))
        return contents


def _take_blocks(meta: dict[str, Any], refs: list[BlockRef], process: Process) -> None:
    newest = max((ref.bank for ref in refs if ref.kind == segment.RECORDS), default=0)
    process.learn(meta, newest if {ref.kind for ref in refs} == {segment.RECORDS} else math.inf)
    for ref in refs:
        if ref.kind == segment.RECORDS:
            process.take(ref)
        elif ref.kind == segment.OPEN_RANGES:
            process.open_block = ref
        elif ref.kind == segment.END:
            process.learn_end(meta)


def of_ranks(ranks: frozenset[int]) -> IsWanted:
    """Only processes of these ranks."""
    return lambda identity: small_number(identity.get("rank")) in ranks


def check_payload(payload: bytes, ref: BlockRef) -> bytes:
    """These bytes, if they are those that were written; else FormatError."""
    if len(payload) != ref.size or zlib.crc32(payload) != ref.crc:
        raise FormatError(segment.NO_MATCH, ref.offset)
    return payload


class Allowance:
    """Of one run: each block may claim 64 times its size, and all together so many bytes beyond that."""

    def __init__(self) -> None:
        text = os.environ.get(VARIABLE, "")
        self._left = int(text) if text.isdecimal() else BEYOND_BYTES
        self._granted: set[tuple[str, int]] = set()
        self._granting = threading.Lock()  # blocks are read on threads

    def most(self, ref: BlockRef) -> int:
        """What this block may hold, in bytes."""
        return TIMES * ref.size + self._left

    def grant(self, ref: BlockRef, claimed: int) -> None:
        """Let a block hold what it claims. Raises FormatError: it is more than the run accounts for."""
        beyond = claimed - TIMES * ref.size
        if beyond <= 0:
            return
        with self._granting:
            if (ref.file, ref.offset) in self._granted:
                return
            if beyond > self._left:
                raise FormatError(f"{ref.size} bytes that claim to hold {claimed}; {VARIABLE}={beyond} would let them")
            self._left -= beyond
            self._granted.add((ref.file, ref.offset))
