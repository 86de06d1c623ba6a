"""Which range is inside of which, for whole pieces of a run at once.

The ranges of a thread come in the order in which they ended, each with its depth. That is a tree in postorder: the
range that ends next and is no deeper is after, what lies between the two is inside. So times are not needed to draw
it; they only prove that it is right. Where they contradict (coroutines and generators that others ran beside, ranges
that ended out of order), the whole lane is drawn range by range (`perfetto.LaneEvents`).

A lane is a track of a process, as one number: `process << 16 | track`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..rows import IS_MARK, IS_OPEN

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]
TRACK_BITS = 16
NONE = -1


class RowPiece(NamedTuple):
    """Rows of some lanes, by lane, in the order in which they ended; those without an end in the piece are last.

    Args:
        columns: Of each row; among them `lane`, `depth`, `start`, `end`, `flags`.
        is_new: Does it end in this piece? Else it ended in a later one, or is open.
        before: The place of the range that ended last before it began; NONE where that is none of its lane here.
        is_left: Is it not known yet what is before it, as that lies in an earlier piece?
    """

    columns: Columns
    is_new: Bits
    before: Ints
    is_left: Bits


class Postorder:
    """Takes a run's rows piece by piece, backwards, and keeps those of which the begin is still to come.

    That is one for each range around the first moment of a piece: 256 a lane at most.
    """

    def __init__(self) -> None:
        self._waiting: Columns | None = None

    def take(self, rows: Columns, first_process: int) -> RowPiece | None:
        """The next rows, with those that wait for them; of open ranges, which come first, outermost first: none yet.
        `rows`: in the order in which they ended; marks too, which are inside of what is around them; `first_process`:
        nothing of later processes is still to come.
        """
        if len(rows["flags"]) and rows["flags"][0] & IS_OPEN:
            order = np.lexsort((-rows["depth"].astype(np.int64), rows["lane"]))
            self._keep_waiting({name: values[order] for name, values in rows.items()})
            return None
        piece = self._join_rows(rows, first_process)
        if piece is not None:
            self._keep_waiting({name: values[piece.is_left] for name, values in piece.columns.items()})
        return piece

    def finish(self) -> RowPiece | None:
        """What waits when there are no more rows."""
        if self._waiting is None:
            return None
        return self._join_rows({name: values[:0] for name, values in self._waiting.items()}, NONE)

    def _join_rows(self, rows: Columns, first_process: int) -> RowPiece | None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            is_earlier = waiting["lane"] >> TRACK_BITS < first_process
            if is_earlier.any():
                self._keep_waiting({name: values[is_earlier] for name, values in waiting.items()})
                waiting = {name: values[~is_earlier] for name, values in waiting.items()}
        new = len(rows["lane"])
        if waiting is not None and len(waiting["lane"]):
            rows = {name: np.concatenate((values, waiting[name])) for name, values in rows.items()}
        if not len(rows["lane"]):
            return None
        order, columns = np.arange(len(rows["lane"])), rows
        if (rows["lane"][1:] < rows["lane"][:-1]).any():
            order = np.argsort(rows["lane"], kind="stable")
            columns = {name: values[order] for name, values in rows.items()}
        before = last_no_deeper(columns["lane"], columns["depth"])
        is_left = (before == NONE) & (columns["lane"] >> TRACK_BITS <= first_process) & ~is_mark(columns)
        return RowPiece(columns, order < new, before, is_left)

    def _keep_waiting(self, rows: Columns) -> None:
        if self._waiting is not None:
            rows = {name: np.concatenate((self._waiting[name], values)) for name, values in rows.items()}
        self._waiting = rows if len(rows["lane"]) else None


def is_mark(columns: Columns) -> Bits:
    """Which rows are instants, without a begin."""
    return np.asarray(columns["flags"] & IS_MARK != 0)


def last_no_deeper(lane: Ints, depth: npt.NDArray[Any]) -> Ints:
    """For each row the place of the last one before it, of its lane, that is no deeper; NONE where there is none.

    *Shape*: (rows,), rows by lane. *Cost*: grows with the number of different depths.
    """
    place = np.arange(len(lane))
    before, deeper = place - 1, 1 + np.flatnonzero(depth[1:] < depth[:-1])  # for all others it is the one before
    for level in np.unique(depth[deeper]):
        at = deeper[depth[deeper] == level]
        before[at] = np.maximum.accumulate(np.where(depth <= level, place, NONE))[at - 1]
    before[before < _first_of_lane(lane)] = NONE
    return before


def next_shallower(lane: Ints, depth: npt.NDArray[Any]) -> Ints:
    """For each row the place of the first one after it, of its lane, that is less deep: what is around it; or NONE."""
    count = len(lane)
    place, around = np.arange(count), np.full(count, count)
    for level in np.unique(depth):
        at = np.flatnonzero(depth == level)
        following = np.minimum.accumulate(np.where(depth < level, place, count)[::-1])[::-1]
        around[at] = following[at]
    around[around > count - 1 - _first_of_lane(lane[::-1])[::-1]] = NONE
    return around


def _first_of_lane(lane: Ints) -> Ints:
    is_first = np.ones(len(lane), dtype=bool)
    is_first[1:] = lane[1:] != lane[:-1]
    return np.maximum.accumulate(np.where(is_first, np.arange(len(lane)), 0))


def find_contradicting(piece: RowPiece | None) -> Ints:
    """The lanes of which the times do not agree with the depths."""
    if piece is None:
        return np.zeros(0, dtype=np.int64)
    lane, start, end = (piece.columns[name] for name in ("lane", "start", "end"))
    around = next_shallower(lane, piece.columns["depth"])
    is_wrong = (piece.before != NONE) & (start < end[piece.before])
    is_wrong |= (around != NONE) & ((start < start[around]) | (end > end[around]))
    is_wrong[1:] |= (lane[1:] == lane[:-1]) & (end[1:] < end[:-1]) & piece.is_new[1:]
    is_wrong |= start > end
    return np.unique(lane[is_wrong])


def in_order(piece: RowPiece) -> tuple[Ints, Bits]:
    """The begins and ends of a piece as they followed each other, lane by lane.

    Returns:
        (events,) the row of each, and whether it is its begin. A begin that waits for an earlier piece is left out, the
        end that a later one had, too.
    """
    count = len(piece.before)
    rows = np.arange(count)
    begins, ends = rows[~piece.is_left & ~is_mark(piece.columns)], rows[piece.is_new]
    first = _first_of_lane(piece.columns["lane"])
    before = np.where(piece.before == NONE, first - 1, piece.before)[begins]
    # After each end come the begins that follow it: of several the outermost, which ended last, first.
    keys = np.concatenate(((before + 1) * (count + 1) + count - begins, (ends + 1) * (count + 1)))
    order = np.argsort(keys)
    return np.concatenate((begins, ends))[order], order < len(begins)
