"""Entries into collectives, sends and receives are joined to the steps that they belong to.

What Python code has called comes with the batches of its step, and is there when that is closed. A ring is read now and
then, by each process within a second or two of the others: steps that were closed are kept a while, and once nothing
more has come, those of which a ring tells are given once more.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..store import collectives
from .evidence import CALL, FLIGHT_RECORDER, MEET, RECEIVE, SEND, TAKE, Collectives, RoleStep, Seconds, Whole

Rows = npt.NDArray[np.void]

# Closed steps that are kept of a role: as long as no ring tells of it, and then; bytes of them; entries that wait, of
# all roles, groups that are known, and processes that are told apart.
STEPS_AT_FIRST, STEPS_AT_MOST, BYTES_AT_MOST = 24, 512, 96 << 20
ROWS_AT_MOST, GROUPS_AT_MOST, _PROCESSES_AT_MOST = 1 << 22, 1 << 16, 1 << 17
_SETTLES_S, _WAITS_AT_MOST_S = 2.5, 15.0
_NOT_TOLD = -2
_ENTRY = np.dtype(
    [("process", "<i4"), ("kind", "<i2"), ("flags", "<i2"), ("key", "<u8"), ("stage", "<i4")]
    + [(name, "<f8") for name in ("entered_s", "left_s", "waited_s")]
)
_ARRAYS, _TIMES_AN_ENTRY = 9, 8
_NS, _US = 1e9, 1e6


def rows_in(data: bytes) -> Rows:
    """What a process handed over, as an array of `store.collectives.FIELDS`; half a row at the end is left out."""
    whole = len(data) // collectives.ROW_BYTES * collectives.ROW_BYTES
    return np.frombuffer(data[:whole], dtype=np.dtype(collectives.FIELDS))


class _OfRole:
    """The closed steps of a role, and what has come of its members: what was called, and what rings tell."""

    def __init__(self) -> None:
        self.steps: deque[RoleStep] = deque()
        self.at_most = STEPS_AT_FIRST
        self.new: list[tuple[int, Rows, Seconds, Whole]] = []
        self.called: list[Rows] = []
        self.ringed: list[Rows] = []
        self.begun: set[int] = set()
        self.first_s = self.last_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Has nothing more come of rings for a while?"""
        waited_s = now_s - self.last_s, abs(now_s - self.first_s)
        return self.first_s > 0 and (waited_s[0] >= _SETTLES_S or waited_s[1] >= _WAITS_AT_MOST_S)

    def decode(self) -> None:
        """All that has come since the last time, at once."""
        if self.new:
            numbers, rows, entered_s, stages = zip(*self.new)
            entries = _decode_entries(np.concatenate(rows), np.concatenate(entered_s), np.concatenate(stages))
            entries["process"] = np.repeat(numbers, [len(of_one) for of_one in rows])
            is_called = entries["flags"] & collectives.CALLED > 0
            self.called.append(entries[is_called])
            self.ringed.append(entries[~is_called])
            self.new.clear()


class EnteredSteps:
    """Of all roles. One thread at a time."""

    def __init__(self) -> None:
        self._roles: dict[str, _OfRole] = {}
        self._groups: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[str, int] = {}
        self._rows = 0

    def learn_groups(self, head: Mapping[str, Any]) -> None:
        """What the head of a batch says of groups."""
        for number, ranks in collectives.groups_in(head).items():
            if len(self._groups) < GROUPS_AT_MOST:
                self._groups[number] = ranks

    def forget_steps(self) -> None:
        """Steps are counted anew. Who meets in which group stays known."""
        for of_role in self._roles.values():
            of_role.steps.clear()

    def put(self, role: str, process: str, rows: Rows, entered_s: Seconds, stages: Whole, now_s: float) -> None:
        """What has come of one process: rows, when each was entered on the clock of the steps, and in which stage it
        was called, as the role counts its stages; below 0: in none.
        """
        if len(self._numbers) >= _PROCESSES_AT_MOST:
            self._numbers, self._roles, self._rows = {}, {}, 0
        of_role = self._roles.setdefault(role, _OfRole())
        of_role.new.append((self._numbers.setdefault(process, len(self._numbers)), rows, entered_s, stages))
        if (rows["flags"] & collectives.CALLED == 0).any():
            of_role.at_most = STEPS_AT_MOST
            of_role.first_s, of_role.last_s = of_role.first_s or now_s, now_s
        self._rows += len(rows)
        if self._rows > ROWS_AT_MOST:
            self._shorten()

    def _shorten(self) -> None:
        """Keep the newer half, by time: whoever was left out alone would hold all others up unseen."""
        for of_role in self._roles.values():
            of_role.decode()
        lists = [waiting for of in self._roles.values() for waiting in (of.called, of.ringed)]
        since_s = np.median(np.concatenate([part["entered_s"] for waiting in lists for part in waiting]))
        for waiting in lists:
            waiting[:] = [part[part["entered_s"] > since_s] for part in waiting]
        self._rows = sum(len(part) for waiting in lists for part in waiting)

    def closed(self, step: RoleStep, stages: Sequence[int]) -> RoleStep:
        """A step that is closed now, with what was called in it; kept for what rings tell of it later. `stages`: the
        number of each of its stages, as `put` has them.
        """
        of_role = self._roles.setdefault(step.role, _OfRole())
        of_role.decode()
        taken, rest = self._parted(np.concatenate(of_role.called or [np.zeros(0, _ENTRY)]), step, of_role.begun)
        of_role.called, self._rows = [rest], self._rows - len(taken)
        if len(taken):
            places = np.full(max([*stages, *taken["stage"].tolist(), 0]) + 2, -1)
            places[list(stages)] = np.arange(len(stages))
            taken["stage"] = places[np.maximum(taken["stage"], -1)]
            step = step._replace(collectives=_make_evidence(taken, self._groups, CALL))
        of_role.steps.append(step)
        entries_bytes = 0 if step.collectives is None else _TIMES_AN_ENTRY * step.collectives.entered_s.nbytes
        at_most = BYTES_AT_MOST // (_ARRAYS * step.entered_s.nbytes + entries_bytes + 1024)
        while len(of_role.steps) > min(of_role.at_most, max(1, at_most)):
            of_role.steps.popleft()
        return step

    def is_due(self, now_s: float) -> bool:
        """Is there anything that `due` would give?"""
        return any(of_role.is_due(now_s) for of_role in self._roles.values())

    def due(self, now_s: float, at_once: bool = False) -> Iterator[RoleStep]:
        """Steps that were closed before, with what rings tell of them; the first step first."""
        for of_role in self._roles.values():
            if at_once or of_role.is_due(now_s):
                of_role.decode()
                waiting = np.concatenate([np.zeros(0, _ENTRY), *of_role.ringed])
                of_role.ringed, of_role.first_s = [], 0.0
                self._rows -= len(waiting)
                yield from self._ringed(list(of_role.steps), waiting)

    def _ringed(self, steps: list[RoleStep], waiting: Rows) -> Iterator[RoleStep]:
        """Of the newest steps, as far back as the members are the same."""
        begun: set[int] = set()
        for step in [step for step in steps if step.members == steps[-1].members]:
            taken, waiting = self._parted(waiting, step, begun)
            # What a reading of the ring may have held up, in whatever member, is left out.
            taken = taken[~np.isin(taken["key"], taken["key"][taken["flags"] & collectives.DISTURBED > 0])]
            if len(np.unique(taken["process"])) > 1:
                taken["stage"] = _stages_around(taken, step)
                rings = _make_evidence(taken, self._groups, FLIGHT_RECORDER)
                rings = rings._replace(left_s=np.where(np.isnan(rings.left_s), _over_by(rings, step), rings.left_s))
                yield step._replace(collectives=_join_both(step.collectives, rings))

    def _parted(self, waiting: Rows, step: RoleStep, begun: set[int]) -> tuple[Rows, Rows]:
        """What belongs to a step, each with its member in the place of its process, and what comes after it.

        It is all up to the end of each member's, since the end of the one before, but what another one comes to later;
        of who is not in `begun` only since its first stage.
        """
        numbers = np.array([self._numbers.setdefault(p.process, len(self._numbers)) for p in step.members], np.int64)
        own_s = np.fmax.reduce(step.left_s, axis=1, initial=-np.inf)
        until_s = np.full(len(self._numbers), own_s.max(initial=-np.inf))
        until_s[numbers] = np.where(np.isfinite(own_s), own_s, own_s.max(initial=-np.inf))
        since_s, member = np.full(len(until_s), -np.inf), np.full(len(until_s), -1)
        is_new = ~np.isin(numbers, list(begun))
        since_s[numbers[is_new]] = np.fmin.reduce(step.entered_s[is_new], axis=1, initial=np.inf)
        begun.update(numbers.tolist())
        member[numbers] = np.arange(len(numbers))
        is_over = waiting["entered_s"] <= until_s[waiting["process"]]
        is_over &= ~np.isin(waiting["key"], waiting["key"][~is_over])
        taken = waiting[is_over & (waiting["entered_s"] >= since_s[waiting["process"]])]
        taken["process"] = member[taken["process"]]
        return taken[taken["process"] >= 0], waiting[~is_over]


def _decode_entries(rows: Rows, entered_s: Seconds, stages: Whole) -> Rows:
    entries, is_over = np.zeros(len(rows), _ENTRY), rows["left_ns"] > 0
    operation, took_s = collectives.operation_in(rows["operation"]), (rows["left_ns"] - rows["entered_ns"]) / _NS
    is_called = rows["flags"] & collectives.CALLED > 0
    entries["key"] = rows["group"].astype(np.uint64) << np.uint64(32) | rows["sequence"]
    does = [operation == other for other in (collectives.SEND, collectives.RECEIVE, collectives.TAKE)]
    entries["kind"], entries["flags"] = np.select(does, [SEND, RECEIVE, TAKE], MEET), rows["flags"]
    entries["stage"] = np.where(is_called, np.maximum(stages, -1), _NOT_TOLD)
    entries["entered_s"], entries["left_s"] = entered_s, np.where(is_over, entered_s + took_s, np.nan)
    waited_s = np.minimum(rows["size_kib"] / _US, took_s)
    entries["waited_s"] = np.where(is_over & is_called, waited_s, np.nan)
    return entries


def _make_evidence(taken: Rows, groups: Mapping[int, tuple[int, ...]], source: str) -> Collectives:
    group, sequence = taken["key"] >> np.uint64(32), taken["key"] & np.uint64(0xFFFFFFFF)
    member, group, sequence, stage, kind = (
        values.astype(np.int64) for values in (taken["process"], group, sequence, taken["stage"], taken["kind"])
    )
    return Collectives(
        member, group, sequence, taken["entered_s"], taken["left_s"], stage, groups, source, kind, taken["waited_s"],
        taken["flags"] & collectives.HOST_ALONE > 0,
    )  # fmt: skip


def _stages_around(taken: Rows, step: RoleStep) -> Whole:
    """(N,) the shortest stage around each; -1: it is in none."""
    shortest_s, around = np.full(len(taken), np.inf), np.full(len(taken), -1)
    for stage in range(len(step.stages)):
        began, ended = step.entered_s[taken["process"], stage], step.left_s[taken["process"], stage]
        is_in = (began <= taken["entered_s"]) & (taken["entered_s"] < ended) & (ended - began < shortest_s)
        shortest_s[is_in], around[is_in] = (ended - began)[is_in], stage
    return around


def _over_by(rings: Collectives, step: RoleStep) -> Seconds:
    """(K,) by when each was over where a ring does not know (gloo's never does): the last one of a stage by the time
    that the first member left that stage; else NaN.
    """
    until_s = np.where(rings.stage >= 0, step.left_s[rings.member, rings.stage], np.nan)
    _, place = np.unique((rings.group << 8) + rings.stage, return_inverse=True)
    last, first_s = np.full(len(place), -1), np.full(len(place), np.inf)
    np.maximum.at(last, place, rings.sequence)
    is_last = (rings.sequence == last[place]) & (rings.kind == MEET) & np.isfinite(until_s)
    np.minimum.at(first_s, place[is_last], until_s[is_last])
    over_s: Seconds = first_s[place]
    return np.where(is_last & (over_s >= rings.entered_s) & np.isfinite(over_s), over_s, np.nan)


def _join_both(called: Collectives | None, rings: Collectives) -> Collectives:
    """Both, of one step: what was called, and what rings tell beside it."""
    if called is None:
        return rings
    names = [name for name in called._fields if name not in ("groups", "source")]
    both: dict[str, Any] = {n: np.concatenate([getattr(called, n), getattr(rings, n)]) for n in names}
    return called._replace(**both)
