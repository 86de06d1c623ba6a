"""A first look at a whole run, before it is drawn: when it begins, which lanes do not nest, who waited for whom."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...store.values import grouped
from ..frames import NAMED
from ..lines import OPEN_NS, Suspended
from ..rows import IS_MARK, IS_OPEN, WAITS_FOR, Need
from ..run import Run
from . import _track_events as events
from ._even import runs_of
from ._nesting import TRACK_BITS, Columns, Ints, Postorder, contradicting

COALESCED = "coalesced"
_PLACE = ("process", "stage", "start_ns")


class Flows:
    """Who waited for whom: from each wait of a controller to the first range of its stage in each process meanwhile.

    Found by one reading of a run in any order, once its waits are known; then asked once for each range. *Memory*: 40
    bytes for each of these pairs. `waits`: occurrences of stages that wait for others: `process, stage, start_ns,
    duration_ns`.
    """

    def __init__(self, waits: pl.DataFrame) -> None:
        rows = waits.sort("stage", "start_ns")
        self._process, self._stage, self._start = (rows[name].to_numpy() for name in ("process", "stage", "start_ns"))
        duration = rows["duration_ns"].to_numpy()
        self._end = np.where(duration < 0, OPEN_NS, self._start + duration)
        # Of several waits that are alike in all of this, each is taken by one of the ranges that ask.
        self._numbers = grouped(range(rows.height), rows.select("process", "start_ns", "stage").row)
        self._pairs: list[npt.NDArray[np.int64]] = []
        self._first: list[int] = []
        # Pairs by number, of which the wait; and by worker, then begin: which worker, when it began, and the number.
        self._wait = self._worker = self._begun = self._pair = np.empty(0, dtype=np.int64)

    @property
    def controllers(self) -> frozenset[int]:
        """Processes that wait."""
        return frozenset(self._process.tolist())

    def see(self, work: pl.DataFrame) -> None:
        """Occurrences of stages that do not wait: `process, stage, start_ns`."""
        rows = work.sort("stage", "process", "start_ns")
        stage, process, start = (rows[name].to_numpy() for name in ("stage", "process", "start_ns"))
        for first, last in runs_of(stage.astype(np.int64) << 32 | process):
            own, its_process = start[first:last], int(process[first])
            begin, end = (int(np.searchsorted(self._stage, int(stage[first]), side)) for side in ("left", "right"))
            end = begin + int(np.searchsorted(self._start[begin:end], own[-1], "right"))
            waits = begin + np.flatnonzero((self._end[begin:end] > own[0]) & (self._process[begin:end] != its_process))
            begun = own[np.searchsorted(own, self._start[waits])]
            waits, begun = (values[begun < self._end[waits]] for values in (waits, begun))
            self._pairs.append(np.stack((waits, np.full(len(waits), its_process), begun)))

    def finish(self) -> None:
        """All have been seen: of each process the first one of a wait counts."""
        wait, worker, begun = np.concatenate([np.empty((3, 0), dtype=np.int64), *self._pairs], axis=1)
        self._pairs = []
        order = np.lexsort((begun, worker, wait))
        wait, worker, begun = wait[order], worker[order], begun[order]
        is_first = np.ones(len(wait), dtype=bool)
        is_first[1:] = (wait[1:] != wait[:-1]) | (worker[1:] != worker[:-1])
        self._wait, worker, begun = wait[is_first], worker[is_first], begun[is_first]
        self._first = np.searchsorted(self._wait, np.arange(len(self._start) + 1)).tolist()
        self._pair = np.lexsort((begun, worker))
        self._worker, self._begun = worker[self._pair], begun[self._pair]

    def tails(self, process: int, start: Ints, stage: npt.NDArray[Any]) -> Iterator[tuple[int, bytes]]:
        """Of occurrences of stages in a process those at which flows begin or end: the place, and the event's end."""
        own = slice(*np.searchsorted(self._worker, [process, process + 1]).tolist())
        begun, pairs = self._begun[own], self._pair[own]
        lows, highs = (np.searchsorted(begun, start, side) for side in ("left", "right"))
        waits = self._start[self._process == process]
        for place in np.flatnonzero((lows < highs) | np.isin(start, waits)).tolist():
            here, key = pairs[lows[place] : highs[place]].tolist(), int(stage[place])
            ended = [pair + 1 for pair in here if self._stage[self._wait[pair]] == key]
            # The pairs of a wait that begins here, from the first on and to before the last.
            alike = self._numbers.get((process, int(start[place]), key))
            number = alike.pop() if alike else -1
            begin, end = (0, 0) if number < 0 else (self._first[number], self._first[number + 1])
            if ended or begin < end:
                yield place, events.flows_tail(range(begin + 1, end + 1), False) + events.flows_tail(ended, True)


class Survey(NamedTuple):
    """What is known of a run before it is drawn.

    Args:
        first_ns: When its first range began; 0 where there is none.
        uneven: Lanes whose ranges do not nest, or not as their depths say.
        suspended: The coroutines and generators of these that others ran beside.
        flows: From controllers to those that they waited for.
    """

    first_ns: int
    uneven: frozenset[int]
    suspended: Suspended
    flows: Flows


def of_run(run: Run) -> Survey:
    """Read a run once; where lanes are uneven, a second time."""
    waiting = run.files.coded(Need(as_json=False, own_stages=True), only=run.files.who_may_have(WAITS_FOR))
    flows = Flows(pl.concat([_stage_rows(piece, run, waits=True) for piece in waiting]))
    nesting, uneven, first_ns = Postorder(), set(), OPEN_NS
    for piece in run.files.coded(Need(as_json=False, names=(COALESCED,), texts=bool(flows.controllers))):
        if not piece.height:
            continue
        first_ns = min(first_ns, int(piece["start_ns"].to_numpy().min()))
        if flows.controllers:
            flows.see(_stage_rows(piece, run, waits=False))
        alone = piece[NAMED + COALESCED].is_not_null()
        rows = columns_of(piece.filter(~alone) if alone.any() else piece)
        taken = nesting.take(rows, int(piece["process"].to_numpy().min()))
        uneven.update(contradicting(taken).tolist())
    uneven.update(contradicting(nesting.finish()).tolist())
    first_ns = 0 if first_ns == OPEN_NS else first_ns
    flows.finish()
    lanes = pl.Series(sorted(uneven), dtype=pl.Int64)
    lane = pl.col("process").cast(pl.Int64) * (1 << TRACK_BITS) + pl.col("track")
    suspended = Suspended.of(run.batches(), lane.is_in(lanes.implode())) if uneven else Suspended()
    return Survey(first_ns, frozenset(uneven), suspended, flows)


def columns_of(piece: pl.DataFrame) -> Columns:
    """Of compact rows: `lane`, `depth`, `start` and `end` in ns, and the others as they are but for texts."""
    start, duration = piece["start_ns"].to_numpy(), piece["duration_ns"].to_numpy()
    flags = piece["flags"].to_numpy()
    end = np.where(flags & IS_OPEN != 0, OPEN_NS, start + np.maximum(duration, 0))
    lane = piece["process"].to_numpy().astype(np.int64) << TRACK_BITS | piece["track"].to_numpy()
    return {"lane": lane, "depth": piece["depth"].to_numpy(), "start": start, "end": end, "flags": flags}


def _stage_rows(piece: pl.DataFrame, run: Run, waits: bool) -> pl.DataFrame:
    """Occurrences of stages that wait for others, or that do not: `process, stage, start_ns, duration_ns`."""
    own = pl.Series([site.is_stage for site in run.files.vocabulary.sites], dtype=pl.Boolean)
    is_own = pl.lit(own).gather(pl.col("site")) & (pl.col("flags") & IS_MARK == 0)
    wanted = is_own & (pl.col(NAMED + WAITS_FOR).is_not_null() == waits)
    return piece.filter(wanted).select(*_PLACE, "duration_ns")
