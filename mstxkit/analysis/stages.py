"""Stages: how often each process went through each stage in each step, and how long it was inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

FOREVER_NS = (1 << 63) - 1
_STAGE = ("process", "stage")
_KEY = ("process", "rank", "role", "pid", "step", "stage")


def outermost(stage_rows: pl.DataFrame) -> pl.DataFrame:
    """The ended occurrences of stages that are not inside another occurrence of the same stage on their track.

    Inside: begun while one of smaller depth was going on. Occurrences of equal depth that overlap are siblings (a
    suspended coroutine leaves its track to others). What is inside an occurrence that is still open does not count.

    Args:
        stage_rows: one row an occurrence: `process, track, stage, depth, start_ns, duration_ns` (null: open), …

    Returns: rows of the same columns.
    """
    import polars as pl

    track = [*_STAGE, "track"]
    rows = stage_rows.with_columns(
        end_ns=pl.when(pl.col("duration_ns").is_null())
        .then(FOREVER_NS)
        .otherwise(pl.col("start_ns") + pl.col("duration_ns"))
    ).sort("start_ns", "depth")
    inside = pl.lit(False)
    for depth in rows["depth"].unique().sort().to_list()[1:]:
        shallower = pl.when(pl.col("depth") < depth).then(pl.col("end_ns")).cum_max().forward_fill().over(track)
        inside = inside | ((pl.col("depth") == depth) & (pl.col("start_ns") < shallower).fill_null(False))
    kept = rows.filter(~inside & pl.col("duration_ns").is_not_null())
    return kept.select(stage_rows.columns)


def table(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`step, stage, rank, role, pid, count, total_ns, start_ns, end_ns`, by step, stage and rank.

    `total_ns` is the union of the occurrences' time across the tracks of their process: two threads in one stage at
    once count once.

    Args:
        occurrences: what `outermost` gave.
    """
    import polars as pl

    rows = occurrences.sort("start_ns")
    return (
        rows.with_columns(
            new_ns=new_ns(("process", "step", "stage")), end_ns=pl.col("start_ns") + pl.col("duration_ns")
        )
        .group_by(_KEY)
        .agg(
            count=pl.len().cast(pl.Int64),
            total_ns=pl.col("new_ns").sum(),
            start_ns=pl.col("start_ns").min(),
            end_ns=pl.col("end_ns").max(),
        )
        .sort("step", pl.col("stage").cast(pl.String), "process")
        .select("step", "stage", "rank", "role", "pid", "count", "total_ns", "start_ns", "end_ns")
    )


def new_ns(key: tuple[str, ...]) -> pl.Expr:
    """How much of each row's time no earlier row of its `key` covers (rows sorted by start): its sum is their union."""
    import polars as pl

    end_ns = pl.col("start_ns") + pl.col("duration_ns")
    covered_until = end_ns.cum_max().shift(1).over(*key)
    return (end_ns - pl.max_horizontal("start_ns", covered_until)).clip(lower_bound=0)
