"""Descriptors of our own in a program that is not: it may close every descriptor that it has, and get our numbers for
its own files. So each is looked at before use, and once more when it was just opened: a program that goes through all
numbers may be faster than that.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import NamedTuple


class OwnDescriptor(NamedTuple):
    """A descriptor of ours, and what the kernel says that it is."""

    number: int
    target: str

    @classmethod
    def of(cls, number: int, sign: str) -> OwnDescriptor:
        """One that was just opened. `sign`: what its target has: a file's name, or the kind of what has no name. Raises
        OSError: another thread has closed it already, and its number may be that thread's.
        """
        target = target_of(number)
        check_is_there(target, sign)
        return cls(number, target)

    @property
    def is_ours(self) -> bool:
        """Is it still what it was?"""
        return target_of(self.number) == self.target

    @property
    def is_removed(self) -> bool:
        """Is it still what it was, and was its file removed?"""
        return target_of(self.number) == f"{self.target} (deleted)"

    def close(self) -> None:
        """Close it, unless its number is somebody else's by now. Never raises."""
        with suppress(OSError):  # somebody was faster
            if self.is_ours or self.is_removed:
                os.close(self.number)


class WakePipe:
    """Ends a `poll` on another thread. Raises OSError: no descriptor is left, or somebody closed it at once."""

    def __init__(self) -> None:
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.end, self._write = OwnDescriptor.of(read, "pipe:["), OwnDescriptor.of(write, "pipe:[")

    @property
    def is_ours(self) -> bool:
        """Are both ends still ours?"""
        return self.end.is_ours and self._write.is_ours

    def wake(self) -> None:
        """End it. Never raises."""
        if self._write.is_ours:
            with suppress(OSError):  # it is full: who waits is awake; or it is closed just now
                os.write(self._write.number, b"\0")

    def clear(self) -> None:
        """What was written has been seen."""
        if self.end.is_ours:
            with suppress(OSError):  # nothing was
                os.read(self.end.number, 4096)

    def close(self) -> None:
        """Never raises."""
        self.end.close()
        self._write.close()


def leave_standard_ones() -> None:
    """Whichever of standard input, output and error the program has closed is /dev/null now, and no file of ours."""
    with suppress(OSError):  # no descriptor is left, or there is no such device
        while (number := os.open(os.devnull, os.O_RDWR)) in range(3):
            pass
        os.close(number)


def check_is_there(description: str, sign: str) -> None:
    """Raises OSError: what was just opened is another's, as the kernel describes it without this sign."""
    # Where no /proc is mounted the kernel says nothing of any.
    if sign not in description and os.path.isdir("/proc/self/fd"):
        raise OSError(errno.EBADF, "another thread of this program closed it as it was opened", sign)


def target_of(number: int) -> str:
    """What the kernel says that a descriptor is; nothing where it is none."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""
