"""Descriptors of our own in a program that is not: it may close every descriptor that it has, and get our numbers for
its own files. So each is looked at before use.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class OwnDescriptor(NamedTuple):
    """A descriptor of ours, and what the kernel says that it is."""

    number: int
    target: str

    @classmethod
    def of(cls, number: int) -> OwnDescriptor:
        """One that was just opened."""
        return cls(number, _target(number))

    @property
    def is_ours(self) -> bool:
        """Is it still what it was?"""
        return _target(self.number) == self.target

    def close(self) -> None:
        """Close it, unless its number is somebody else's by now. Never raises."""
        try:
            if self.is_ours:
                os.close(self.number)
        except OSError:
            pass  # somebody was faster


class WakePipe:
    """Ends a `poll` on another thread.

    Raises:
        OSError: no descriptor is left.
    """

    def __init__(self) -> None:
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.end, self._write = OwnDescriptor.of(read), OwnDescriptor.of(write)

    @property
    def is_ours(self) -> bool:
        """Are both ends still ours?"""
        return self.end.is_ours and self._write.is_ours

    def wake(self) -> None:
        """End it. Never raises."""
        if self._write.is_ours:
            try:
                os.write(self._write.number, b"\0")
            except OSError:
                pass  # it is full: who waits is awake; or it is closed just now

    def clear(self) -> None:
        """What was written has been seen."""
        if self.end.is_ours:
            try:
                os.read(self.end.number, 4096)
            except OSError:
                pass  # nothing was

    def close(self) -> None:
        """Never raises."""
        self.end.close()
        self._write.close()


def _target(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""
