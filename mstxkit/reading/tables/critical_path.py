"""`Run.critical_path()`: what each step's time went to, one thing after the other, across ranks and stages.

The path goes back from the member that ended the step last: where members waited for each other, it goes on with the
one that came last.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ..frames import make_schema
from ..role_runs import RoleRun
from .bubbles import ns_column

SCHEMA = make_schema("step role place rank stage where start_ns duration_ns more_ns", place=pl.Int32)


def table(runs: tuple[RoleRun, ...], origin_ns: int = 0) -> pl.DataFrame:
    """By step, in the order of the path: where members wait for each other, the durations of a step add up to its
    length. `rank` is whose time it was, in the stage or before it (`where`); `more_ns`: by how much that was longer
    than in the middle of those that it meets. `origin_ns`: the instant from which seconds count.
    """
    parts = [pl.DataFrame(schema=SCHEMA)]
    for run in runs:
        steps, ranks = np.arange(len(run.steps)), pl.Series(run.ranks, dtype=pl.Int32)
        with np.errstate(all="ignore"):
            ends = np.fmax.reduce(run.done_s, axis=2)
        member = np.nanargmax(np.where(np.isfinite(ends), ends, -np.inf), axis=1)
        until, began = ends[steps, member], run.spans_s()[1] - run.lengths_s
        for piece in reversed(range(len(run.kinds))):
            last = run.came_last[steps, member, piece] if run.waits[piece] else member
            last = np.where(last < 0, member, last)
            came = run.came_s[steps, last, piece]  # who was not there takes no time
            since = np.minimum(np.where(np.isfinite(came), np.maximum(came, began), until if piece else began), until)
            columns = {
                "step": run.steps, "rank": ranks.gather(pl.Series(member)), "start_ns": ns_column(since) + origin_ns,
                "duration_ns": ns_column(until - since), "more_ns": ns_column(run.more_s[steps, member, piece]),
            }  # fmt: skip
            names = {"role": run.role, "stage": run.stage(piece), "where": run.where(piece), "place": piece}
            frame = pl.DataFrame(columns).with_columns(**{name: pl.lit(value) for name, value in names.items()})
            parts.append(frame.select(*SCHEMA).cast(SCHEMA))  # type: ignore[arg-type]
            member, until = last, since
    rows = pl.concat(parts).filter(pl.col("duration_ns") > 0)
    return rows.sort("step", "role", "place", maintain_order=True)
