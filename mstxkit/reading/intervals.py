"""Stretches of time that do not touch each other, in order: unions, intersections and how much of one is in another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Begins and ends, ns, sorted; each ends before the next one begins."""

    starts: Times
    ends: Times

    @property
    def total_ns(self) -> int:
        """Length of all together."""
        return int((self.ends - self.starts).sum())

    def inside(self, starts: Times, ends: Times) -> Times:
        """How much of them lies in each of these stretches."""
        return self._length_until(ends) - self._length_until(starts)

    def _length_until(self, times: Times) -> Times:
        """How much of them lies before each of these times."""
        if not len(self.starts):
            return np.zeros_like(times)
        lengths = np.cumsum(self.ends - self.starts)
        place = np.searchsorted(self.starts, times, side="right") - 1
        whole = lengths[place] - np.maximum(self.ends[place] - times, 0)
        return np.where(place >= 0, whole, 0)

    def reach(self, starts: Times, ends: Times) -> tuple[Times, Times]:
        """The first and the last time in each of these stretches that is theirs; where none is, its begin."""
        has_any = self.inside(starts, ends) > 0
        begins, stops = np.append(self.starts, 0), np.append(self.ends, 0)
        first = np.maximum(begins[np.searchsorted(self.ends, starts, side="right")], starts)
        last = np.minimum(stops[np.searchsorted(self.starts, ends, side="left") - 1], ends)
        return np.where(has_any, first, starts), np.where(has_any, last, starts)

    def cut(self, others: Intervals) -> Intervals:
        """What lies in both."""
        if not len(self.starts) or not len(others.starts):
            return Intervals(self.starts[:0], self.ends[:0])
        begins = np.concatenate((self.starts[others._holds(self.starts)], others.starts[self._holds(others.starts)]))
        begins.sort(kind="stable")  # two runs in order: merged; numpy's own union hashes, which takes ten times as long
        begins = begins[np.append(True, begins[1:] != begins[:-1])[: len(begins)]]
        return Intervals(begins, np.minimum(self._end_at(begins), others._end_at(begins)))

    def without(self, others: Intervals) -> Intervals:
        """What lies in these only."""
        first, last = self.starts[:1], self.ends[-1:]
        gaps = Intervals(np.concatenate((first, others.ends)), np.concatenate((others.starts, last)))
        return self.cut(join_stretches(*gaps))

    def _holds(self, times: Times) -> npt.NDArray[np.bool_]:
        place = np.searchsorted(self.starts, times, side="right") - 1
        return (place >= 0) & (times < self.ends[place])

    def _end_at(self, times: Times) -> Times:
        return self.ends[np.searchsorted(self.starts, times, side="right") - 1]


def join_stretches(starts: Any, ends: Any) -> Intervals:
    """The time that any of these stretches covers, in whatever order they are; empty ones are left out."""
    begins, stops = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    order = np.argsort(begins, kind="stable")
    begins, stops = begins[order], stops[order]
    begins, stops = begins[stops > begins], stops[stops > begins]
    if not len(begins):
        return Intervals(begins, stops)
    covered = np.maximum.accumulate(stops)
    is_first = np.append(True, begins[1:] > covered[:-1])
    return Intervals(begins[is_first], covered[np.append(np.flatnonzero(is_first)[1:] - 1, len(begins) - 1)])


def sum_by_place(values: Times, places: Times, count: int) -> Times:
    """The sums of the values that have the same place, of so many places."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, places, values)
    return sums


def new_in_groups(is_first: npt.NDArray[np.bool_], starts: Times, ends: Times) -> Times:
    """How much of each stretch none before it in its group covers; their sum is the union of the group.
    `is_first`: does a group begin here? Groups lie one after the other, each sorted by start.
    """
    count = len(starts)
    if is_first.all():
        return np.asarray(np.maximum(ends - starts, 0))
    # Places instead of times: with its group's number above it, a place still fits 64 bits.
    by_end = np.argsort(ends, kind="stable")
    place = np.empty(count, dtype=np.int64)
    place[by_end] = np.arange(count)
    group = (np.cumsum(is_first) - 1) * count
    latest = np.maximum.accumulate(place + group) - group
    covered = np.concatenate(([0], ends[by_end][latest][:-1]))
    new: Times = np.maximum(ends - np.where(is_first, starts, np.maximum(starts, covered)), 0)
    return new
