"""The ranges and marks of a run as events of a trace, each on its track or on a line beside it, one by one."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Protocol

from ..lines import OPEN_NS, Drawn, Line, TrackLines
from ..suspended import Suspended
from ._chrome_events import RangeRow

if TYPE_CHECKING:
    import polars as pl

_MARK_FIELDS = ("process", "track", "depth", "domain", "message", "time_ns", "step", "stage", "attributes")


class Drawing(Protocol):
    """Makes the events of a format. `is_whole`: a range on its track is one event, `on_track`, and no begin and end."""

    is_whole: bool

    def on_track(self, row: RangeRow) -> Any:
        """A range on its track."""

    def begin(self, row: RangeRow, line: int, domain: str) -> Any:
        """The begin of a range on a line; line 0 is its track."""

    def end(self, row: RangeRow, line: int, domain: str) -> Any:
        """Its end."""

    def mark_on_track(self, row: RangeRow) -> Any:
        """An instant on its track."""

    def mark(self, row: RangeRow, line: int, domain: str) -> Any:
        """An instant on a line beside the track."""


class Slices:
    """Takes all ranges of a run backwards, open ones first; gives their events, process by process.

    What it keeps: the open ranges, and of the process at hand what encloses the present moment.
    """

    def __init__(self, events: Drawing, suspended: Suspended) -> None:
        self._events, self._suspended = events, suspended
        self._open: dict[int, list[RangeRow]] = {}
        self._process = -1
        self._tracks: dict[int, TrackLines] = {}
        self._numbers = count(1)

    def take(self, ranges: Iterable[RangeRow], marks: Iterable[RangeRow]) -> Iterator[Any]:
        """The events of the next ranges and marks, both from the last to the first, and of earlier ones."""
        waiting = list(marks)[::-1]
        for row in ranges:
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

    def finish(self) -> Iterator[Any]:
        """What is left when there are no more."""
        yield from self._finish()
        for process in list(self._open):
            self._process = process
            yield from self._draw_open(process)
            yield from self._finish()

    def _finish(self) -> Iterator[Any]:
        for lines in self._tracks.values():
            yield from lines.leave(None)
        self._tracks = {}

    def _draw_open(self, process: int) -> Iterator[Any]:
        for row in sorted(self._open.pop(process, ()), key=lambda row: (row.start_ns, row.depth)):
            self._suspended.see(row.process, row.track, row.depth, row.start_ns)
            yield from self._draw(row, OPEN_NS, False)

    def _lines(self, row: RangeRow) -> Iterator[Any]:
        """Have the lines of its track."""
        if row.process != self._process:
            yield from self._finish()
            self._process = row.process
            yield from self._draw_open(row.process)
        if row.track not in self._tracks:
            self._tracks[row.track] = TrackLines()

    def _draw_mark(self, row: RangeRow) -> Iterator[Any]:
        yield from self._lines(row)
        drawn = Drawn(row.start_ns, row.start_ns, row.depth)
        yield from self._tracks[row.track].leave(drawn)
        if self._tracks[row.track].put_mark(drawn):
            drawn.begin = (self._events.mark(row, drawn.line.number, drawn.line.domain),)
        else:
            yield self._events.mark_on_track(row)

    def _draw(self, row: RangeRow, end_ns: int, is_driven: bool) -> Iterator[Any]:
        yield from self._lines(row)
        lines = self._tracks[row.track]
        drawn = Drawn(row.start_ns, end_ns, row.depth)
        yield from lines.leave(drawn)
        is_apart = self._suspended.has(row.process, row.track, row.depth, row.start_ns)
        line = lines.put(drawn, is_driven, is_apart, lambda: Line(next(self._numbers), row.domain, is_apart))
        if self._events.is_whole and not line.number:
            yield self._events.on_track(row)
        else:
            yield from self._beside(row, drawn, line)

    def _beside(self, row: RangeRow, drawn: Drawn, line: Line) -> Iterator[Any]:
        drawn.begin = (self._events.begin(row, line.number, line.domain),)
        if drawn.end == OPEN_NS:
            return
        end = self._events.end(row, line.number, line.domain)
        if drawn.start < drawn.end:
            yield end
        else:
            drawn.begin += (end,)

    def _alone(self, row: RangeRow) -> Iterator[Any]:
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
