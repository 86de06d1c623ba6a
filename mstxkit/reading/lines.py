"""Where the ranges of a track are drawn: on the track itself, or on lines beside it, so that those of a line nest.

On the track are ordinary ranges. A coroutine or generator is on its track only while its body runs: between, others
are there. It gets a line beside the track, and with it what ran inside of it. Ranges come from the last end to the
first, so those that enclose a range are known before it; what is kept is what encloses the present moment.

A record does not say which range it ran inside of. That follows from times and depths; where several generators of one
depth are suspended at once on one track, the one that began last counts.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator

import polars as pl

from ..store.records import DEPTH_MAX
from .attributes import COALESCED

OPEN_NS = 1 << 62  # the end of a range that has none
_COLUMNS = ("process", "track", "depth", "start_ns", "busy_ns")


class Drawn:
    """A range on its line. `begin`: what its begin is in the file, written when all inside of it is."""

    __slots__ = ("begin", "depth", "end", "line", "start")

    def __init__(self, start: int, end: int, depth: int) -> None:
        self.start, self.end, self.depth = start, end, depth
        self.begin: tuple[Any, ...] = ()
        self.line: Line

    def encloses(self, other: Drawn) -> bool:
        """Does it in time?"""
        return self.start <= other.start and other.end <= self.end

    def may_hold(self, other: Drawn) -> bool:
        """Does it in time, nearer to the ground?"""
        return self.encloses(other) and (self.depth < other.depth or other.depth == DEPTH_MAX)

    def is_after(self, other: Drawn) -> bool:
        """Does it begin only when `other` is over?"""
        return self.start > other.end or (self.start == other.end and other.start < other.end)


class Line:
    """Ranges that nest. `number`: 0 for the track itself; `domain`: of the first one; `is_apart`: that one was
    suspended while others began around it.

    Viewers sort events by time, and keep those of one instant in the order of the file. There a begin must stand after
    the end of the range before it, and after the begin of the one around it: it is held back until that is sure.
    """

    __slots__ = ("_free_to", "_held", "_held_at", "domain", "inside", "is_apart", "number")

    def __init__(self, number: int, domain: str, is_apart: bool = False) -> None:
        self.number, self.domain, self.is_apart = number, domain, is_apart
        self.inside: list[Drawn] = []
        self._free_to = OPEN_NS
        self._held: list[tuple[Any, ...]] = []
        self._held_at = 0

    def leave(self, coming: Drawn | None) -> Iterator[Any]:
        """What lies after `coming` is over (None: all is); the begins that can be written now."""
        while self.inside and (coming is None or self.inside[-1].is_after(coming)):
            left = self.inside.pop()
            self._free_to = left.start
            if left.begin:
                if left.start < self._held_at:
                    yield from self._release_held()
                self._held.append(left.begin)
                self._held_at = left.start
        if coming is None or not self.inside or coming.end < self._held_at:
            yield from self._release_held()

    def _release_held(self) -> Iterator[Any]:
        while self._held:
            yield from self._held.pop()

    def has_room(self, coming: Drawn, around: Drawn | None) -> bool:
        """Does it nest here, with `around` (None: nothing) as the next one around it?"""
        innermost = self.inside[-1] if self.inside else None
        return innermost is around and coming.end <= self._free_to and (around is None or around.encloses(coming))

    def put(self, drawn: Drawn) -> None:
        """Draw it here."""
        drawn.line = self
        self.inside.append(drawn)


class TrackLines:
    """The lines of one track."""

    def __init__(self) -> None:
        self._own = Line(0, "")
        self._beside: list[Line] = []

    def leave(self, coming: Drawn | None) -> Iterator[Any]:
        """As `Line.leave`, of all of them."""
        yield from self._own.leave(coming)
        if self._beside:
            for line in self._beside:
                yield from line.leave(coming)
            self._beside = [line for line in self._beside if line.inside]

    def put(self, coming: Drawn, is_driven: bool, is_apart: bool, new: Callable[[], Line]) -> Line:
        """Draw the next range: its line, a new one where it needs one of its own. `is_driven`: it is a coroutine or
        generator; `is_apart`: others that are not inside of it began while it was suspended.
        """
        around = self._find_around(coming)
        line = self._own if around is None else around.line
        if is_apart or (is_driven and line is self._own) or not line.has_room(coming, around):
            line = new()
            self._beside.append(line)
        line.put(coming)
        return line

    def put_mark(self, coming: Drawn) -> bool:
        """Draw an instant beside the track, if that is where it was. Else it is to be drawn on the track."""
        around = self._find_around(coming)
        if around is None or around.line is self._own or not around.line.has_room(coming, around):
            return False
        around.line.put(coming)
        return True

    def _find_around(self, coming: Drawn) -> Drawn | None:
        """Ordinary ranges are on the track from begin to end, so the innermost of those is around what begins
        meanwhile. Where the depth tells that there is one more between the two, that is beside the track.
        """
        own = self._own.inside[-1] if self._own.inside else None
        if not self._beside or coming.depth <= (own.depth + 1 if own else 0):
            return own

        def fits(drawn: Drawn) -> tuple[bool, bool, int, int]:
            return drawn.depth + 1 == coming.depth, drawn.line.is_apart, drawn.depth, drawn.start

        # Of each line beside the track the innermost that may be around; where none is nearer to the ground, by time
        # alone: a body may be resumed nearer to it than it began.
        for holds in (Drawn.may_hold, Drawn.encloses):
            innermost = (next((d for d in reversed(line.inside) if holds(d, coming)), None) for line in self._beside)
            if holding := [drawn for drawn in innermost if drawn is not None]:
                return max(holding, key=fits)
        return own


class Suspended:
    """Which coroutines and generators were suspended while other ranges began on their track. What begins while a body
    runs is inside of it, and so deeper; one that is no deeper began while it was suspended.

    Found by one reading of a run. Keeps about 200 bytes for each, and a number for each track and depth. `batches`: all
    of `Run.batches()`, of which those count that have ended; `only`: of these ranges, where only some are looked at.
    """

    def __init__(self, batches: Iterable[tuple[pl.DataFrame, pl.DataFrame]] = (), only: pl.Expr | None = None) -> None:
        self._found: set[tuple[int, int, int, int]] = set()
        # When the last range of each track and depth began, of those that have ended.
        self._latest: dict[tuple[int, int], dict[int, int]] = {}
        is_coalesced = pl.col("attributes").str.starts_with(COALESCED).fill_null(False)
        has_ended = ~pl.col("open") & ~is_coalesced & (pl.lit(True) if only is None else only)
        for ended in (ranges.filter(has_ended) for ranges, _ in batches):
            if ended["busy_ns"].null_count() == ended.height:  # then when the last of each depth began is enough
                ended = ended.group_by(_COLUMNS[:3]).agg(pl.col("start_ns").max(), pl.col("busy_ns").first())
            for process, track, depth, start_ns, busy_ns in zip(*(ended[name].to_list() for name in _COLUMNS)):
                if busy_ns is not None:
                    self.see(process, track, depth, start_ns)
                latest = self._latest.setdefault((process, track), {})
                latest[depth] = max(start_ns, latest.get(depth, start_ns))

    def see(self, process: int, track: int, depth: int, start_ns: int) -> None:
        """Judge one that ends now, or is open when all that have ended are known."""
        latest = self._latest.get((process, track), {})
        if any(depth >= other and since > start_ns for other, since in latest.items()):
            self._found.add((process, track, depth, start_ns))

    def has(self, process: int, track: int, depth: int, start_ns: int) -> bool:
        """Was this one?"""
        return (process, track, depth, start_ns) in self._found
