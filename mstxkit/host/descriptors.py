"""Descriptors of our own in a program that is not: it may close every descriptor that it has, and get our numbers for
its own files. So each is looked at before use, and once more when it was just opened: a program that goes through all
numbers may be faster than that.
"""

from __future__ import annotations

import errno
import os
import select
from contextlib import suppress
from typing import Collection, NamedTuple

from . import proc_files


class OwnDescriptor(NamedTuple):
    """A descriptor of ours, and what the kernel says that it is."""

    number: int
    target: str

    @classmethod
    def of(cls, number: int, sign: str) -> OwnDescriptor:
        """One that was just opened. `sign`: what its target has: a file's name, or the kind of what has no name. Raises
        OSError: another thread has closed it already, and its number may be that thread's.
        """
        target = _target(number)
        _check_is_there(target, sign)
        return cls(number, target)

    @property
    def is_ours(self) -> bool:
        """Is it still what it was?"""
        return _target(self.number) == self.target

    @property
    def is_removed(self) -> bool:
        """Is it still what it was, and was its file removed?"""
        return _target(self.number) == f"{self.target} (deleted)"

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


class ReadyQueue:
    """Waits for descriptors, and says in what order they became ready: the kernel queues them, however late we look.

    Ask `is_ours` before each of the others: its number may be another file's by now.

    Args:
        numbers: Of descriptors that are open.

    Raises:
        OSError: no descriptor is left, or somebody closed it at once.
    """

    # Whose number is another file's by now: an `epoll` that is freed closes its number, whosever that is.
    _lost: list[select.epoll] = []

    def __init__(self, numbers: Collection[int]) -> None:
        self._epoll, self._closed = select.epoll(), list[int]()
        self._number = self._epoll.fileno()
        try:
            for number in numbers:
                self._take(number)
            self._learn()
        except OSError:
            self._lost.append(self._epoll)
            raise

    def _take(self, number: int) -> None:
        try:
            self._epoll.register(number, select.EPOLLIN)
        except OSError:
            self._closed.append(number)  # somebody has closed it; it may be a plain file of his by now

    def _learn(self) -> None:
        self._said = _said_of(self._number)
        _check_is_there(self._said, "eventpoll")

    @property
    def is_ours(self) -> bool:
        """Is it still what it was, with all its descriptors?"""
        return _said_of(self._number) == self._said

    def add(self, number: int) -> None:
        """Wait for this one too. Raises OSError: somebody closed the queue just now."""
        self._take(number)
        self._learn()

    def drop(self, number: int) -> None:
        """Wait for it no more; before it is closed. Raises OSError: somebody closed the queue just now."""
        self._closed = [closed for closed in self._closed if closed != number]
        with suppress(OSError):  # it is not in it: it was closed before
            self._epoll.unregister(number)
        self._learn()

    def wait(self, seconds: float) -> list[int]:
        """Those that are ready, the first one first; at once those that were closed before they came here.
        Raises OSError: it was closed just now.
        """
        return self._closed or [number for number, _ in self._epoll.poll(seconds)]

    def close(self) -> None:
        """Before its descriptors are closed. Never raises."""
        if not self.is_ours:
            self._lost.append(self._epoll)
            return
        with suppress(OSError):  # somebody was faster
            self._epoll.close()


def leave_standard_ones() -> None:
    """Whichever of standard input, output and error the program has closed is /dev/null now, and no file of ours."""
    with suppress(OSError):  # no descriptor is left, or there is no such device
        while (number := os.open(os.devnull, os.O_RDWR)) in range(3):
            pass
        os.close(number)


def _said_of(number: int) -> str:
    """What the kernel says of a queue: that it is one, the descriptors in it, and what these are."""
    target = _target(number)
    try:
        return target + proc_files.text(f"/proc/self/fdinfo/{number}")
    except OSError:
        return ""


def _check_is_there(description: str, sign: str) -> None:
    # Where no /proc is mounted the kernel says nothing of any.
    if sign not in description and os.path.isdir("/proc/self/fd"):
        raise OSError(errno.EBADF, "another thread of this program closed it as it was opened", sign)


def _target(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""
