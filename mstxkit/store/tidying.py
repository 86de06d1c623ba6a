"""Which sealed files are to go: those of a process, a host or a run beyond a limit, and those that are too old.

Pure: what is there comes in, what is to go comes out. The oldest go first. The newest of a process stays: its writer
holds it open, and it says how the process ended. By age it goes as well, once nobody can write to it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Callable, Iterable, NamedTuple

from ..errors import FormatError
from . import block_index, documents, layout, segment
from .values import whole_number

_TAIL_BYTES = 1 << 12


class SealedFile(NamedTuple):
    """One that is there: its name, how large, and when it was last written to."""

    name: str
    bytes: int
    mtime_ns: int


def beyond(files: Iterable[SealedFile], limit_bytes: int) -> list[SealedFile]:
    """What is to go so that no more than so many bytes are left, where that can be had; 0: no limit."""
    files = list(files)
    newest = layout.newest_of_each([file.name for file in files])
    total, chosen = sum(file.bytes for file in files), []
    for file in sorted(files, key=_age_of):
        if 0 < limit_bytes < total and file.name not in newest:
            chosen.append(file)
            total -= file.bytes
    return chosen


def too_old(
    files: Iterable[SealedFile], before_ns: int, may_write: Callable[[str], bool], newest: set[str]
) -> list[SealedFile]:
    """What was last written to before that time, but for the newest file of a process that `may_write` to it."""
    old = [file for file in sorted(files, key=_age_of) if file.mtime_ns < before_ns]
    return [file for file in old if file.name not in newest or not may_write(layout.sealed_process(file.name))]


def _age_of(file: SealedFile) -> tuple[int, str, int]:
    """Files of one process in the order of their numbers, also where the clock was put back between them."""
    return file.mtime_ns, layout.sealed_process(file.name), layout.sealed_number(file.name)


def looked_at(path: Path, name: str) -> SealedFile | None:
    """A file as it is; None where it is gone, or none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return SealedFile(name, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def records_in(path: Path) -> int:
    """How many records a sealed file holds, by its index or the heads of its blocks. Damage counts for none."""
    try:
        with documents.closing(documents.open_regular(path)) as descriptor:
            size = os.fstat(descriptor).st_size
            by_index = _by_index(descriptor, size)
            return sum(_by_heads(descriptor, size)) if by_index is None else by_index
    except (OSError, FormatError):
        return 0


def _by_index(descriptor: int, size: int) -> int | None:
    tail = documents.read_part(descriptor, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
    length = block_index.size_by_trailer(tail)
    offset = size - length
    if not length or offset < segment.FILE_HEADER_BYTES:
        return None
    data = documents.read_part(descriptor, offset, length)
    head = segment.head_of(data, offset, size)
    if isinstance(head, segment.BlockDamage) or head.kind != segment.INDEX or head.end != size:
        return None
    try:
        entries = block_index.read(data, head).entries
    except FormatError:
        return None  # damaged, or compressed by what this Python has not: heads never are
    return sum(whole_number(entry.fields.get("records")) for entry in entries if entry.kind == segment.RECORDS)


def _by_heads(descriptor: int, size: int) -> Iterable[int]:
    at = segment.FILE_HEADER_BYTES
    while at < size:
        head = segment.head_of(documents.read_part(descriptor, at, segment.HEAD_AT_MOST_BYTES), at, size)
        if isinstance(head, segment.BlockDamage):
            return
        if head.kind == segment.RECORDS:
            part = documents.read_part(descriptor, at, head.payload_at - at)
            meta = segment.meta_of(part, head)
            yield 0 if isinstance(meta, segment.BlockDamage) else whole_number(meta.get("records"))
        at = head.end
