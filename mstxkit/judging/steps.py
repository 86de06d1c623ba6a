"""Rows of summaries become steps: of each role an open table a step, closed when all of it are through.

Everything is bounded, whatever the rows say: roles, members, stages, and tables that are open at once.
"""

from __future__ import annotations

import math
from typing import Any, Iterator, Mapping, NamedTuple

import numpy as np
import numpy.typing as npt

from ..store import summaries
from ..store.values import forget_oldest
from .columns import or_zero
from .evidence import Peer, RoleStep, Seconds, Truths, Whole, Work

Rows = npt.NDArray[Any]

MEMBERS_AT_MOST, STAGES_AT_MOST = 1 << 16, 256
# Of short steps a batch holds several, and hosts come one after the other; more than that wait to be opened. A batch
# of a host that was held up has what its rings hold.
OPEN_AT_MOST, AT_ONCE = 512, 4096
TABLE_BYTES_AT_MOST = 192 << 20
ROW = np.dtype(summaries.FIELDS)
# Places of a table; the first two are times, the others what `RoleStep` has.
_ENTERED, _SPAN, _TOTAL, _COUNT, _TOKENS, _RESPONSES, _LONGEST_RESPONSE = range(7)
_PLACES = 7
_UNKNOWN = {"tokens": summaries.UNKNOWN_32, "responses": summaries.UNKNOWN_16, "longest_response": summaries.UNKNOWN_32}
_TRIES = 64
# A step that some have handed over is kept open for so many times as long as steps take here, and no longer than that.
_PATIENCE, _PATIENCE_AT_MOST_S, _PACE_SHARE = 2.0, 7200.0, 0.2
# Steps that overlap, as in async RL, are no farther apart: who goes back farther counts anew. So many rows of that are
# kept until all of a role have done so.
OVERLAP_STEPS, _BACK_ROWS_AT_MOST = 16, 1 << 18
# Who does nothing in most steps, as who writes checkpoints, is waited for so long after the others' last word.
_SELDOM_S = 2.0
# Of a member's turns: closed steps in which it did something; in which it did nothing before it came again; and since.
_ACTED, _RESTED, _RESTS = range(3)
_COARSE = np.uint32(1 << 31)


class Closing(NamedTuple):
    """When a step is closed. `settle_s`: all are through, and nothing more has come of it for so long. `timeout_s`:
    whoever has not handed it over so long after the first is not waited for.
    """

    settle_s: float = 0.3
    timeout_s: float = 20.0


class _Table:
    """One open step: (places, members, stages), NaN where nothing was handed over."""

    def __init__(self, members: int, stages: int, now_s: float) -> None:
        self.values = np.full((_PLACES, members, stages), np.nan)
        self.began_s = self.changed_s = now_s

    def grow(self, members: int, stages: int) -> None:
        old = self.values
        if old.shape[1] < members or old.shape[2] < stages:
            self.values = np.full((_PLACES, max(members, old.shape[1]), max(stages, old.shape[2])), np.nan)
            self.values[:, : old.shape[1], : old.shape[2]] = old


class _Rows(NamedTuple):
    """Rows that were handed over, their members and stages, when each was entered, and when they came."""

    rows: Rows
    members: Whole
    stages: Whole
    entered_s: Seconds
    came_s: float

    def only(self, kept: Truths) -> _Rows:
        return _Rows(self.rows[kept], self.members[kept], self.stages[kept], self.entered_s[kept], self.came_s)


class RoleBook:
    """The open steps of one role.

    Attributes:
        late_rows: Rows of steps that were closed already.
        pace_s: How long steps take here, by when they came; 0: that is not known yet.
    """

    def __init__(self, role: str) -> None:
        self.role = role
        self.late_rows = 0
        self._stages: dict[str, int] = {}
        self._members: list[Peer] = []
        self._places: dict[str, int] = {}
        self._waits_for: tuple[dict[str, str], dict[str, str]] = {}, {}  # of members, and of controllers
        self._gone: dict[str, None] = {}  # whose places were given to others
        self._by_rank: dict[tuple[int | None, str], str] = {}
        self._is_awaited = np.zeros(0, bool)
        self._has_ended = np.zeros(0, bool)
        self._turns = np.zeros((0, 3))  # of each, as the places below say
        self._newest, self._newest_s, self._last_s = np.zeros(0, np.int64), np.zeros(0), -np.inf
        self._counts_anew, self._back, self._forward_s = np.zeros(0, bool), list[_Rows](), 0.0
        self._tables: dict[int, _Table] = {}
        self._waiting: dict[int, list[_Rows]] = {}
        self._closed, self._closed_s, self.pace_s = -1, 0.0, 0.0

    def stage(self, key: str) -> int:
        """The number of a stage here; -1: there are too many."""
        if key not in self._stages and len(self._stages) < STAGES_AT_MOST:
            self._stages[key] = len(self._stages)
        return self._stages.get(key, -1)

    def member(self, peer: Peer, waits_for: Mapping[str, str] = {}) -> int:
        """The number of a member here; -1: there are too many, or its place is another one's since it was replaced.
        `waits_for`: stages in which it only waits, with whom it waits for.
        """
        self._waits_for[peer.is_controller].update(waits_for)
        number = self._places.get(peer.process)
        if number is not None:
            before = self._members[number]
            self._members[number] = peer if peer.rank is not None or before.rank is None else before
            return number
        if peer.process in self._gone:
            return -1
        # What this rank was before has ended, also where nobody has said so: it was started again.
        if peer.rank is not None:
            self.end(self._by_rank.get((peer.rank, peer.part), ""))
        self._by_rank[peer.rank, peer.part] = peer.process
        forget_oldest(self._by_rank, MEMBERS_AT_MOST)
        number = self._free_place()
        if number < 0:
            return -1
        self._places[peer.process], self._members[number] = number, peer
        self._is_awaited[number], self._has_ended[number] = not peer.is_controller, False
        self._newest[number], self._newest_s[number] = -1, -np.inf
        self._counts_anew[number], self._turns[number] = False, 0
        return number

    def _free_place(self) -> int:
        """That of a member that has ended, of whom no open step has anything; else another one."""
        for free in np.flatnonzero(self._has_ended)[: 0 if self._waiting or self._back else _TRIES]:
            if all(len(t.values[0]) <= free or np.isnan(t.values[0, free]).all() for t in self._tables.values()):
                gone = self._members[free].process
                self._places.pop(gone, None)
                self._gone[gone] = None
                forget_oldest(self._gone, MEMBERS_AT_MOST)
                return int(free)
        if len(self._members) >= MEMBERS_AT_MOST:
            return -1
        self._members.append(Peer(None))
        self._is_awaited = np.append(self._is_awaited, False)
        self._has_ended, self._turns = np.append(self._has_ended, False), np.append(self._turns, np.zeros((1, 3)), 0)
        self._newest, self._newest_s = np.append(self._newest, -1), np.append(self._newest_s, -np.inf)
        self._counts_anew = np.append(self._counts_anew, False)
        return len(self._members) - 1

    def has_ended(self, process: str) -> bool:
        """Is this no member any more, or one for which nobody waits: it has ended, or was started again?"""
        return process not in self._places or bool(self._has_ended[self._places[process]])

    def end(self, process: str) -> None:
        """Nobody waits for this process any more."""
        if process in self._places:
            number = self._places[process]
            self._has_ended[number], self._is_awaited[number] = True, False

    def put(self, rows: Rows, members: Whole, stages: Whole, entered_s: Seconds, now_s: float) -> None:
        """Rows that have steps, in the order in which they were handed over: of two of one stage the later counts."""
        new = _Rows(rows, members, stages, entered_s, now_s)
        is_back = self._are_back(new, rows["step"].astype(np.int64))
        if is_back.any():
            self._counts_anew[members[is_back]] = True
            self._back.append(new.only(is_back))
            while sum(len(back.rows) for back in self._back) > _BACK_ROWS_AT_MOST:
                self.late_rows += len(self._back.pop(0).rows)
        elif self._back and not self._counts_anew.any():  # whoever seemed to had come late
            self.late_rows += sum(len(back.rows) for back in self._back)
            self._back.clear()
        self._take(new.only(~is_back))
        came = np.unique(members)
        self._is_awaited[came] = ~self._has_ended[came] & ~self._controllers()[came]

    def _are_back(self, new: _Rows, steps: Whole) -> Truths:
        """Of which rows does the member count its steps anew? They are far before what it has begun by then, or, where
        it has begun nothing, none beyond what was closed, or all others have begun and ended, who were through by then:
        of another attempt at the job, or of a counter that was set back.
        """
        of = new.members
        # Who is where the others are was late, and counts nothing anew.
        self._counts_anew[of[(steps > self._newest[of]) & (steps >= self._closed)]] = False
        # Not what somebody hands over late of the steps that the others are through with.
        have_all_ended = self._has_ended[self._newest >= 0].all()
        before = max(self._closed, int(self._newest.max()) + 1 if have_all_ended else -1)
        is_behind = (self._newest[of] < 0) & (steps < before) & (new.entered_s > self._last_s)
        np.maximum.at(self._newest, of[~is_behind], steps[~is_behind])
        is_newest = ~is_behind & (steps == self._newest[of])
        np.maximum.at(self._newest_s, of[is_newest], new.entered_s[is_newest])
        left_s = new.entered_s[is_newest] + _unpack_seconds(new.rows["span"][is_newest])
        self._last_s = float(left_s.max(initial=self._last_s))
        is_behind &= self._newest[of] < 0  # else it is where all are
        is_far = (steps < self._newest[of] - OVERLAP_STEPS) | self._counts_anew[of]
        return is_behind | (is_far & (new.entered_s > self._newest_s[of]))

    def _begin_anew(self, now_s: float, closing: Closing, at_once: bool) -> None:
        """Count from the beginning, once nothing is open any more and all of them do, or nothing comes of the rest."""
        if not self._back or self._tables or self._waiting:
            return
        go_on = int((self._is_awaited & ~self._counts_anew & (self._newest >= 0) & ~self._are_seldom()).sum())
        is_long = at_once or now_s - max(self._forward_s, self._back[0].came_s) >= self._patience_s(closing)
        if go_on and not (is_long and go_on <= self._counts_anew.sum()):
            return
        of_before = self._counts_anew | self._are_seldom() | self._has_ended
        self._newest[of_before], self._newest_s[of_before] = -1, -np.inf
        back, self._back = [back.only(self._counts_anew[back.members]) for back in self._back], []
        self._closed, self._counts_anew = -1, np.zeros_like(self._counts_anew)
        self._turns[:] = 0
        for rows in back:
            self.put(*rows)

    def _take(self, new: _Rows) -> None:
        steps = new.rows["step"].astype(np.int64)
        self.late_rows += len(steps)
        for step in np.unique(steps[steps > self._closed])[-AT_ONCE:].tolist():
            of_step = new.only(steps == step)
            self._waiting.setdefault(step, []).append(of_step)
            self.late_rows -= len(of_step.rows)
            self._forward_s = new.came_s
        self._open(new.came_s)

    def _controllers(self) -> Truths:
        return np.fromiter((peer.is_controller for peer in self._members), bool, len(self._members))

    def _open(self, now_s: float) -> None:
        """Put in what waits for it, the first steps first, of as many as may be open."""
        for step in sorted(self._waiting):
            if step not in self._tables and self._is_too_much() and step > min(self._tables):
                return  # until `due` has closed one
            if step not in self._tables:
                self._tables[step] = _Table(len(self._members), len(self._stages), now_s)
            table = self._tables[step]
            for new in self._waiting.pop(step):
                table.grow(len(self._members), len(self._stages))
                rows, unknowns = new.rows, _UNKNOWN.items()
                work = [np.where(rows[of] == unknown, np.nan, rows[of].astype(np.float64)) for of, unknown in unknowns]
                took_s, count = map(_unpack_seconds, (rows["span"], rows["total"])), rows["occurrences"]
                table.values[:, new.members, new.stages] = np.stack([new.entered_s, *took_s, count, *work])
                table.changed_s = now_s

    def due(self, now_s: float, closing: Closing, at_once: bool = False) -> Iterator[RoleStep]:
        """Close the steps for which nobody waits any more, in their order."""
        self._begin_anew(now_s, closing, at_once)
        while self._tables:
            step = min(self._tables)
            table = self._tables[step]
            missing = self._missing(step)
            is_through = now_s >= self.settled_s(closing) or (not missing.any() and step < max(self._tables))
            is_late = now_s - table.began_s >= self._patience_s(closing)
            if not (at_once or is_through or is_late or self._is_too_much()):
                return
            self._is_awaited &= ~missing | self._are_seldom()
            passed_s = table.began_s - self._closed_s
            if self._closed >= 0 and passed_s > 0:
                self.pace_s += (passed_s / max(1, step - self._closed) - self.pace_s) * _PACE_SHARE
            self._closed, self._closed_s = step, table.began_s
            del self._tables[step]
            self._open(now_s)
            closed = self._as_step(step, table.values)
            if closed is not None:
                yield closed
            self._begin_anew(now_s, closing, at_once)

    def _missing(self, step: int) -> Truths:
        """(M,) who is awaited, and has handed over neither that nor a later one, nor counts anew?"""
        return self._is_awaited & (self._newest < step) & ~self._counts_anew

    def settled_s(self, closing: Closing) -> float:
        """When the first open step is settled, if nothing more comes of it; inf: somebody is waited for, or none is."""
        step = min(self._tables, default=-1)
        missing = self._missing(step)
        if step < 0 or (missing & ~self._are_seldom()).any():
            return math.inf
        return self._tables[step].changed_s + closing.settle_s + _SELDOM_S * bool(missing.any())

    def _are_seldom(self) -> Truths:
        """(M,) who does nothing in most steps, and yet comes again?"""
        return np.asarray(self._turns[:, _RESTED] > self._turns[:, _ACTED])

    def _patience_s(self, closing: Closing) -> float:
        return max(closing.timeout_s, min(_PATIENCE * self.pace_s, _PATIENCE_AT_MOST_S))

    def _is_too_much(self) -> bool:
        held = sum(table.values.nbytes for table in self._tables.values())
        return len(self._tables) > OPEN_AT_MOST or (held > TABLE_BYTES_AT_MOST and len(self._tables) > 1)

    def _as_step(self, step: int, values: Seconds) -> RoleStep | None:
        """Those members and stages of which there is anything, by rank; and who did something before it, and after it
        or after another one in which it did nothing: that one is not gone.
        """
        has_any = ~np.isnan(values[_TOTAL])
        acts, turns, count = has_any.any(axis=1), self._turns[: len(has_any)], len(has_any)
        is_idle = ~acts & (turns[:, _ACTED] > 0)
        goes_on = (self._newest[:count] > step) | ((turns[:, _RESTED] > 0) & ~self._has_ended[:count])
        turns[acts, _ACTED] += 1
        turns[acts, _RESTED] += turns[acts, _RESTS]
        turns[acts, _RESTS] = 0
        turns[is_idle, _RESTS] += 1
        members = np.flatnonzero(acts | (is_idle & goes_on))
        peers = {number: self._members[number] for number in members.tolist()}
        order = sorted(peers, key=lambda n: (peers[n].rank is None, peers[n].rank or 0, peers[n].process))
        members = np.array(order, np.int64)
        stages = np.flatnonzero(has_any.any(axis=0))
        if not len(stages):
            return None
        kept = values[:, members[:, None], stages]
        names = list(self._stages)
        waits_for = self._waits_for[bool(self._controllers()[members].all())]
        return RoleStep(
            self.role, step, tuple(self._members[number] for number in members),
            tuple(names[number] for number in stages), kept[_ENTERED], kept[_ENTERED] + kept[_SPAN], kept[_TOTAL],
            or_zero(kept[_COUNT]), Work(kept[_TOKENS], kept[_RESPONSES], kept[_LONGEST_RESPONSE]),
            np.zeros(len(members)),
            waits_for={key: whom for key, whom in waits_for.items() if self.stage(key) in stages},
        )  # fmt: skip


def _unpack_seconds(packed: npt.NDArray[np.uint32]) -> Seconds:
    coarse = packed >= _COARSE
    us = np.where(coarse, (packed & ~_COARSE).astype(np.float64) * 1024, packed.astype(np.float64))
    return np.asarray(us * 1e-6)
