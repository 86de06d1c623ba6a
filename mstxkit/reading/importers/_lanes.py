"""Events of a trace or a table, kept in 24 bytes each until it is known which of them count."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from ._json_stream import US, whole_ns
from ._trace import LATEST_NS, LONGEST_NS, NAME_CHARACTERS, NAMES_AT_MOST, CoveredTime, NamedColumn

if TYPE_CHECKING:
    from ._trace import DeviceTrace, NamedStretches, Times

OTHER = "(one name of too many)"
COLLECTIVE = re.compile(r"nccl|hccl|hcom|gloo|xccl|^c10d|record_param_comms|^mpi:", re.IGNORECASE)
_ROWS_AT_ONCE = 1 << 11
_Codes = npt.NDArray[np.int32]


class LaneTimes(NamedTuple):
    """Complete events in the order of the file, ns; -1 where one has no usable time."""

    lanes: _Codes
    names: _Codes
    starts: Times
    ends: Times

    def of(self, chosen: npt.NDArray[np.bool_]) -> LaneTimes:
        """Some of them."""
        return LaneTimes(self.lanes[chosen], self.names[chosen], self.starts[chosen], self.ends[chosen])


class EventTable:
    """Collects complete events.

    Attributes:
        add: Takes one: two keys of its lane, its name, begin and length in microseconds, as they are in the file.
        lanes, names: Numbers of what was added.
        unusable: So many have no usable time.
    """

    def __init__(self) -> None:
        self._raw: list[tuple[Any, Any, Any, Any, Any]] = []
        self._parts: list[LaneTimes] = []
        self.add = self._raw.append
        self.lanes, self.names = Numbers(lambda key: (key_of(key[0]), key_of(key[1]))), Numbers(_shortened)
        self.unusable = self.left_out = 0

    def fold(self, is_over: bool = False) -> None:
        """Call this now and then: what was added is made small."""
        if not self._raw or (len(self._raw) < _ROWS_AT_ONCE and not is_over):
            return
        firsts, seconds, names, begins, lengths = zip(*self._raw)
        self._raw.clear()
        starts, took = _ns_of_all(begins), _ns_of_all(lengths)
        is_usable = (starts >= 0) & (took >= 0) & (took < LONGEST_NS) & (starts < LATEST_NS)
        self.unusable += len(starts) - int(np.count_nonzero(is_usable))
        times = (np.where(is_usable, time, -1) for time in (starts, starts + took))
        self._parts.append(LaneTimes(self.lanes.of(list(zip(firsts, seconds))), self.names.of(names), *times))

    def all(self) -> LaneTimes:
        """All of them."""
        self.fold(is_over=True)
        if not self._parts:
            return LaneTimes(*(np.zeros(0, dtype=np.int32),) * 2, *(np.zeros(0, dtype=np.int64),) * 2)
        lanes, names, starts, ends = map(np.concatenate, zip(*self._parts))
        self._parts = [LaneTimes(lanes, names, starts, ends)]
        return self._parts[0]

    def kinds_of(self, events: LaneTimes) -> _Codes:
        """Of events the first key of their lanes, where that is a number."""
        return np.array([kind for kind, _ in self.lanes.all()], dtype=np.int32)[events.lanes]


class Numbers:
    """A number for each key, in the order in which they come; beyond the limit all are one.
    `shortened`: what a key is kept as.
    """

    def __init__(self, shortened: Callable[[Any], Any]) -> None:
        self._codes: dict[Any, int] = {}
        self._shortened = shortened

    def of(self, keys: Sequence[Any]) -> _Codes:
        """The number of each."""
        try:
            return np.array([self._codes[key] for key in keys], dtype=np.int32)
        except (KeyError, TypeError):
            return np.array([self._code_of(self._shortened(key)) for key in keys], dtype=np.int32)

    def _code_of(self, key: Any) -> int:
        code = self._codes.get(key)
        if code is None:
            key = key if len(self._codes) < NAMES_AT_MOST else self._shortened((OTHER, OTHER))
            code = self._codes.setdefault(key, len(self._codes))
        return code

    def all(self) -> list[Any]:
        """All keys, by number."""
        return list(self._codes)

    def matching(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """For each number: does its name match?"""
        return np.array([bool(pattern.search(name)) for name in self._codes], dtype=bool)


def _shortened(name: Any) -> str:
    return name[:NAME_CHARACTERS] if isinstance(name, str) else OTHER if isinstance(name, tuple) else ""


def _ns_of_all(values: Sequence[Any]) -> Times:
    """Whole ns of microseconds, numbers or texts; -1 where one is neither."""
    us = pl.Series(values, dtype=pl.String, strict=False).cast(pl.Decimal(38, 3), strict=False)
    ns = us.to_physical().cast(pl.Int64, strict=False)  # thousandths
    if ns.null_count():  # polars takes no blanks around a number, and of old no exponent
        ns = pl.Series([whole_ns(value, US) for value in values], dtype=pl.Int64)
    times: Times = ns.fill_null(-1).to_numpy()
    return times


def divide(trace: DeviceTrace, table: EventTable, events: LaneTimes, computing: int, why_lost: str) -> None:
    """Set what a trace has of events whose lane says what they are: kind `computing`, or the next one of collectives,
    which are called by their group, or "".
    """
    names, stretches = table.names.all(), (CoveredTime(), CoveredTime())
    kinds = table.kinds_of(events)
    for kind, covered in enumerate(stretches, computing):
        mine = events.of(kinds == kind)
        covered.extend(mine.starts, mine.ends)
    trace.computing, trace.communicating = (covered.told() for covered in stretches)
    has_group = np.array([bool(name) for name in names], dtype=bool)[events.names]
    trace.operations = named(names, events.of((kinds == computing + 1) & has_group))
    trace.lose(why_lost, table)


def named(names: Sequence[str], events: LaneTimes) -> NamedStretches:
    """LaneTimes by what they are called."""
    column = NamedColumn()
    for code, start, end in zip(events.names.tolist(), events.starts.tolist(), events.ends.tolist()):
        column.add(names[code], start, end)  # what has no time is left out, and was counted before
    return column.all()


def key_of(value: Any) -> str | int:
    """A process or thread as a key, whatever it is in the file."""
    return value if isinstance(value, int) else value[:NAME_CHARACTERS] if isinstance(value, str) else ""
