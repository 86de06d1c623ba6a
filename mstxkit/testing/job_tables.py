"""Tables of occurrences and hand-overs become steps of roles, as a job's own processes hand them over."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from ..judging.evidence import MEET, RECEIVE, SEND, Collectives, Peer, RoleStep, Work

Vector = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Columns = dict[str, list[Any]]
_KINDS = {"meet": MEET, "send": SEND, "receive": RECEIVE}
_WORK = ("tokens", "responses", "longest_response")
_NS = 1e9


def steps_of(
    occurrences: Any, hand_overs: Any, collectives: Any, groups: Mapping[Any, Sequence[int]], hosts: Mapping[int, str]
) -> Iterator[RoleStep]:
    """Steps in the order in which they are over."""
    stages = _Occurrences(_columns(occurrences), hosts)
    entries = _Entries(stages, _columns(collectives), _columns(hand_overs), groups)
    steps = [stages.step(rows, entries) for rows in _parts(stages.step_of)]
    yield from sorted(steps, key=lambda step: float(np.nanmax(np.fmax(step.left_s, step.entered_s))))


def _columns(table: Any) -> Columns:
    """By name, of rows or of columns."""
    if isinstance(table, Mapping):
        return {name: list(values) for name, values in table.items()}
    rows = [row if isinstance(row, Mapping) else row._asdict() for row in table or ()]
    names = {name: None for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


def _of(columns: Columns, name: str, missing: Any = None) -> list[Any]:
    count = len(next(iter(columns.values()), ()))
    return [missing if value is None else value for value in columns.get(name, [missing] * count)]


def _numbers(values: Sequence[Any]) -> Vector:
    """NaN for None."""
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _parts(keys: Whole) -> Iterator[Whole]:
    """The rows of each key."""
    order = np.argsort(keys, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(keys) else ()


def _numbered(values: Sequence[Any]) -> tuple[Whole, list[Any]]:
    """A number for each value, and what each number is."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64), list(numbers)


class _Occurrences:
    """The rows of stages, numbered by who, which step and which stage.

    Attributes:
        step_of, member_of: Of each row.
        entered_s, left_s: Since the first of all.
        peers: Of each member.
        places: Attempt, role and rank to members.
    """

    def __init__(self, columns: Columns, hosts: Mapping[int, str]) -> None:
        attempts, roles, ranks = (_of(columns, *part) for part in (("attempt", 0), ("role", ""), ("rank",)))
        names = [name or f"{role}{rank}" for name, role, rank in zip(_of(columns, "process"), roles, ranks)]
        named_hosts = [host or hosts.get(rank, "") for host, rank in zip(_of(columns, "host"), ranks)]
        self.member_of, members = _numbered(
            list(zip(attempts, roles, ranks, named_hosts, names, _of(columns, "place", "")))
        )
        self.peers = [
            Peer(rank, host, f"{name}.{attempt}" if attempt else name, "", role == "controller", place)
            for attempt, role, rank, host, name, place in members
        ]
        self.of_rank = {(role, rank): at for at, (_, role, rank, *_) in enumerate(members)}
        self.step_of, self._steps = _numbered(list(zip(attempts, roles, columns.get("step", []))))
        self._stage_of, self._stages = _numbered(columns.get("stage", []))
        entered = columns.get("entered_ns", [])
        self.began_ns = min(entered, default=0)
        self.entered_s, self.left_s = self.seconds(entered), self.seconds(_of(columns, "left_ns"))
        self._work = [_numbers(_of(columns, name)) for name in _WORK]
        self._waits, self._error_s = _of(columns, "waits_for"), _numbers(_of(columns, "error_ns", 0.0)) / _NS

    def seconds(self, times_ns: Sequence[Any]) -> Vector:
        """Since the first of all; NaN: not known."""
        return _numbers([None if time is None else int(time) - self.began_ns for time in times_ns]) / _NS

    def step(self, rows: Whole, entries: _Entries) -> RoleStep:
        """One step of one role, summed up as its processes would."""
        rows = rows[np.argsort(self.entered_s[rows], kind="stable")]
        members = sorted(set(self.member_of[rows].tolist()), key=lambda at: (self.peers[at].rank or 0, at))
        stage_of, stages = _numbered([self._stages[at] for at in self._stage_of[rows].tolist()])
        place_of = {member: place for place, member in enumerate(members)}
        member_of = np.array([place_of[at] for at in self.member_of[rows].tolist()], np.int64)
        cells, size = member_of * len(stages) + stage_of, (len(members), len(stages))
        took = self.left_s[rows] - self.entered_s[rows]

        def gathered(values: Vector, gather: Any, empty: float = np.nan) -> Vector:
            result = np.full(size[0] * size[1], float(empty))
            gather.at(result, cells, values)
            return result.reshape(size)

        def added(values: Vector) -> Vector:
            there = np.isfinite(values)
            return np.where(gathered(there, np.add, 0) > 0, gathered(np.where(there, values, 0), np.add, 0), np.nan)

        total = added(_alone(cells, self.entered_s[rows], self.left_s[rows]))
        tokens, responses, longest = (values[rows] for values in self._work)
        error_s = np.zeros(len(members))
        np.fmax.at(error_s, member_of, self._error_s[rows])
        _, role, number = self._steps[self.step_of[rows[0]]]
        return RoleStep(
            role, int(number), tuple(self.peers[at] for at in members), tuple(stages),
            gathered(self.entered_s[rows], np.fmin), gathered(self.left_s[rows], np.fmax), total, total.copy(),
            gathered(took, np.fmax), gathered(np.isfinite(took), np.add, 0.0),
            Work(added(tokens), added(responses), gathered(longest, np.fmax)), error_s,
            entries.of_step(int(self.step_of[rows[0]]), members, stages), {}, None,
            {stages[at]: self._waits[row] for at, row in zip(stage_of, rows) if self._waits[row] is not None},
        )  # fmt: skip

    def at(self, members: Whole, times_s: Vector) -> tuple[Whole, list[Any]]:
        """(K,) in which step each member was at that time, -1: before its first; and in which stage, None: in none."""
        order = np.lexsort((self.entered_s, self.member_of))
        span = float(np.nanmax([*self.left_s, *self.entered_s, *times_s, 0.0])) + 1.0
        keys = self.member_of[order] * span + self.entered_s[order]
        before = np.searchsorted(keys, members * span + times_s, side="right") - 1
        step_of, stage_of = np.full(len(members), -1, np.int64), [None] * len(members)
        for at, (row, member, time) in enumerate(zip(before.tolist(), members.tolist(), times_s.tolist())):
            if row < 0 or self.member_of[order[row]] != member:
                continue
            step_of[at] = self.step_of[order[row]]
            # The innermost that is open still; who has ended before it began may lie around it.
            for inside in range(row, max(-1, row - 64), -1):
                if self.member_of[order[inside]] != member:
                    break
                if not self.left_s[order[inside]] < time:
                    step_of[at], stage_of[at] = self.step_of[order[inside]], self._stages[self._stage_of[order[inside]]]
                    break
        return step_of, stage_of


def _alone(cells: Whole, entered_s: Vector, left_s: Vector) -> Vector:
    """How long each occurrence was that alone, but for what lies in those before it; rows are by when they began."""
    order = np.argsort(cells, kind="stable")
    times = np.zeros(len(cells))
    for rows in np.split(order, np.flatnonzero(np.diff(cells[order])) + 1):
        until = np.append(-np.inf, np.fmax.accumulate(left_s[rows])[:-1])
        times[rows] = np.maximum(0.0, left_s[rows] - np.fmax(entered_s[rows], until))
    return times


class _Pair(NamedTuple):
    """Who sends, and who receives."""

    sender: int
    receiver: int


class _Entries:
    """Entries of collectives and what was sent and received, each in the step in which it was."""

    def __init__(
        self, stages: _Occurrences, columns: Columns, hand_overs: Columns, groups: Mapping[Any, Sequence[int]]
    ) -> None:
        who = list(zip(_of(columns, "role", ""), _of(columns, "rank")))
        kinds = _of(columns, "kind", "meet")
        of, entered, left = columns.get("group", []), columns.get("entered_ns", []), _of(columns, "left_ns")
        sequences = _of(columns, "sequence")
        pairs = [_Pair(*ranks) for ranks in zip(_of(hand_overs, "from_rank"), _of(hand_overs, "to_rank"))]
        for side, kind, begun, over in ((0, "send", "sent_ns", "sent_ns"), (1, "receive", "entered_ns", "left_ns")):
            who += [(role, pair[side]) for role, pair in zip(_of(hand_overs, "role", ""), pairs)]
            kinds += [kind] * len(pairs)
            of, entered, left = (
                [*of, *pairs],
                [*entered, *hand_overs.get(begun, [])],
                [*left, *hand_overs.get(over, [])],
            )
            sequences += [None] * len(pairs)
        is_there = [at for at, rank in enumerate(who) if rank in stages.of_rank]
        self._member = np.array([stages.of_rank[who[at]] for at in is_there], np.int64)
        self._entered_s, self._left_s = (stages.seconds([times[at] for at in is_there]) for times in (entered, left))
        self._group, names = _numbered([of[at] for at in is_there])
        ranks_of = [name if isinstance(name, _Pair) else groups.get(name, ()) for name in names]
        self._groups = {number: tuple(ranks) for number, ranks in enumerate(ranks_of) if ranks}
        self._kind = np.array([_KINDS[kinds[at]] for at in is_there], np.int64)
        self._sequence = self._counted([sequences[at] for at in is_there])
        self._step, self._stage = stages.at(self._member, self._entered_s)
        self._rows = {int(self._step[rows[0]]): rows for rows in _parts(self._step)}

    def _counted(self, sequences: list[Any]) -> Whole:
        """As they are said, else which of its member's entries into that group it is."""
        counted = np.zeros(len(sequences), np.int64)
        order = np.lexsort((self._entered_s, self._kind, self._group, self._member))
        keys = np.stack([part[order] for part in (self._member, self._group, self._kind)])
        starts = np.append(True, (np.diff(keys) != 0).any(axis=0))[: len(order)]
        counted[order] = np.arange(len(order)) - np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
        return np.array([at if by_row is None else by_row for by_row, at in zip(sequences, counted.tolist())], np.int64)

    def of_step(self, step: int, members: list[int], stages: list[str]) -> Collectives | None:
        """Those of one step; None: there are none."""
        rows = self._rows.get(step)
        if rows is None:
            return None
        kinds = self._kind[rows]
        return Collectives(
            np.array([members.index(at) for at in self._member[rows].tolist()], np.int64), self._group[rows],
            self._sequence[rows], self._entered_s[rows], self._left_s[rows],
            np.array([stages.index(self._stage[at]) if self._stage[at] in stages else -1 for at in rows], np.int64),
            self._groups, kind=kinds if (kinds != MEET).any() else None,
        )  # fmt: skip
