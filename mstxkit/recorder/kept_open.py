"""The file to which blocks are appended, kept open between them: to open it for each one asks a shared file system four
times, and ten thousand ranks would.

What is held open may be removed, moved, or closed by the program: so it is looked at before each block, by a link of
the kernel's, which asks no file system.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..host.descriptors import OwnDescriptor
from ..store import documents

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class KeptOpen:
    """One file at a time; links are never followed.
    `header`: what a new file begins with.

    Threads/fork: one thread at a time. A forked child makes a new one, and leaves what it got: to close a file of a
    file system that hangs would have it wait.
    """

    def __init__(self, header: bytes = b"") -> None:
        self._header = header
        self._path: Path | None = None
        self._file: OwnDescriptor | None = None
        self._status: os.stat_result | None = None
        self._size_bytes = 0

    def append(self, path: Path, block: bytes) -> int:
        """Write a block at the end of a file, made if it is not there, and return the file's size. Raises OSError: it
        could not be written; nothing of it is left in the file, and a file that holds nothing else is gone.
        """
        file = self._opened(path)
        try:
            self._size_bytes = documents.append_block(file.number, self._size_bytes, block, self._header)
        except OSError:
            if not self._size_bytes:
                with documents.close_after(documents.open_folder(path.parent)) as folder:
                    os.unlink(path.name, dir_fd=folder)
            self.close()
            raise
        return self._size_bytes

    def stamped_ns(self, path: Path) -> int:
        """What time it is by who stamps this file, which is made if it is not there. OSError: unknown."""
        number = self._opened(path).number
        os.utime(number)
        return os.fstat(number).st_mtime_ns

    def _opened(self, path: Path) -> OwnDescriptor:
        if self._file is not None and self._path == path and self._file.is_ours:
            return self._file
        self.close()
        with documents.close_after(documents.open_folder(path.parent)) as folder:
            number = os.open(path.name, _FLAGS, documents.FILE_MODE, dir_fd=folder)
        file = OwnDescriptor.of(number, path.name)
        self._path, self._file, self._status = path, file, os.fstat(number)
        self._size_bytes = self._status.st_size
        return file

    def close(self) -> None:
        """Hold nothing any more. Never raises."""
        file, self._file = self._file, None
        with suppress(OSError):  # somebody has closed it
            # Of a file that was moved or removed the link is another one, and the file the same.
            is_same = file is not None and self._status and os.path.samestat(os.fstat(file.number), self._status)
            if file is not None and (is_same or file.is_ours):
                os.close(file.number)
