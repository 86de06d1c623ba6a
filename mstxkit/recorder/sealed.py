"""Sealed files of one process: blocks appended whole, rotated by size, the oldest dropped beyond the quota and counted.

A file is cut back to where it was if a block does not fit: a full disk leaves no torn block behind. Links inside the
run folder are never followed. The newest file is held open between blocks (`kept_open.py`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

from .. import faults
from ..host import folders
from ..store import documents, layout, segment
from ..store.block_index import Growing, Indexed
from .kept_open import KeptOpen

# A quota is kept by dropping whole files: it is shared out over this many.
_FILES_PER_QUOTA = 4


class _File(NamedTuple):
    path: Path
    size_bytes: int
    records: int


class SealedFiles:
    """Append blocks to the sealed files of a process.
    `folder`: the run's `sealed` folder. `name`: process name. `rotate_bytes`: a file larger than this gets no further
    block. `quota_bytes`: all files of this process together; 0 keeps nothing. `on_evicted`: told how many records were
    dropped. `on_missing`: called when the folder is gone; what it makes again is used. `before`: names of the files
    that there are of this process: they have numbers too.
    """

    def __init__(
        self, folder: Path, name: str, rotate_bytes: int, quota_bytes: int, on_evicted: Callable[[int], None],
        on_missing: Callable[[], None] | None = None, before: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._folder, self._name = folder, name
        self._rotate_bytes = min(rotate_bytes, quota_bytes // _FILES_PER_QUOTA)
        self._quota_bytes = quota_bytes
        self._on_evicted = on_evicted
        self._on_missing = on_missing or (lambda: folders.make_folder(folder))
        self._files: list[_File] = []
        self._index, self._kept = Growing(), KeptOpen(segment.file_header())
        self._number = 1 + max(map(layout.sealed_number, before), default=0)

    def append(self, added: Indexed, is_last: bool = False) -> None:
        """Append blocks, in one write. `is_last`: nothing will follow: the file's index does at once, in the same
        write. Raises OSError: it could not be written; nothing of it is left in the file.
        """
        if len(added.data) + segment.FILE_HEADER_BYTES > self._quota_bytes:
            self._on_evicted(added.records)
            return
        self.make_room(len(added.data))
        if not self._files or self._files[-1].size_bytes + len(added.data) > self._rotate_bytes:
            self._write_index()
            self._index, path = Growing(), self._folder / layout.sealed_name(self._name, self._number)
            self._files.append(_File(path, self._write(path, added), added.records))
            self._number += 1
        else:
            last = self._files[-1]
            size_bytes = self._write(last.path, added)
            self._files[-1] = _File(last.path, size_bytes, last.records + added.records)
        if is_last or self._index.is_due:
            self._write_index()
        if is_last:
            self.close()

    def add_if_there(self, added: Indexed) -> None:
        """After the end: into the newest file, unless that was moved or removed. Raises OSError."""
        if self._files and self._files[-1].path.exists():
            self._write(self._files[-1].path, added)

    def close(self) -> None:
        """Hold no file open any more; the next block opens one. Never raises."""
        self._kept.close()

    def make_room(self, size_bytes: int) -> None:
        """Drop the oldest files until a block of so many bytes fits."""
        size_bytes += segment.FILE_HEADER_BYTES
        while self._files and sum(file.size_bytes for file in self._files) + size_bytes > self._quota_bytes:
            oldest = self._files.pop(0)
            with suppress(FileNotFoundError):  # what others have moved or removed is no loss of its quota
                oldest.path.unlink()
                self._on_evicted(oldest.records)

    def _write_index(self) -> None:
        """Readers can do without one: where it does not fit, the file stays as it is."""
        index = self._index.written() if self._files else None
        if index is None or sum(file.size_bytes for file in self._files) + len(index.data) > self._quota_bytes:
            return
        last = self._files[-1]
        with faults.noted("sealer.index", OSError):
            self._files[-1] = last._replace(size_bytes=self._write(last.path, index))

    def _write(self, path: Path, added: Indexed) -> int:
        try:
            size_bytes = self._kept.append(path, added.data)
        except FileNotFoundError:
            # The run folder was removed under a running job: what comes from now on is kept all the same.
            self._on_missing()
            size_bytes = self._kept.append(path, added.data)
        self._index.add(added, size_bytes)
        return size_bytes


def cut_torn_end(path: Path, whole_bytes: int) -> None:
    """Take the half-written block off a file whose writer was killed. Raises OSError: it cannot be written."""
    with documents.close_after(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
        os.ftruncate(descriptor, whole_bytes)
