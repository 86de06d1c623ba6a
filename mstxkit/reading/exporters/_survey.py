"""A first look at a whole run, before it is drawn: when it begins, which lanes do not nest, who called whom."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ..frames import NAMED
from ..lines import OPEN_NS
from ..rows import IS_MARK, IS_OPEN, WAITS_FOR, Need
from ..run import Run
from ..suspended import Suspended
from ._flows import Flows
from ._nesting import TRACK_BITS, Columns, Postorder, contradicting

COALESCED = "coalesced"


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
    nesting, uneven, first_ns, flows = Postorder(), set(), OPEN_NS, Flows(_waits(run))
    for piece in run.files.coded(Need(as_json=False, names=(COALESCED,), texts=bool(flows.controllers))):
        if not piece.height:
            continue
        first_ns = min(first_ns, int(piece["start_ns"].to_numpy().min()))
        if flows.controllers:
            flows.see(_stage_rows(piece, run, waits=False))
        alone = piece[NAMED + COALESCED].is_not_null()
        rows = columns_of(piece.filter(~alone) if alone.any() else piece)
        uneven |= _uneven(nesting, rows, int(piece["process"].to_numpy().min()))
    last = nesting.finish()
    uneven |= set(contradicting(last).tolist()) if last else set()
    first_ns = 0 if first_ns == OPEN_NS else first_ns
    flows.finish()
    return Survey(first_ns, frozenset(uneven), _suspended(run, uneven), flows)


def columns_of(piece: pl.DataFrame) -> Columns:
    """Of compact rows: `lane`, `depth`, `start` and `end` in ns, and the others as they are but for texts."""
    start, duration = piece["start_ns"].to_numpy(), piece["duration_ns"].to_numpy()
    flags = piece["flags"].to_numpy()
    end = np.where(flags & IS_OPEN != 0, OPEN_NS, start + np.maximum(duration, 0))
    lane = piece["process"].to_numpy().astype(np.int64) << TRACK_BITS | piece["track"].to_numpy()
    return {"lane": lane, "depth": piece["depth"].to_numpy(), "start": start, "end": end, "flags": flags}


def _uneven(nesting: Postorder, rows: Columns, first_process: int) -> set[int]:
    if len(rows["flags"]) and rows["flags"][0] & IS_OPEN:
        nesting.wait(rows)
        return set()
    taken = nesting.take(rows, first_process)
    return set() if taken is None else set(contradicting(taken).tolist())


def _suspended(run: Run, uneven: set[int]) -> Suspended:
    if not uneven:
        return Suspended()
    lanes = pl.Series(sorted(uneven), dtype=pl.Int64)
    lane = pl.col("process").cast(pl.Int64) * (1 << TRACK_BITS) + pl.col("track")
    return Suspended.of(run.batches(), lane.is_in(lanes.implode()))


def _waits(run: Run) -> pl.DataFrame:
    """What controllers wait for, of the processes that may be one."""
    only = run.files.who_may_have(WAITS_FOR)
    pieces = run.files.coded(Need(as_json=False, own_stages=True), only=only)
    return pl.concat([_stage_rows(piece, run, waits=True) for piece in pieces])


def _stage_rows(piece: pl.DataFrame, run: Run, waits: bool) -> pl.DataFrame:
    """Occurrences of stages that wait for others, or that do not: `process, stage, start_ns, duration_ns`."""
    own = pl.Series([site.is_stage for site in run.files.vocabulary.sites], dtype=pl.Boolean)
    is_own = pl.lit(own).gather(pl.col("site")) & (pl.col("flags") & IS_MARK == 0)
    wanted = is_own & (pl.col(NAMED + WAITS_FOR).is_not_null() == waits)
    return piece.filter(wanted).select("process", "stage", "start_ns", "duration_ns")
