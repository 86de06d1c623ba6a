"""Lanes whose ranges nest, drawn for Perfetto a piece of a run at a time."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import numpy.typing as npt

from ..rows import IS_ERROR, IS_MARK
from ..vocabulary import Vocabulary
from . import _nesting
from . import _track_events as events
from ._nesting import TRACK_BITS, Columns, Ints, Postorder, RowPiece
from ._packets import CATEGORIES, NAMES, TEXTS, Packets, TraceNames
from ._places import Places


class EvenLanes:
    """Draws lanes that nest, backwards; keeps what is around the present moment, and what belongs to that very instant.

    Viewers sort events by time, and keep those of one instant in the order of the file. So what begins a piece waits
    until the earlier piece is written: something there may end, or begin, at the same instant. `first_ns`: the trace's
    zero.
    """

    def __init__(
        self, packets: Packets, names: TraceNames, places: Places, vocabulary: Vocabulary, first_ns: int
    ) -> None:
        self._packets, self._names, self._places = packets, names, places
        self._vocabulary, self._first_ns = vocabulary, first_ns
        self._nesting = Postorder()
        self._held: dict[int, bytes] = {}
        self._tails: dict[int, bytes] = {}
        self._last_tail = 0
        self._of_site = np.zeros((2, 0), dtype=np.int64)
        self._of_stage = np.zeros(0, dtype=np.int64)

    def tail(self, content: bytes) -> int:
        """The number of what an event is to end in; it is used once."""
        self._last_tail += 1
        self._tails[self._last_tail] = content
        return self._last_tail

    def take(self, rows: Columns, first_process: int) -> None:
        """Rows as `Postorder.take` has them, with `site`, `stage`, `step`, `busy` and `tail`."""
        self._draw_piece(self._nesting.take(rows, first_process), first_process)

    def finish(self) -> None:
        """What is left when there are no more."""
        self._draw_piece(self._nesting.finish(), _nesting.NONE)
        for packets in self._held.values():
            self._packets.add(packets)
        self._held = {}

    def _learn_names(self) -> None:
        sites, stages = self._vocabulary.sites, self._vocabulary.stages
        new = [
            (self._names.number(NAMES, s.name), self._names.number(CATEGORIES, s.domain))
            for s in sites[self._of_site.shape[1] :]
        ]
        if new:
            self._of_site = np.concatenate((self._of_site, np.array(new).T), axis=1)
        more = [0 if stage is None else self._names.number(TEXTS, stage) for stage in stages[len(self._of_stage) :]]
        self._of_stage = np.concatenate((self._of_stage, np.array(more, dtype=np.int64)))

    def _draw_piece(self, piece: RowPiece | None, first_process: int) -> None:
        self._learn_names()
        if piece is None:
            return
        columns = piece.columns
        row, is_begin = _nesting.in_order(piece)
        if not len(row):
            return
        process, lanes = columns["lane"] >> TRACK_BITS, columns["lane"][row]
        for begin, end in runs_of(process):
            sites, stages = (np.flatnonzero(np.bincount(columns[name][begin:end])) for name in ("site", "stage"))
            used = [*self._of_site[:, sites].ravel().tolist(), *self._of_stage[stages].tolist()]
            self._names.tell(self._places.sequence(int(process[begin])), used)
        at = np.where(is_begin, columns["start"][row], columns["end"][row]) - self._first_ns
        made = self._encode_events(columns, row, is_begin, at)
        tails_used = columns["tail"][row][is_begin | (columns["flags"][row] & IS_MARK != 0)]
        for tail in tails_used[tails_used != 0].tolist():
            self._tails.pop(tail, None)
        self._add_packets(lanes, at, *made, first_process)

    def _encode_events(
        self, columns: Columns, row: Ints, is_begin: npt.NDArray[np.bool_], at: Ints
    ) -> tuple[memoryview, npt.NDArray[np.int64]]:
        lane, flags, site = columns["lane"], columns["flags"], columns["site"]
        lanes, places = np.unique(lane, return_inverse=True)
        tracks = np.array([self._places.of_lane(each) for each in lanes.tolist()], dtype=np.int64)
        ends = np.where(flags & IS_MARK != 0, events.INSTANT, events.END)
        by_row = {
            "sequence": (lane >> TRACK_BITS) + self._places.sequence(0),
            "track": tracks[places],
            "name": self._of_site[0][site], "category": self._of_site[1][site],
            "stage": self._of_stage[columns["stage"]], "step": columns["step"],
            "error": flags & IS_ERROR, "busy": columns["busy"], "tail": columns["tail"],
        }  # fmt: skip
        kind = np.where(is_begin, events.BEGIN, ends[row])
        return events.encode_events({"kind": kind, "at": at, "row": row}, by_row, self._tails)

    def _add_packets(
        self, lanes: Ints, at: Ints, packets: memoryview, offsets: npt.NDArray[np.int64], first_process: int
    ) -> None:
        """Write them, but for what is of the first instant of a lane that goes on."""
        going_on = int(np.searchsorted(lanes >> TRACK_BITS, first_process, "right"))
        for begin, end in runs_of(lanes[:going_on]):
            lane = int(lanes[begin])
            first = begin + int(np.searchsorted(at[begin:end], at[begin], "right"))
            late = self._held.pop(lane, b"")
            earliest = bytes(packets[offsets[begin] : offsets[first]])
            if first < end:
                self._packets.add(packets[offsets[first] : offsets[end]])
                self._packets.add(late)
                late = b""
            self._held[lane] = earliest + late
        if going_on < len(lanes):
            self._packets.add(packets[offsets[going_on] :])
        for lane in [lane for lane in self._held if lane >> TRACK_BITS > first_process]:
            self._packets.add(self._held.pop(lane))


def runs_of(values: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Where runs of equal values begin and end."""
    if len(values):
        changes = np.flatnonzero(values[1:] != values[:-1]) + 1
        edges = [0, *changes.tolist(), len(values)]
        yield from zip(edges, edges[1:])


def rows_of(piece: Any, columns: Columns) -> Columns:
    """The columns of a compact frame that are drawn, beside those of its nesting; no tails yet."""
    more = {name: piece[name].to_numpy() for name in ("site", "stage", "step")}
    return {**columns, **more, "busy": piece["busy_ns"].fill_null(events.NO_BUSY).to_numpy()}
