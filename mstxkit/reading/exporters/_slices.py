"""The ranges and marks of a run as events of a trace, each on its track or on a line beside it, one by one."""

from __future__ import annotations

from itertools import count
from typing import Any, Iterable, Iterator, NamedTuple, Protocol

import polars as pl

from ...store.records import NO_STEP
from ..attributes import COALESCED
from ..lines import OPEN_NS, Drawn, Line, Suspended, TrackLines
from ..rows import IS_ERROR, IS_MARK, IS_OPEN
from ..vocabulary import Vocabulary

_TRACK = Line(0, "")
_COLUMNS = ("process", "track", "depth", "site", "start_ns", "duration_ns", "busy_ns", "step", "stage", "flags")


class RangeRow(NamedTuple):
    """What is drawn of a range or mark. `duration_ns`: None of what is open; `stage`: its key."""

    process: int
    track: int
    depth: int
    domain: str
    name: str
    start_ns: int
    duration_ns: int | None
    busy_ns: int | None
    step: int | None
    stage: str | None
    error: bool | None
    attributes: str | None

    @property
    def is_coalesced(self) -> bool:
        """Does it stand for several calls?"""
        return self.attributes is not None and self.attributes.startswith(COALESCED)


class Drawing(Protocol):
    """Makes the events of a format; line 0 is the track itself."""

    def on_track(self, row: RangeRow) -> Any:
        """A range on its track as one event; None where it is a begin and an end there too."""

    def begin(self, row: RangeRow, line: Line) -> Any:
        """The begin of a range on a line."""

    def end(self, row: RangeRow, line: Line) -> Any:
        """Its end."""

    def mark(self, row: RangeRow, line: Line) -> Any:
        """An instant on a line."""


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
                line = Line(next(self._numbers), row.domain)
                yield self._events.begin(row, line)
                yield self._events.end(row, line)
            else:
                end_ns = row.start_ns + row.duration_ns
                while waiting and (-waiting[-1].process, end_ns) < (-row.process, waiting[-1].start_ns):
                    yield from self._draw_mark(waiting.pop())
                yield from self._draw_row(row, end_ns, row.busy_ns is not None)
        while waiting:
            yield from self._draw_mark(waiting.pop())

    def finish(self) -> Iterator[Any]:
        """What is left when there are no more."""
        yield from self._finish_tracks()
        for process in list(self._open):
            self._process = process
            yield from self._draw_open(process)
            yield from self._finish_tracks()

    def _finish_tracks(self) -> Iterator[Any]:
        for lines in self._tracks.values():
            yield from lines.leave(None)
        self._tracks = {}

    def _draw_open(self, process: int) -> Iterator[Any]:
        for row in sorted(self._open.pop(process, ()), key=lambda row: (row.start_ns, row.depth)):
            self._suspended.see(row.process, row.track, row.depth, row.start_ns)
            yield from self._draw_row(row, OPEN_NS, False)

    def _lines_of(self, row: RangeRow) -> Iterator[Any]:
        """Have the lines of its track."""
        if row.process != self._process:
            yield from self._finish_tracks()
            self._process = row.process
            yield from self._draw_open(row.process)
        if row.track not in self._tracks:
            self._tracks[row.track] = TrackLines()

    def _draw_mark(self, row: RangeRow) -> Iterator[Any]:
        yield from self._lines_of(row)
        drawn = Drawn(row.start_ns, row.start_ns, row.depth)
        yield from self._tracks[row.track].leave(drawn)
        if self._tracks[row.track].put_mark(drawn):
            drawn.begin = (self._events.mark(row, drawn.line),)
        else:
            yield self._events.mark(row, _TRACK)

    def _draw_row(self, row: RangeRow, end_ns: int, is_driven: bool) -> Iterator[Any]:
        yield from self._lines_of(row)
        lines = self._tracks[row.track]
        drawn = Drawn(row.start_ns, end_ns, row.depth)
        yield from lines.leave(drawn)
        is_apart = self._suspended.has(row.process, row.track, row.depth, row.start_ns)
        line = lines.put(drawn, is_driven, is_apart, lambda: Line(next(self._numbers), row.domain, is_apart))
        whole = None if line.number else self._events.on_track(row)
        if whole is not None:
            yield whole
            return
        drawn.begin = (self._events.begin(row, line),)
        if drawn.end != OPEN_NS:
            end = self._events.end(row, line)
            if drawn.start < drawn.end:
                yield end
            else:
                drawn.begin += (end,)


def rows_backwards(piece: pl.DataFrame, vocabulary: Vocabulary, wanted: int) -> Iterator[RangeRow]:
    """The ranges (`wanted` 0) or marks (IS_MARK) of a compact frame, from the last to the first."""
    sites, stages = vocabulary.sites, vocabulary.stages
    rows = piece.filter(pl.col("flags") & IS_MARK == wanted).reverse()
    columns = [rows[name].to_list() for name in (*_COLUMNS, "attributes")]
    for process, track, depth, site, start, duration, busy, step, stage, flags, attributes in zip(*columns):
        is_open, is_error = bool(flags & IS_OPEN), bool(flags & IS_ERROR)
        about = (sites[site].domain, sites[site].name, start, None if is_open else max(duration, 0), busy)
        in_step = None if step == NO_STEP else step
        yield RangeRow(process, track, depth, *about, in_step, stages[stage], is_error, attributes)
