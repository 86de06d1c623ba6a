"""Events of a trace or a table, kept in 24 bytes each until it is known which of them count."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from ._json_stream import US, whole_ns
from ._trace import NAME_CHARACTERS, NAMES_AT_MOST, CoveredTime, NamedStretches, are_usable

if TYPE_CHECKING:
    from ._trace import DeviceTrace, Times

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

    def called(self, names: Sequence[str | None]) -> NamedStretches:
        """By their names, one for each number; those of None are left out."""
        return NamedStretches.of(names, self.names, self.starts, self.ends)


def ns_of_us(values: Sequence[Any]) -> Times:
    """Whole ns of microseconds, numbers or texts; -1 where one is neither."""
    us = pl.Series(values, dtype=pl.String, strict=False).cast(pl.Decimal(38, 3), strict=False)
    ns = us.to_physical().cast(pl.Int64, strict=False)  # thousandths
    if ns.null_count():  # polars takes no blanks around a number, and of old no exponent
        ns = pl.Series([whole_ns(value, US) for value in values], dtype=pl.Int64)
    times: Times = ns.fill_null(-1).to_numpy()
    return times


def plain_ns(values: Sequence[Any]) -> Times:
    """Times that are whole ns already."""
    return np.array(values, dtype=np.int64)


_NO_EVENTS = LaneTimes(*(np.zeros(0, dtype=np.int32),) * 2, *(np.zeros(0, dtype=np.int64),) * 2)


class EventTable:
    """Collects complete events. `times_of`: what makes whole ns of begins and lengths, -1 of what is no time.

    Attributes:
        add: Takes one: two keys of its lane, its name, begin and length in microseconds, as they are in the file.
        lanes, names: Numbers of what was added.
        unusable: So many have no usable time.
    """

    def __init__(self, times_of: Callable[[Sequence[Any]], Times] = ns_of_us) -> None:
        self._raw: list[tuple[Any, Any, Any, Any, Any]] = []
        self._parts: list[LaneTimes] = []
        self.add, self._times_of = self._raw.append, times_of
        self.lanes, self.names = Numbers(lambda key: (key_of(key[0]), key_of(key[1]))), Numbers(_shorten_name)
        self.unusable = 0

    def fold(self, is_over: bool = False) -> None:
        """Call this now and then: what was added is made small."""
        if not self._raw or (len(self._raw) < _ROWS_AT_ONCE and not is_over):
            return
        firsts, seconds, names, begins, lengths = zip(*self._raw)
        self._raw.clear()
        starts, took = self._times_of(begins), self._times_of(lengths)
        is_usable = (took >= 0) & are_usable(starts, starts + took)
        self.unusable += len(starts) - int(np.count_nonzero(is_usable))
        times = (np.where(is_usable, time, -1) for time in (starts, starts + took))
        self._parts.append(LaneTimes(self.lanes.of(list(zip(firsts, seconds))), self.names.of(names), *times))

    def all(self, base_ns: int = 0) -> LaneTimes:
        """All of them, of times after this one; at the end, once."""
        self.fold(is_over=True)
        lanes, names, *both = map(np.concatenate, zip(_NO_EVENTS, *self._parts))
        self._parts = []
        starts, ends = (np.where(times < 0, -1, times + base_ns) if base_ns else times for times in both)
        return LaneTimes(lanes, names, starts, ends)

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
        codes, numbers = self._codes, []
        try:
            return np.array([codes[key] for key in keys], dtype=np.int32)
        except (KeyError, TypeError):
            pass
        for key in map(self._shortened, keys):
            if key not in codes and len(codes) >= NAMES_AT_MOST:
                key = self._shortened((OTHER, OTHER))
            numbers.append(codes.setdefault(key, len(codes)))
        return np.array(numbers, dtype=np.int32)

    def all(self) -> list[Any]:
        """All keys, by number."""
        return list(self._codes)

    def matching(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """For each number: does its name match?"""
        return np.array([bool(pattern.search(name or "")) for name in self._codes], dtype=bool)


def _shorten_name(name: Any) -> str | None:
    return name[:NAME_CHARACTERS] if isinstance(name, str) else OTHER if isinstance(name, tuple) else None


def divide_time(trace: DeviceTrace, table: EventTable, events: LaneTimes, why_lost: str, **kinds: int) -> None:
    """Set these of a trace, each of the events whose lane has this kind as its first key; single collectives are called
    by their group.
    """
    names, of_events = table.names.all(), table.kinds_of(events)
    for what, kind in kinds.items():
        mine = events.of(of_events == kind)
        is_called = what in ("operations", "ranges")
        setattr(trace, what, mine.called(names) if is_called else CoveredTime(mine.starts, mine.ends).told())
    trace.lose(why_lost, count=table.unusable)


def key_of(value: Any) -> str | int:
    """A process or thread as a key, whatever it is in the file."""
    return value if isinstance(value, int) else value[:NAME_CHARACTERS] if isinstance(value, str) else ""
