"""The other processes of a run on this host, watched through their descriptors: the moment at which each was gone.

Those of another pid namespace, and all where the kernel has no such descriptors (Linux before 5.3), are not watched. A
program may close every descriptor that it has, and get our numbers for its own files: so each is looked at before use.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import NamedTuple

from ..errors import FormatError
from ..host import identity, life
from ..store import documents, livefile


class _Descriptor(NamedTuple):
    """A descriptor of ours, and what the kernel says that it is."""

    number: int
    target: str

    @classmethod
    def of(cls, number: int) -> _Descriptor:
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


def _target(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


class Neighbours:
    """Those that are watched, by the names of their files.

    Args:
        folder: Their live files'.

    Attributes:
        gone_ns: When those that are gone without a word were gone, by name. CLOCK_MONOTONIC.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watched: dict[str, _Descriptor] = {}
        self._pipe: tuple[_Descriptor, _Descriptor] | None = None
        self.gone_ns: dict[str, int] = {}

    def open(self) -> None:
        """Before the first `wait`.

        Raises:
            OSError: no descriptor is left.
        """
        if self._pipe is None or not all(end.is_ours for end in self._pipe):
            read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._pipe = _Descriptor.of(read), _Descriptor.of(write)

    def close(self) -> None:
        """Watch nobody any more."""
        for descriptor in (*self._watched.values(), *(self._pipe or ())):
            descriptor.close()
        self._watched, self._pipe = {}, None

    def wake(self) -> None:
        """End a `wait`, from another thread. Never raises."""
        if self._pipe is not None and self._pipe[1].is_ours:
            try:
                os.write(self._pipe[1].number, b"\0")
            except OSError:
                pass  # it is full: who waits is awake; or it is closed just now

    def watch(self, names: list[str]) -> None:
        """Watch these as well, where that can be done."""
        self._watched = {name: descriptor for name, descriptor in self._watched.items() if descriptor.is_ours}
        for name in set(names) - set(self._watched) - set(self.gone_ns):
            number = _opened(self._folder / f"{name}{life.LIVE_SUFFIX}")
            if number is not None:
                self._watched[name] = _Descriptor.of(number)

    def when_gone(self, name: str) -> int | None:
        """When one of them was gone, also while another one was sealed; None: that is not known."""
        self.wait(0)
        return self.gone_ns.get(name)

    def wait(self, seconds: float) -> None:
        """Wait until one of them is gone, or `wake` is called."""
        poll, wakes = select.poll(), (self._pipe or ())[:1]
        for descriptor in (*self._watched.values(), *wakes):
            poll.register(descriptor.number, select.POLLIN)
        ready = {number for number, _ in poll.poll(int(1000 * seconds))}
        now_ns = time.monotonic_ns()
        for name in [name for name, descriptor in self._watched.items() if descriptor.number in ready]:
            descriptor = self._watched.pop(name)
            # Who ends with a word takes its lock's file along.
            if descriptor.is_ours and (self._folder / f"{name}{life.SUFFIX}").exists():
                self.gone_ns[name] = now_ns
            descriptor.close()
        for end in wakes:
            if end.number in ready and end.is_ours:
                os.read(end.number, 4096)


def _opened(file: Path) -> int | None:
    """A descriptor of the process that writes this live file; None where there is none to be had."""
    try:
        descriptor = documents.open_regular(file)
        try:
            head = documents.read_part(descriptor, 0, livefile.HEADER_BYTES)
            who = livefile.read_identity(head) if len(head) == livefile.HEADER_BYTES else {}  # {}: being made
        finally:
            os.close(descriptor)
        return _of_process(int(who["pid"]), who) if who.get("pidns") == identity.namespace("pid") else None
    except (OSError, FormatError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _of_process(pid: int, who: dict[str, object]) -> int | None:
    descriptor = os.pidfd_open(pid)
    if identity.pid_start(pid) == who.get("pid_start"):
        return descriptor
    os.close(descriptor)  # the number is another process's by now
    return None
