"""Who sends: hosts, their clocks, their processes, and which of their batches were taken already.

A batch may come twice, by Ray and through the run, and in any order; it counts once.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from ..store.batches import Batch
from ..store.values import forget_oldest, whole_number
from .clock_bounds import HostClocks
from .evidence import Seconds, Whole
from .steps import RoleBook

HOSTS_AT_MOST, SENDERS_A_HOST = 8192, 3
_MISSING_AT_MOST = 256
# So many processes are told apart; there is room for so many at first.
_PROCESSES_AT_MOST, _PROCESSES_AT_FIRST, NOBODY = 1 << 16, 64, -1
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


class HandingProcesses:
    """The processes of a job by number, as arrays: whose member each is, on which host, and what its stages are called.
    Numbers of those that have ended are used again.

    Attributes:
        books, hosts: By the numbers that are in `book_of` and `host_of`.
        book_of, member_of, host_of: By the number of a process.
    """

    def __init__(self) -> None:
        self.books: list[RoleBook] = []
        self.hosts: list[SendingHost] = []
        self.book_of, self.member_of, self.host_of = np.full((3, _PROCESSES_AT_FIRST), NOBODY, np.int64)
        self._stage_of = np.full((_PROCESSES_AT_FIRST, 16), NOBODY, np.int16)
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._host_numbers: dict[SendingHost, int] = {}
        self._free: list[int] = list(reversed(range(_PROCESSES_AT_FIRST)))
        self._ended: dict[str, SendingHost] = {}

    def enter(self, name: str, book: RoleBook, member: int, stages: Sequence[int], host: SendingHost) -> int:
        """The number of a process, which is this member of that role and has these stages by their ids, from 1 on.
        NOBODY: there are too many. Of one that is no member (below 0) the number that it has: it may end yet.
        """
        number = self._numbers.get(name)
        if member < 0:
            return NOBODY if number is None else number
        if number is None:
            number = self._free_number()
            if number == NOBODY:
                return NOBODY
            self._numbers[name], self._names[number] = number, name
        elif self.books[self.book_of[number]] is not book:  # it has learnt what its role is
            self.books[self.book_of[number]].end(name)
        if book not in self.books:
            self.books.append(book)
        of_book = self.books.index(book)
        # Who had this place before may not have ended by what was said: what comes of it is nobody's.
        self._stage_of[(self.book_of == of_book) & (self.member_of == member)] = NOBODY
        self.book_of[number], self.member_of[number] = of_book, member
        self.host_of[number] = self._host_numbers.setdefault(host, len(self.hosts))
        if len(self._host_numbers) > len(self.hosts):
            self.hosts.append(host)
        if len(stages) >= self._stage_of.shape[1]:
            wider = np.full((len(self._stage_of), 2 * len(stages)), NOBODY, np.int16)
            wider[:, : self._stage_of.shape[1]] = self._stage_of
            self._stage_of = wider
        self._stage_of[number] = NOBODY
        self._stage_of[number, 1 : len(stages) + 1] = stages
        return number

    def _free_number(self) -> int:
        if not self._free:
            size = len(self.book_of)
            if size >= _PROCESSES_AT_MOST:
                return NOBODY
            self.book_of, self.member_of, self.host_of = (
                np.concatenate([array, np.full(size, NOBODY, np.int64)])
                for array in (self.book_of, self.member_of, self.host_of)
            )
            self._stage_of = np.concatenate([self._stage_of, np.full_like(self._stage_of, NOBODY)])
            self._free = list(reversed(range(size, 2 * size)))
        return self._free.pop()

    def stages_of(self, processes: Whole, ids: Whole) -> Whole:
        """What is called so by these processes, as numbers of their roles; NOBODY: nothing that was told."""
        width = self._stage_of.shape[1]
        stages = self._stage_of[processes, np.minimum(ids, width - 1)].astype(np.int64)
        return np.where((processes != NOBODY) & (ids < width), stages, NOBODY)

    def name(self, number: int) -> str:
        """Of the process with this number; "" of none, or one that has ended."""
        return self._names.get(number, "")

    def host(self, name: str) -> SendingHost | None:
        """Where a process is, or was: its last steps are judged after it has ended. None: nobody knows any more."""
        number = self._numbers.get(name)
        return self._ended.get(name) if number is None else self.hosts[self.host_of[number]]

    def replaced_hosts(self) -> set[SendingHost]:
        """Those of which something is known, and all of whose processes were started again on others."""
        every = [(name, self.books[self.book_of[n]], self.hosts[self.host_of[n]]) for name, n in self._numbers.items()]
        return {host for *_, host in every} - {host for name, book, host in every if not book.has_ended(name)}

    def end(self, number: int) -> None:
        """Nothing comes of this process any more; its number may be another one's from now on."""
        name = self._names.pop(number, None)
        if name is not None:
            del self._numbers[name]
            self.books[self.book_of[number]].end(name)
            self._ended[name] = self.hosts[self.host_of[number]]
            forget_oldest(self._ended, _PROCESSES_AT_MOST)
            self.book_of[number] = NOBODY
            self._free.append(number)
