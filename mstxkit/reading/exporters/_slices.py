"""The ranges and marks of a run as events of a trace, each on its track or on a line beside it, one by one."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import Any, Callable, Iterable, Iterator, NamedTuple

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


# What is drawn on a line, of which 0 is the track itself: a whole range, its begin, its end, or an instant.
WHOLE, BEGIN, END, MARK = "whole", "begin", "end", "mark"
Draw = Callable[[str, RangeRow, Line], Any]


class Slices:
    """Takes all ranges of a run backwards, open ones first; gives their events, process by process.

    What it keeps: the open ranges, and of the process at hand what encloses the present moment. `draw`: makes the
    events of a format; `has_whole`: on a track itself a range is one event there, not a begin and an end.
    """

    def __init__(self, draw: Draw, suspended: Suspended, has_whole: bool) -> None:
        self._draw, self._suspended, self._has_whole = draw, suspended, has_whole
        self._open: dict[int, list[RangeRow]] = {}
        self._process = -1
        self._tracks: defaultdict[int, TrackLines] = defaultdict(TrackLines)
        self._numbers = count(1)

    def take(self, ranges: Iterable[RangeRow], marks: Iterable[RangeRow]) -> Iterator[Any]:
        """The events of the next ranges and marks, both from the last to the first, and of earlier ones."""
        waiting = list(marks)[::-1]
        for row in ranges:
            if row.duration_ns is None:
                self._open.setdefault(row.process, []).append(row)
            elif row.attributes and row.attributes.startswith(COALESCED):  # it may lie a second later than its end
                line = Line(next(self._numbers), row.domain)
                yield self._draw(BEGIN, row, line)
                yield self._draw(END, row, line)
            else:
                end_ns = row.start_ns + row.duration_ns
                while waiting and (-waiting[-1].process, end_ns) < (-row.process, waiting[-1].start_ns):
                    yield from self._draw_mark(waiting.pop())
                yield from self._draw_row(row, end_ns, row.busy_ns is not None)
        while waiting:
            yield from self._draw_mark(waiting.pop())

    def finish(self) -> Iterator[Any]:
        """What is left when there are no more."""
        for process in list(self._open):
            yield from self._begin_process(process)
        yield from self._finish_tracks()

    def _finish_tracks(self) -> Iterator[Any]:
        for lines in self._tracks.values():
            yield from lines.leave(None)
        self._tracks.clear()

    def _begin_process(self, process: int) -> Iterator[Any]:
        yield from self._finish_tracks()
        self._process = process
        for row in sorted(self._open.pop(process, ()), key=lambda row: (row.start_ns, row.depth)):
            self._suspended.see(row.process, row.track, row.depth, row.start_ns)
            yield from self._draw_row(row, OPEN_NS, False)

    def _draw_mark(self, row: RangeRow) -> Iterator[Any]:
        if row.process != self._process:
            yield from self._begin_process(row.process)
        lines, drawn = self._tracks[row.track], Drawn(row.start_ns, row.start_ns, row.depth)
        yield from lines.leave(drawn)
        if lines.put_mark(drawn):
            drawn.begin = (self._draw(MARK, row, drawn.line),)
        else:
            yield self._draw(MARK, row, _TRACK)

    def _draw_row(self, row: RangeRow, end_ns: int, is_driven: bool) -> Iterator[Any]:
        if row.process != self._process:
            yield from self._begin_process(row.process)
        lines, drawn = self._tracks[row.track], Drawn(row.start_ns, end_ns, row.depth)
        yield from lines.leave(drawn)
        is_apart = self._suspended.has(row.process, row.track, row.depth, row.start_ns)
        line = lines.put(drawn, is_driven, is_apart, lambda: Line(next(self._numbers), row.domain, is_apart))
        if self._has_whole and not line.number:
            yield self._draw(WHOLE, row, line)
            return
        drawn.begin = (self._draw(BEGIN, row, line),)
        if drawn.end != OPEN_NS:
            end = self._draw(END, row, line)
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
