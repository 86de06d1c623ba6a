"""The processes of a job by number, as arrays: whose member each is, on which host, and what its stages are called."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from ..store.values import forget_oldest
from .directory import SendingHost
from .evidence import Whole
from .steps import RoleBook

AT_MOST, NOBODY = 1 << 16, -1
_FIRST = 64


class HandingProcesses:
    """Those that hand anything over. Numbers of those that have ended are used again.

    Attributes:
        books, hosts: By the numbers that are in `book_of` and `host_of`.
        book_of, member_of, host_of: By the number of a process.
    """

    def __init__(self) -> None:
        self.books: list[RoleBook] = []
        self.hosts: list[SendingHost] = []
        self.book_of = np.full(_FIRST, NOBODY, np.int64)
        self.member_of = np.full(_FIRST, NOBODY, np.int64)
        self.host_of = np.full(_FIRST, NOBODY, np.int64)
        self._stage_of = np.full((_FIRST, 16), NOBODY, np.int16)
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._host_numbers: dict[int, int] = {}
        self._free: list[int] = list(reversed(range(_FIRST)))
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
        # Who had this place before may not have ended by what was said: what comes of it is nobody's.
        self._stage_of[(self.book_of == self._book(book)) & (self.member_of == member)] = NOBODY
        self.book_of[number], self.member_of[number] = self._book(book), member
        if id(host) not in self._host_numbers:
            self._host_numbers[id(host)] = len(self.hosts)
            self.hosts.append(host)
        self.host_of[number] = self._host_numbers[id(host)]
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
            if size >= AT_MOST:
                return NOBODY
            self.book_of, self.member_of, self.host_of = (
                np.concatenate([array, np.full(size, NOBODY, np.int64)])
                for array in (self.book_of, self.member_of, self.host_of)
            )
            self._stage_of = np.concatenate([self._stage_of, np.full_like(self._stage_of, NOBODY)])
            self._free = list(reversed(range(size, 2 * size)))
        return self._free.pop()

    def _book(self, book: RoleBook) -> int:
        if book not in self.books:
            self.books.append(book)
        return self.books.index(book)

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
            forget_oldest(self._ended, AT_MOST)
            self.book_of[number] = NOBODY
            self._free.append(number)
