"""A first look at a whole run, before it is drawn: when it begins, which lanes do not nest, who waited for whom."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...store.values import group_by
from ..frames import NAMED
from ..lines import OPEN_NS, Suspended
from ..rows import IS_MARK, IS_OPEN, WAITS_FOR, Need
from ..run import Run
from . import _track_events as events
from ._nesting import TRACK_BITS, Columns, Ints, Postorder, find_contradicting

COALESCED = "coalesced"
_PLACE = ("process", "stage", "start_ns")
_PAIR = {"wait": pl.UInt32, "worker": pl.UInt32, "begun": pl.Int64}


class Flows:
    """Who waited for whom: from each wait of a controller to the first range of its stage in each process meanwhile.

    Found by one reading of a run in any order, once its waits are known; then asked once for each range. *Memory*: 40
    bytes for each of these pairs. `waits`: occurrences of stages that wait for others: `process, stage, start_ns,
    duration_ns`.
    """

    def __init__(self, waits: pl.DataFrame) -> None:
        self._waits = waits.sort("stage", "start_ns").with_row_index("wait")
        self._process, self._stage, self._start = (self._waits[name].to_numpy() for name in _PLACE)
        # Of several waits that are alike in all of this, each is taken by one of the ranges that ask.
        self._numbers = group_by(range(waits.height), self._waits.select("process", "start_ns", "stage").row)
        self._pairs: list[pl.DataFrame] = []
        self._first: list[int] = []
        # Pairs by number, of which the wait; and by worker, then begin: which worker, when it began, and the number.
        self._wait = self._worker = self._begun = self._pair = np.empty(0, dtype=np.int64)

    @property
    def controllers(self) -> frozenset[int]:
        """Processes that wait."""
        return frozenset(self._process.tolist())

    def see(self, work: pl.DataFrame) -> None:
        """Occurrences of stages that do not wait: `process, stage, start_ns`."""
        by = ["stage", "worker"]
        begun = work.select("stage", "start_ns", worker="process", begun="start_ns").sort("start_ns")
        pairs = self._waits.join(begun.select(by).unique(), on="stage").sort("start_ns")
        first = pairs.join_asof(begun, on="start_ns", by=by, strategy="forward", check_sortedness=False)
        is_open = pl.col("duration_ns") < 0
        is_meanwhile = is_open | (pl.col("begun") < pl.col("start_ns") + pl.col("duration_ns"))
        is_one = (pl.col("worker") != pl.col("process")) & pl.col("begun").is_not_null() & is_meanwhile
        self._pairs.append(first.filter(is_one).select(*_PAIR))

    def finish(self) -> None:
        """All have been seen: of each process the first one of a wait counts."""
        every = pl.concat([pl.DataFrame(schema=_PAIR), *self._pairs], how="vertical_relaxed")
        pairs = every.group_by("wait", "worker").agg(pl.col("begun").min()).sort("wait", "worker")
        self._pairs = []
        self._wait, worker, begun = (pairs[name].to_numpy() for name in _PAIR)
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
        uneven.update(find_contradicting(taken).tolist())
    uneven.update(find_contradicting(nesting.finish()).tolist())
    first_ns = 0 if first_ns == OPEN_NS else first_ns
    flows.finish()
    lanes = pl.Series(sorted(uneven), dtype=pl.Int64)
    lane = pl.col("process").cast(pl.Int64) * (1 << TRACK_BITS) + pl.col("track")
    suspended = Suspended(run.batches(), lane.is_in(lanes.implode())) if uneven else Suspended()
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
