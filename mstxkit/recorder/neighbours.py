"""The other processes of a run on this host, watched through their descriptors: the moment at which each was gone.

Those of another pid namespace, and all where the kernel has no such descriptors (Linux before 5.3), are not watched. A
program may close every descriptor that it has, and get our numbers for its own files: so each is looked at before use.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Collection

from ..errors import FormatError
from ..host import identity, life
from ..host.descriptors import OwnDescriptor, WakePipe
from ..host.ready_queue import ReadyQueue
from ..store import documents, livefile

# Of those that are watched every one is asked for its lock once in so many turns: one that became another program has
# lost it, and its descriptor says nothing of that.
_TURNS = 5


class Neighbours:
    """Those that are watched, by the names of their files.
    `folder`: their live files'.
    `gone_ns`: when those that are gone without a word were gone, by name. CLOCK_MONOTONIC.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watched: dict[str, OwnDescriptor] = {}
        self._pipe: WakePipe | None = None
        self._queue: ReadyQueue | None = None  # None: it is to be made anew
        self._turns = 0
        self._gone: frozenset[str] = frozenset()
        self.gone_ns: dict[str, int] = {}

    def open(self) -> None:
        """Before the first `wait`. Raises OSError: no descriptor is left."""
        if self._pipe is None or not self._pipe.is_ours:
            self._forget_queue()
            self._pipe = WakePipe()

    def close(self) -> None:
        """Watch nobody any more."""
        self._forget_queue()
        for descriptor in (*self._watched.values(), *(() if self._pipe is None else (self._pipe,))):
            descriptor.close()
        self._watched, self._pipe = {}, None

    def wake(self) -> None:
        """End a `wait`, from another thread. Never raises."""
        if self._pipe is not None:
            self._pipe.wake()

    def watch(self, names: Collection[str]) -> None:
        """Watch these as well, where that can be done; of those that are gone, others are forgotten."""
        self.gone_ns = {name: self.gone_ns[name] for name in self.gone_ns.keys() & set(names)}
        for name in [name for name, descriptor in self._watched.items() if self._is_its_turn(descriptor)]:
            if not self._watched[name].is_ours:
                self._let_go_of(name)
        for name in set(names).difference(self._watched, self.gone_ns, self._gone):
            descriptor = _open_descriptor(self._folder / f"{name}{life.LIVE_SUFFIX}")
            if descriptor is not None:
                self._watched[name] = descriptor
                self._change_queue(ReadyQueue.add, descriptor.number)

    def _let_go_of(self, name: str) -> OwnDescriptor:
        descriptor = self._watched.pop(name)
        self._change_queue(ReadyQueue.drop, descriptor.number)
        return descriptor

    def _change_queue(self, change: Callable[[ReadyQueue, int], None], number: int) -> None:
        """The same queue goes on: a new one would have the order in which it was made."""
        with suppress(OSError):  # it was closed just now
            if self._queue is not None and self._queue.is_ours:
                change(self._queue, number)
                return
        self._forget_queue()

    def _forget_queue(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _is_its_turn(self, descriptor: OwnDescriptor) -> bool:
        return (descriptor.number + self._turns) % _TURNS == 0

    def gone(self, names: Collection[str]) -> frozenset[str]:
        """Those of them that live no more. Once a turn: *Cost*: five system calls for each that is not watched, and for
        a fifth of the others.
        """
        self._turns += 1
        seldom = {name for name, descriptor in self._watched.items() if not self._is_its_turn(descriptor)}
        asked = [name for name in names if name in self._gone or name not in seldom]
        self._gone = frozenset(name for name in asked if not self.is_alive(name))
        return self._gone

    def is_alive(self, name: str) -> bool:
        """Does this one hold its lock?"""
        return bool(life.is_held(f"{self._folder}{os.sep}{name}{life.SUFFIX}"))

    def when_gone(self, name: str) -> int | None:
        """When one of them was gone, also while another one was sealed; None: that is not known."""
        self.wait(0)
        return self.gone_ns.get(name)

    def wait(self, seconds: float) -> None:
        """Wait until one of them is gone, or `wake` is called; who is gone is noted."""
        if self._queue is not None and not self._queue.is_ours:
            self._forget_queue()
        if self._queue is None:
            wakes = [] if self._pipe is None else [self._pipe.end]
            self._queue = ReadyQueue([descriptor.number for descriptor in (*self._watched.values(), *wakes)])
        ready, now_ns = self._queue.wait(seconds), time.monotonic_ns()
        names = {descriptor.number: name for name, descriptor in self._watched.items()}
        for order, number in enumerate(ready):
            if number in names:
                name = names[number]
                descriptor = self._let_go_of(name)
                # Who ends with a word takes its lock's file along.
                if descriptor.is_ours and (self._folder / f"{name}{life.SUFFIX}").exists():
                    self.gone_ns[name] = now_ns + order
                descriptor.close()
        if self._pipe is None or self._pipe.end.number not in ready:
            return
        if self._pipe.is_ours:
            self._pipe.clear()
            return
        # Somebody has closed our pipe, whose number, ready for ever, would end every wait.
        self._forget_queue()
        self._pipe = None
        try:
            self.open()
        except OSError:
            time.sleep(seconds)  # there is no descriptor left: who calls `wake` waits for this


def _open_descriptor(file: Path) -> OwnDescriptor | None:
    """A descriptor of the process that writes this live file; None where there is none to be had."""
    with suppress(OSError, FormatError, ValueError, TypeError, KeyError, AttributeError):
        with documents.close_after(documents.open_regular(file)) as descriptor:
            head = documents.read_part(descriptor, 0, livefile.HEADER_BYTES)
            who = livefile.read_identity(head) if len(head) == livefile.HEADER_BYTES else {}  # {}: being made
        if who.get("pidns") != identity.read_namespace("pid"):
            return None
        pid = int(who["pid"])
        process = OwnDescriptor.of(os.pidfd_open(pid), "pidfd")
        if identity.pid_start(pid) == who.get("pid_start"):
            return process
        process.close()  # the number is another process's by now
    return None
