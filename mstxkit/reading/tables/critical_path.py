"""`Run.critical_path()`: what each step's time went to, one thing after the other, across ranks and stages.

The path goes back from the member that ended the step last: where members waited for each other, it goes on with the
one that came last.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ..role_runs import RoleRun, Seconds, Whole
from .bubbles import ns_column

SCHEMA = {
    "step": pl.Int64, "role": pl.String, "place": pl.Int32, "rank": pl.Int32, "stage": pl.String, "where": pl.String,
    "start_ns": pl.Int64, "duration_ns": pl.Int64, "more_ns": pl.Int64,
}  # fmt: skip


def table(runs: tuple[RoleRun, ...], origin_ns: int = 0) -> pl.DataFrame:
    """By step, in the order of the path: where members wait for each other, the durations of a step add up to its
    length. `rank` is whose time it was, in the stage or before it (`where`); `more_ns`: by how much that was longer
    than in the middle of those that it meets. `origin_ns`: the instant from which seconds count.
    """
    parts = [_of_role(run, origin_ns) for run in runs]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *parts]).sort("step", "role", "place", maintain_order=True)


def _of_role(run: RoleRun, origin_ns: int) -> pl.DataFrame:
    steps = np.arange(len(run.steps))
    with np.errstate(all="ignore"):
        ends = np.fmax.reduce(run.done_s, axis=2)
    member = np.nanargmax(np.where(np.isfinite(ends), ends, -np.inf), axis=1)
    until, began = ends[steps, member], run.spans_s()[1] - run.length_s()
    frames = []
    for piece in reversed(range(len(run.kinds))):
        last = run.came_last(piece)[steps, member] if run.waits[piece] else member
        last = np.where(last < 0, member, last)
        came = run.came_s[steps, last, piece]  # who was not there takes no time
        since = np.minimum(np.where(np.isfinite(came), np.maximum(came, began), until if piece else began), until)
        frames.append(_frame(run, piece, member, since, until).with_columns(start_ns=pl.col("start_ns") + origin_ns))
        member, until = last, since
    rows = pl.concat(frames).filter(pl.col("duration_ns") > 0)
    return rows.select(*SCHEMA).cast(SCHEMA)  # type: ignore[arg-type]


def _frame(run: RoleRun, piece: int, member: Whole, since: Seconds, until: Seconds) -> pl.DataFrame:
    """The path's part in one piece: whose, since when, until when."""
    ranks, more_s = pl.Series(run.ranks, dtype=pl.Int32), run.more_s[np.arange(len(member)), member, piece]
    columns = {
        "step": run.steps, "rank": ranks.gather(pl.Series(member)), "start_ns": ns_column(since),
        "duration_ns": ns_column(until - since), "more_ns": ns_column(more_s),
    }  # fmt: skip
    names = {"role": run.role, "stage": run.stage(piece), "where": run.where(piece), "place": piece}
    return pl.DataFrame(columns).with_columns(pl.lit(value).alias(name) for name, value in names.items())
