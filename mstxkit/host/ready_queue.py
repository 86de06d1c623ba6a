"""Which of several descriptors is ready, in the order of the kernel. The program may close what says so, too."""

from __future__ import annotations

import select
from contextlib import suppress
from typing import Collection

from . import descriptors, proc_files


class ReadyQueue:
    """Waits for descriptors, and says in what order they became ready: the kernel queues them, however late we look.

    Ask `is_ours` before each of the others: its number may be another file's by now.
    `numbers`: of descriptors that are open. Raises OSError: no descriptor is left, or somebody closed it at once.
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
        descriptors.check_is_there(self._said, "eventpoll")

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


def _said_of(number: int) -> str:
    """What the kernel says of a queue: that it is one, the descriptors in it, and what these are."""
    return descriptors.target_of(number) + proc_files.read_text(f"/proc/self/fdinfo/{number}")
