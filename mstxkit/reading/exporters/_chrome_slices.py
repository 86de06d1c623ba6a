"""The ranges and marks of a run as Chrome trace events, each on its track or on a line beside it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Iterator

from ..lines import OPEN_NS, Drawn, Line, TrackLines
from ..suspended import Suspended
from ._chrome_events import Events, RangeRow

if TYPE_CHECKING:
    import polars as pl

_MARK_FIELDS = ("process", "track", "depth", "domain", "message", "time_ns", "step", "stage", "attributes")


class Slices:
    """Takes all ranges of a run backwards, open ones first; gives their events, process by process.

    What it keeps: the open ranges, and of the process at hand what encloses the present moment.
    """

    def __init__(self, events: Events, suspended: Suspended) -> None:
        self._events, self._suspended = events, suspended
        self._open: dict[int, list[RangeRow]] = {}
        self._process = -1
        self._tracks: dict[int, TrackLines] = {}
        self._numbers = count(1)

    def take(self, ranges: pl.DataFrame, marks: pl.DataFrame) -> Iterator[str]:
        """The events of the next ranges and marks, and of earlier ones."""
        waiting = list(rows_of_marks(marks.reverse()))
        for row in rows_of(ranges):
            if row.duration_ns is None:
                self._open.setdefault(row.process, []).append(row)
            elif row.is_coalesced:  # it may lie a second later than its end
                yield from self._alone(row)
            else:
                end_ns = row.start_ns + row.duration_ns
                while waiting and (-waiting[-1].process, end_ns) < (-row.process, waiting[-1].start_ns):
                    yield from self._draw_mark(waiting.pop())
                yield from self._draw(row, end_ns, row.busy_ns is not None)
        while waiting:
            yield from self._draw_mark(waiting.pop())

    def finish(self) -> Iterator[str]:
        """What is left when there are no more."""
        yield from self._finish()
        for process in list(self._open):
            self._process = process
            yield from self._draw_open(process)
            yield from self._finish()

    def _finish(self) -> Iterator[str]:
        for lines in self._tracks.values():
            yield from lines.leave(None)
        self._tracks = {}

    def _draw_open(self, process: int) -> Iterator[str]:
        for row in sorted(self._open.pop(process, ()), key=lambda row: (row.start_ns, row.depth)):
            self._suspended.see(row.process, row.track, row.depth, row.start_ns)
            yield from self._draw(row, OPEN_NS, False)

    def _lines(self, row: RangeRow) -> Iterator[str]:
        """Have the lines of its track."""
        if row.process != self._process:
            yield from self._finish()
            self._process = row.process
            yield from self._draw_open(row.process)
        if row.track not in self._tracks:
            self._tracks[row.track] = TrackLines()

    def _draw_mark(self, row: RangeRow) -> Iterator[str]:
        yield from self._lines(row)
        drawn = Drawn(row.start_ns, row.start_ns, row.depth)
        yield from self._tracks[row.track].leave(drawn)
        if self._tracks[row.track].put_mark(drawn):
            drawn.begin = (self._events.mark(row, drawn.line.number, drawn.line.domain),)
        else:
            yield self._events.mark_on_track(row)

    def _draw(self, row: RangeRow, end_ns: int, is_driven: bool) -> Iterator[str]:
        yield from self._lines(row)
        lines = self._tracks[row.track]
        drawn = Drawn(row.start_ns, end_ns, row.depth)
        yield from lines.leave(drawn)
        is_apart = self._suspended.has(row.process, row.track, row.depth, row.start_ns)
        line = lines.put(drawn, is_driven, is_apart, lambda: Line(next(self._numbers), row.domain, is_apart))
        if line.number:
            yield from self._beside(row, drawn, line)
        else:
            yield self._events.on_track(row)

    def _beside(self, row: RangeRow, drawn: Drawn, line: Line) -> Iterator[str]:
        drawn.begin = (self._events.begin(row, line.number, line.domain),)
        if drawn.end == OPEN_NS:
            return
        end = self._events.end(row, line.number, line.domain)
        if drawn.start < drawn.end:
            yield end
        else:
            drawn.begin += (end,)

    def _alone(self, row: RangeRow) -> Iterator[str]:
        number = next(self._numbers)
        yield self._events.begin(row, number, row.domain)
        yield self._events.end(row, number, row.domain)


def rows_of(ranges: pl.DataFrame) -> Iterator[RangeRow]:
    """The rows of a frame of ranges."""
    return map(RangeRow._make, zip(*(ranges[field].to_list() for field in RangeRow._fields)))


def rows_of_marks(marks: pl.DataFrame) -> Iterator[RangeRow]:
    """The rows of a frame of marks."""
    for process, track, depth, domain, message, time_ns, step, stage, attributes in zip(
        *(marks[field].to_list() for field in _MARK_FIELDS)
    ):
        yield RangeRow(process, track, depth, domain, message, time_ns, None, None, step, stage, None, attributes)
