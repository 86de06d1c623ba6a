"""`Run.samples()`: single samples of generation, where each has a range of its own: which held up a step, and how long.

Samples are occurrences of a stage that makes responses, of which a process has several in a step.
"""

from __future__ import annotations

import polars as pl

from ...stages import canonical

GENERATES = "actor_generate"


def table(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`step, rank, process, stage, start_ns, duration_ns, tokens, samples, alone_ns, is_last`, longest first in a step.

    `samples`: so many of them the process had in that step; `alone_ns`: how long this one went on after all others of
    the process had ended (0 for all but the last): what the step would save without it, there.

    Args:
        occurrences: As `Run.occurrences()`.
    """
    names = [
        name for name in occurrences["stage"].cast(pl.String).unique().drop_nulls() if canonical(name) == GENERATES
    ]
    rows = occurrences.filter(pl.col("stage").cast(pl.String).is_in(names) & pl.col("step").is_not_null())
    which = ["process", "step"]
    rows = rows.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"), samples=pl.len().over(which))
    rows = rows.filter(pl.col("samples") > 1).sort("step", "process", "end_ns")
    before = pl.col("end_ns").shift(1).over(which)
    is_last = pl.col("end_ns").rank("ordinal").over(which) == pl.col("samples")
    alone = pl.when(is_last).then(pl.col("end_ns") - pl.max_horizontal(before, "start_ns")).otherwise(0)
    return rows.select(
        "step", "rank", "process", pl.col("stage").cast(pl.String), "start_ns", "duration_ns", "tokens",
        pl.col("samples").cast(pl.Int64), alone_ns=alone.cast(pl.Int64), is_last=is_last,
    ).sort("step", "duration_ns", descending=[False, True])  # fmt: skip
