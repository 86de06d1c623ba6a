"""Ranks: each stage in each process over all steps, to be laid side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def table(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`stage, process, rank, host, pid, role, count, total_ns, mean_ns, p50_ns, p99_ns, first_ns`, in order of begin.

    `total_ns` is the union over the tracks of the process; mean and percentiles are those of single occurrences.

    Args:
        occurrences: the outermost occurrences, as `Run.occurrences()` gives them.
    """
    import polars as pl

    from .stages import new_ns

    key = ("process", "stage")
    rows = occurrences.sort("start_ns").with_columns(new_ns=new_ns(key))
    per_process = rows.group_by("stage", "process", "rank", "host", "pid", "role").agg(
        count=pl.len().cast(pl.Int64),
        total_ns=pl.col("new_ns").sum(),
        mean_ns=pl.col("duration_ns").mean(),
        p50_ns=pl.col("duration_ns").quantile(0.5, interpolation="nearest"),
        p99_ns=pl.col("duration_ns").quantile(0.99, interpolation="nearest"),
        first_ns=pl.col("start_ns").min(),
    )
    ordered = per_process.with_columns(stage_first_ns=pl.col("first_ns").min().over("stage"))
    return ordered.sort("stage_first_ns", pl.col("stage").cast(pl.String), "process").drop("stage_first_ns")


def totals(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`stage, count, mean_ns, p50_ns, p99_ns`: single occurrences of a stage over all processes."""
    import polars as pl

    return occurrences.group_by("stage").agg(
        count=pl.len().cast(pl.Int64),
        mean_ns=pl.col("duration_ns").mean(),
        p50_ns=pl.col("duration_ns").quantile(0.5, interpolation="nearest"),
        p99_ns=pl.col("duration_ns").quantile(0.99, interpolation="nearest"),
    )
