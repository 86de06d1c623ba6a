"""Tables of occurrences and hand-overs become steps of roles, as a job's own processes hand them over."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Any, Hashable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, TypeVar

import numpy as np

from ..judging.evidence import MEET, RECEIVE, SEND, Collectives, Peer, RoleStep, Work
from ..store.values import group_by

_KINDS = {"meet": MEET, "send": SEND, "receive": RECEIVE}
_WORK = ("tokens", "responses", "longest_response")
_CONTROLLER = "controller"
_NESTED_AT_MOST = 64


class _OccurrenceRow(NamedTuple):
    step: int
    stage: str
    entered_ns: int
    left_ns: int | None = None
    rank: int | None = None
    role: str = ""
    attempt: int = 0
    process: str = ""
    host: str = ""
    place: str = ""
    error_ns: float = 0.0
    tokens: float = np.nan
    responses: float = np.nan
    longest_response: float = np.nan
    waits_for: str | None = None

    @property
    def peer(self) -> Peer:
        name = self.process or f"{self.role}{'' if self.rank is None else self.rank}"
        name += f".{self.attempt}" if self.attempt else ""  # it was started again: another process
        return Peer(self.rank, self.host, name, "", self.role == _CONTROLLER, self.place)


class _Entry(NamedTuple):
    rank: int
    group: Hashable
    entered_ns: int
    left_ns: int | None = None
    role: str = ""
    attempt: int = 0
    sequence: int | None = None
    kind: str = "meet"


class _HandOver(NamedTuple):
    from_rank: int
    to_rank: int
    sent_ns: int
    entered_ns: int
    left_ns: int | None = None
    role: str = ""
    attempt: int = 0


class _Pair(NamedTuple):
    sender: int
    receiver: int


_Row = TypeVar("_Row", _OccurrenceRow, _Entry, _HandOver)
_Step = tuple[int, str, int]  # attempt, role, number
_Located = tuple[_Entry, Optional[str]]  # with the stage in which it was


def steps_of(
    occurrences: Any, hand_overs: Any, collectives: Any, groups: Mapping[Any, Sequence[int]], hosts: Mapping[int, str]
) -> Iterator[RoleStep]:
    """Steps in the order in which they are over."""
    rows = sorted(_rows_of(occurrences, _OccurrenceRow), key=lambda row: row.entered_ns)
    entries = [*_rows_of(collectives, _Entry)]
    for sent in _rows_of(hand_overs, _HandOver):  # each pair and direction is a group of its own
        pair, whose = _Pair(sent.from_rank, sent.to_rank), (sent.role, sent.attempt)
        entries.append(_Entry(pair.sender, pair, sent.sent_ns, sent.sent_ns, *whose, kind="send"))
        entries.append(_Entry(pair.receiver, pair, sent.entered_ns, sent.left_ns, *whose, kind="receive"))
    located, numbers = _locate_entries(rows, entries), dict[Hashable, int]()
    by_step: dict[_Step, list[_OccurrenceRow]] = {}
    for row in rows:
        named = row if row.host else row._replace(host=hosts.get(-1 if row.rank is None else row.rank, ""))
        by_step.setdefault((row.attempt, row.role, row.step), []).append(named)
    steps = []
    for of, in_step in by_step.items():
        step = _make_step(in_step, rows[0].entered_ns)
        met = _make_collectives(step, located.get(of, ()), numbers, groups, rows[0].entered_ns)
        steps.append(step._replace(collectives=met))
    yield from sorted(steps, key=lambda step: float(np.nanmax(np.fmax(step.left_s, step.entered_s))))


def _rows_of(table: Any, kind: type[_Row]) -> Iterator[_Row]:
    """Of rows, or of columns by name; what is None or NaN is not known."""
    if isinstance(table, Mapping):
        table = [dict(zip(table, values)) for values in zip(*table.values())]
    for row in table or ():
        fields = row if isinstance(row, Mapping) else row._asdict()
        values = {name: fields.get(name) for name in kind._fields}
        yield kind(**{name: value for name, value in values.items() if value is not None and value == value})


def _make_step(rows: Sequence[_OccurrenceRow], began_ns: int) -> RoleStep:
    """One step of one role, summed up as its processes would: rows by when they began."""
    peers = sorted({row.peer: None for row in rows}, key=lambda peer: (peer.rank or 0, peer.process))
    stages = list({row.stage: None for row in rows})
    places = {peer: place for place, peer in enumerate(peers)}
    size = (len(peers), len(stages))
    entered, left, total, until = (np.full(size, np.nan) for _ in range(4))
    count, error_s = np.zeros(size), np.zeros(len(peers))
    work = {name: np.full(size, np.nan) for name in _WORK}
    for row in rows:
        at = places[row.peer], stages.index(row.stage)
        begun, over = _as_seconds(row.entered_ns, began_ns), _as_seconds(row.left_ns, began_ns)
        entered[at], left[at] = np.fmin(entered[at], begun), np.fmax(left[at], over)
        error_s[at[0]] = max(error_s[at[0]], row.error_ns / 1e9)
        for name in _WORK:
            both = (work[name][at], getattr(row, name))
            work[name][at] = np.fmax(*both) if name == "longest_response" or np.isnan(both).any() else sum(both)
        if np.isfinite(over):
            alone = max(0.0, over - np.fmax(begun, until[at]))  # what lies in one before it counts once
            total[at], until[at] = np.fmax(total[at], 0.0) + alone, np.fmax(until[at], over)
            count[at] += 1
    return RoleStep(
        rows[0].role, int(rows[0].step), tuple(peers), tuple(stages), entered, left, total, count,
        Work(*work.values()), error_s, None, None,
        {row.stage: row.waits_for for row in rows if row.waits_for is not None},
    )  # fmt: skip


def _as_seconds(time_ns: int | None, began_ns: int) -> float:
    return np.nan if time_ns is None else (time_ns - began_ns) / 1e9


def _locate_entries(rows: Sequence[_OccurrenceRow], entries: Iterable[_Entry]) -> dict[_Step, list[_Located]]:
    """Each entry in the step, and the innermost stage, in which its process was."""
    of_rank = group_by(rows, lambda row: (row.attempt, row.role, row.rank))
    begins = {who: [row.entered_ns for row in of_who] for who, of_who in of_rank.items()}
    located: dict[_Step, list[_Located]] = {}
    seen = Counter[tuple[Any, ...]]()
    for entry in sorted(entries, key=lambda entry: entry.entered_ns):
        who = (entry.attempt, entry.role, entry.rank)
        at = bisect_right(begins.get(who, ()), entry.entered_ns)
        counted = seen[who, entry.group, entry.kind]
        seen[who, entry.group, entry.kind] += 1
        if at:
            before = of_rank[who][max(0, at - _NESTED_AT_MOST) : at]
            around = [row for row in before if row.left_ns is None or row.left_ns >= entry.entered_ns]
            last = (around or before)[-1]
            entry = entry if entry.sequence is not None else entry._replace(sequence=counted)
            in_step = located.setdefault((last.attempt, last.role, last.step), [])
            in_step.append((entry, last.stage if around else None))
    return located


def _make_collectives(
    step: RoleStep, located: Sequence[_Located], numbers: dict[Hashable, int], groups: Mapping[Any, Sequence[int]],
    began_ns: int,
) -> Collectives | None:  # fmt: skip
    if not located:
        return None
    places = {peer.rank: place for place, peer in enumerate(step.members)}
    entries = [entry for entry, _ in located]
    group = np.array([numbers.setdefault(entry.group, len(numbers)) for entry in entries])
    kinds = np.array([_KINDS[entry.kind] for entry in entries])
    names = {entry.group: None for entry in entries}
    ranks = {name: name if isinstance(name, _Pair) else groups.get(name, ()) for name in names}
    return Collectives(
        np.array([places[entry.rank] for entry in entries]), group, np.array([entry.sequence for entry in entries]),
        np.array([_as_seconds(entry.entered_ns, began_ns) for entry in entries]),
        np.array([_as_seconds(entry.left_ns, began_ns) for entry in entries]),
        np.array([-1 if stage is None else step.stages.index(stage) for _, stage in located]),
        {numbers[name]: tuple(of) for name, of in ranks.items() if of}, kind=kinds if (kinds != MEET).any() else None,
    )  # fmt: skip
