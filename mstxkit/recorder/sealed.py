"""Sealed files of one process: blocks appended whole, rotated by size, the oldest dropped beyond the quota and counted.

A file is opened for each block, so that nothing is held open, and cut back to where it was if a block does not fit: a full disk
leaves no torn block behind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, NamedTuple

from .. import places, segment


class _File(NamedTuple):
    path: Path
    size_bytes: int
    records: int


class SealedFiles:
    """Append blocks to the sealed files of a process.

    Args:
        folder: The run's `sealed` folder.
        name: Process name.
        rotate_bytes: A file larger than this gets no further block.
        quota_bytes: All files of this process together; 0 keeps nothing.
        on_evicted: Told how many records were dropped.
    """

    def __init__(
        self, folder: Path, name: str, rotate_bytes: int, quota_bytes: int, on_evicted: Callable[[int], None]
    ) -> None:
        self._folder, self._name = folder, name
        self._rotate_bytes, self._quota_bytes = rotate_bytes, quota_bytes
        self._on_evicted = on_evicted
        self._files: list[_File] = []
        self._number = self._first_free_number()

    def _first_free_number(self) -> int:
        """An adopter goes on after what the process itself has written."""
        own = [path.name.rsplit(".", 2) for path in self._folder.glob(f"{self._name}.*.mxs")]
        return 1 + max((int(parts[1]) for parts in own if parts[1].isdecimal()), default=0)

    def append(self, block: bytes, records: int) -> None:
        """Append one block.

        Raises:
            OSError: it could not be written; nothing of it is left in the file.
        """
        if len(block) > self._quota_bytes:
            self._on_evicted(records)
            return
        if not self._files or self._files[-1].size_bytes + len(block) > self._rotate_bytes:
            path = self._folder / f"{self._name}.{self._number:04d}.mxs"
            _append(path, segment.file_header() + block)
            self._files.append(_File(path, segment.FILE_HEADER_BYTES + len(block), records))
            self._number += 1
        else:
            last = self._files[-1]
            _append(last.path, block)
            self._files[-1] = _File(last.path, last.size_bytes + len(block), last.records + records)
        self._keep_quota()

    def _keep_quota(self) -> None:
        while len(self._files) > 1 and sum(file.size_bytes for file in self._files) > self._quota_bytes:
            oldest = self._files.pop(0)
            oldest.path.unlink(missing_ok=True)
            self._on_evicted(oldest.records)


def _append(path: Path, content: bytes) -> None:
    try:
        _append_whole(path, content)
    except FileNotFoundError:
        # The run folder was removed under a running job: what comes from now on is kept all the same.
        os.makedirs(path.parent, places.FOLDER_MODE, exist_ok=True)
        missing_beginning = b"" if content.startswith(segment.FILE_MAGIC) else segment.file_header()
        _append_whole(path, missing_beginning + content, os.O_CREAT)


def _append_whole(path: Path, content: bytes, create: int = 0) -> None:
    if content.startswith(segment.FILE_MAGIC):
        create = os.O_CREAT
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | create
    descriptor = os.open(path, flags, places.FILE_MODE)
    try:
        if create:
            os.fchmod(descriptor, places.FILE_MODE)
        before = os.fstat(descriptor).st_size
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)
