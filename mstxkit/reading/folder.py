"""A run's folders, read so that nothing in them can make a reader hang, leave the run or run out of memory.

Symbolic links inside a run are never followed, FIFOs and devices never opened for long, sizes never taken on trust.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from ..errors import FormatError

# Sealed files are rotated long before; what lies beyond is listed as damage.
LIMIT_BYTES = 1 << 30

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class Damage(NamedTuple):
    """A part of a run that could not be read, and why. `offset` and `size` in bytes."""

    path: str
    offset: int
    size: int
    reason: str


class Folder:
    """One folder of a run. `path` is opened anew for every access; a folder that is not there holds nothing."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __contains__(self, name: str) -> bool:
        return os.path.lexists(os.path.join(self.path, name))

    def path_of(self, name: str) -> str:
        """Where a file of this folder is, for messages."""
        return os.path.join(self.path, name)

    def names(self, suffix: str = "") -> list[str]:
        """The names that end in `suffix`, sorted; a link to a folder elsewhere holds none."""
        try:
            fd = os.open(self.path, _FOLDER_FLAGS)
        except OSError:
            return []
        try:
            return sorted(name for name in os.listdir(fd) if name.endswith(suffix))
        finally:
            os.close(fd)

    def read(self, name: str, offset: int = 0, size: int = LIMIT_BYTES) -> bytes:
        """At most `size` bytes of a regular file, from `offset`.

        Raises:
            FormatError: not a regular file.
            OSError: it cannot be opened or read.
        """
        folder = os.open(self.path, _FOLDER_FLAGS)
        try:
            fd = os.open(name, _FILE_FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            return read_whole(fd, offset, size)
        finally:
            os.close(fd)


def open_regular(path: str) -> int:
    """A descriptor of a regular file, for reading; its last part may be no link.

    Raises:
        FormatError: not a regular file.
        OSError: it cannot be opened.
    """
    fd = os.open(path, _FILE_FLAGS)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FormatError("not a regular file")
    return fd


def read_whole(fd: int, offset: int, size: int) -> bytes:
    """What `pread` gives until `size` bytes or the end of the file.

    Raises:
        FormatError: not a regular file.
        OSError: it cannot be read.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise FormatError("not a regular file")
    end = min(offset + size, status.st_size)
    parts = []
    while offset < end:
        part = os.pread(fd, min(end - offset, 1 << 26), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def merge(damage: list[Damage]) -> list[Damage]:
    """Neighbours in one file with one reason as one, so that a foreign file cannot fill the list."""
    merged: list[Damage] = []
    for one in damage:
        last = merged[-1] if merged else None
        if last and last.path == one.path and last.reason == one.reason and last.offset + last.size == one.offset:
            merged[-1] = last._replace(size=last.size + one.size)
        else:
            merged.append(one)
    return merged
