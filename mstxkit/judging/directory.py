"""Who sends: hosts, their clocks, their processes, and which of their batches were taken already.

A batch may come twice, by Ray and through the run, and in any order; it counts once.
"""

from __future__ import annotations

from typing import Iterator

import numpy as np

from ..store.batches import Batch
from ..store.values import forget_oldest, whole_number
from .clock_bounds import HostClocks
from .evidence import Seconds, Whole

HOSTS_AT_MOST, SENDERS_A_HOST = 8192, 3
_MISSING_AT_MOST = 256
_NS = 1e9


class Sender:
    """One agent of a host: the numbers of its batches and processes. The next keeper of a host is another one.

    Attributes:
        processes: Its numbers of them, to whatever they are here.
    """

    def __init__(self) -> None:
        self.processes: dict[int, int] = {}
        self._next, self._missing = 0, dict[int, None]()

    def is_new(self, number: int | None) -> bool:
        """Is this the first time that this batch comes?"""
        if number is None:
            return True
        if number < self._next:
            return self._missing.pop(number, self) is None
        for missing in range(max(self._next, number - _MISSING_AT_MOST), number):
            self._missing[missing] = None
        forget_oldest(self._missing, _MISSING_AT_MOST)
        self._next = number + 1
        return True


class SendingHost:
    """What is known of a host.

    Attributes:
        seen_s: Wall clock, when something came of it last.
        settings: The version that it has.
        dropped: How many batches its run folder did not take.
        has_ended: Has it said goodbye?
        clock_ns: Its CLOCK_MONOTONIC as the newest batch was made.
        put_right_ns: What makes the job's wall clock of that, where its own is wrong; 0: it is not.
    """

    def __init__(self, host: str, boot: str) -> None:
        self.host, self.boot = host, boot
        self.seen_s, self.settings, self.dropped, self.has_ended = 0.0, 0, 0, False
        self.senders: dict[str, Sender] = {}
        self.clock_ns = self.put_right_ns = 0

    def take(self, batch: Batch, now_s: float) -> Sender | None:
        """Who has sent it; None where it was taken before."""
        sender = self.senders.get(batch.sender)
        if sender is None:
            forget_oldest(self.senders, SENDERS_A_HOST - 1)
            sender = self.senders[batch.sender] = Sender()
        if not sender.is_new(batch.number):
            return None
        self.seen_s, self.settings = now_s, max(self.settings, batch.settings)
        self.has_ended, self.boot = batch.has_ended, batch.boot
        self.dropped = max(self.dropped, whole_number(batch.head.get("dropped")))
        if batch.clock is not None:
            self.clock_ns = batch.clock[0]
            self.put_right_ns = batch.clock[1] - self.clock_ns if batch.head.get("is_off") is True else 0
        return sender

    @property
    def clock(self) -> str:
        """Whose CLOCK_MONOTONIC it has: all that share a kernel share one."""
        return self.boot or self.host


class Directory:
    """The hosts of a job, by the places that their batches name. `reference`: boot id, and CLOCK_REALTIME less
    CLOCK_MONOTONIC in ns, of the clock that exchanges are made with: that of whoever judges.
    """

    def __init__(self, reference: tuple[str, int] = ("", 0)) -> None:
        self.hosts: dict[str, SendingHost] = {}
        self._clocks = HostClocks(*reference, at_most=HOSTS_AT_MOST)
        self.heard_s = 0.0  # wall clock, when something came of any host last; 0.0: nothing has

    @property
    def have_all_ended(self) -> bool:
        """Has every host said goodbye? It comes after its last process has left; of those that are killed none does."""
        return all(host.has_ended for host in self.hosts.values())

    def take(self, batch: Batch, now_s: float) -> tuple[SendingHost, Sender] | None:
        """Whose batch it is; None where it was taken before, or there are too many hosts."""
        host = self.hosts.get(batch.place)
        if host is None:
            if len(self.hosts) >= HOSTS_AT_MOST:
                return None
            host = self.hosts[batch.place] = SendingHost(batch.host, batch.boot)
        sender = host.take(batch, now_s)
        if sender is None:
            return None
        self.heard_s = now_s
        self._clocks.take(host.clock, batch.clock, batch.head.get("clocks"))
        return host, sender

    def knows(self, batch: Batch) -> bool:
        """Was it said, before or in the batch itself, of which process each of its sections is?"""
        host = self.hosts.get(batch.place)
        sender = (None if host is None else host.senders.get(batch.sender)) or Sender()
        numbers = {process.number for process in batch.processes()} | sender.processes.keys()
        return all(number in numbers for _, number, _ in batch.parts)

    def aligned_ns(self, host: SendingHost, monotonic_ns: Whole) -> tuple[Whole, Seconds]:
        """Times of a host on the job's clock and the bound of the error of each, ns: by exchanges with whoever judges,
        where there were any, else by its own wall clock.
        """
        return self._clocks.aligned(host.clock, monotonic_ns)

    def error_s(self, host: SendingHost) -> float:
        """How wrong its times may be against another host's, as of its newest batch."""
        return float(self.aligned_ns(host, np.array([host.clock_ns]))[1][0] / _NS)

    def without_settings(self, version: int, since_s: float = 0.0) -> Iterator[SendingHost]:
        """Hosts that have not acknowledged this version, of those that have not ended and were heard since then."""
        for host in self.hosts.values():
            if not host.has_ended and host.seen_s >= since_s and host.settings < version:
                yield host
