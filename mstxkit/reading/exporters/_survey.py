"""A first look at a whole run, before it is drawn: when it begins, which lanes do not nest, who called whom.

*Memory*: 40 bytes for each occurrence of a stage, where a controller waits for others in any.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..frames import NAMED
from ..lines import OPEN_NS
from ..rows import IS_MARK, IS_OPEN, WAITS_FOR, Need
from ..suspended import Suspended
from ._nesting import TRACK_BITS, Columns, Postorder, contradicting

if TYPE_CHECKING:
    import polars as pl

    from ..run import Run

COALESCED = "coalesced"
# Of a range (process, start_ns, name): the numbers of flows that begin there, and of those that end there.
Flows = dict[tuple[int, int, str], tuple[list[int], list[int]]]


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
    import polars as pl

    nesting, uneven, first_ns, stages = Postorder(), set(), OPEN_NS, []
    has_waits = run.may_have(WAITS_FOR)
    for piece in run.coded(Need(as_json=False, names=(COALESCED,))):
        if not piece.height:
            continue
        first_ns = min(first_ns, int(piece["start_ns"].to_numpy().min()))
        stages += [_stage_rows(piece, run)] if has_waits else []
        rows = columns_of(piece.filter(pl.col(NAMED + COALESCED).is_null()))
        uneven |= _uneven(nesting, rows, int(piece["process"].to_numpy().min()))
    last = nesting.finish()
    uneven |= set(contradicting(last).tolist()) if last else set()
    first_ns = 0 if first_ns == OPEN_NS else first_ns
    return Survey(first_ns, frozenset(uneven), _suspended(run, uneven), flows_of(stages, run))


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
    import polars as pl

    suspended = Suspended()
    if uneven:
        lanes = pl.Series(sorted(uneven), dtype=pl.Int64)
        lane = pl.col("process").cast(pl.Int64) * (1 << TRACK_BITS) + pl.col("track")
        for ranges, _ in run.batches():
            suspended.learn(ranges.filter(lane.is_in(lanes.implode())))
    return suspended


def _stage_rows(piece: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Occurrences of stages: `process, site, stage, start_ns, duration_ns, waits`."""
    import polars as pl

    own = [code for code, site in enumerate(run.vocabulary.sites) if site.is_stage]
    waits = pl.col(NAMED + WAITS_FOR).is_not_null().alias("waits")
    is_own = pl.col("site").is_in(pl.Series(own, dtype=pl.UInt32).implode()) & (pl.col("flags") & IS_MARK == 0)
    return piece.filter(is_own).select("process", "site", "stage", "start_ns", "duration_ns", waits)


def flows_of(pieces: list[pl.DataFrame], run: Run) -> Flows:
    """From each wait of a controller to what began meanwhile of its stage: the first occurrence in each process."""
    import polars as pl

    flows: Flows = {}
    rows = pl.concat(pieces) if pieces else None
    if rows is None or not rows["waits"].any():
        return flows
    numbers = count(1)
    sites, work = run.vocabulary.sites, rows.filter(~pl.col("waits")).sort("start_ns")
    by_stage: dict[Any, pl.DataFrame] = {stage: group for (stage,), group in work.group_by("stage")}
    for process, site, stage, start_ns, duration_ns, _ in rows.filter("waits").iter_rows():
        workers = by_stage.get(stage)
        if workers is None:
            continue
        first, last = (int(workers["start_ns"].search_sorted(at)) for at in (start_ns, _end(start_ns, duration_ns)))
        meanwhile = workers.slice(first, last - first).filter(pl.col("process") != process)
        for worker in meanwhile.unique("process", keep="first", maintain_order=True).iter_rows(named=True):
            flow = next(numbers)
            flows.setdefault((process, start_ns, sites[site].name), ([], []))[0].append(flow)
            there = worker["process"], worker["start_ns"], sites[worker["site"]].name
            flows.setdefault(there, ([], []))[1].append(flow)
    return flows


def _end(start_ns: int, duration_ns: int) -> int:
    return OPEN_NS if duration_ns < 0 else start_ns + duration_ns
