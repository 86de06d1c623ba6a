"""The other processes of a run on this host, watched through their descriptors: the moment at which each was gone.

Those of another pid namespace, and all where the kernel has no such descriptors (Linux before 5.3), are not watched.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

from ..errors import FormatError
from ..host import identity, life
from ..store import documents, livefile


class Neighbours:
    """Those that are watched, by the names of their files.

    Args:
        folder: Their live files'.

    Attributes:
        gone_ns: When those that are gone without a word were gone, by name. CLOCK_MONOTONIC.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[int, str] = {}
        self._pipe: tuple[int, int] | None = None
        self.gone_ns: dict[str, int] = {}

    def open(self) -> None:
        """Before the first `wait`.

        Raises:
            OSError: no descriptor is left.
        """
        if self._pipe is None:
            self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def close(self) -> None:
        """Watch nobody any more."""
        for descriptor in (*self._names, *(self._pipe or ())):
            os.close(descriptor)
        self._names, self._pipe = {}, None

    def wake(self) -> None:
        """End a `wait`, from another thread."""
        if self._pipe is not None:
            try:
                os.write(self._pipe[1], b"\0")
            except BlockingIOError:
                pass  # it is awake

    def watch(self, names: list[str]) -> None:
        """Watch these as well, where that can be done."""
        for name in set(names) - set(self._names.values()) - set(self.gone_ns):
            descriptor = _opened(self._folder / f"{name}{life.LIVE_SUFFIX}")
            if descriptor is not None:
                self._names[descriptor] = name

    def wait(self, seconds: float) -> None:
        """Wait until one of them is gone, or `wake` is called."""
        poll = select.poll()
        for descriptor in (*self._names, *(self._pipe or ())[:1]):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(int(1000 * seconds))]
        now_ns = time.monotonic_ns()
        for descriptor in ready:
            name = self._names.pop(descriptor, None)
            if name is None:
                os.read(descriptor, 4096)
            else:
                os.close(descriptor)
                if (self._folder / f"{name}{life.SUFFIX}").exists():  # who says so itself takes it along
                    self.gone_ns[name] = now_ns


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
