"""How often each process went through each stage, and how long it was inside; what killed processes were inside of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

FOREVER_NS = (1 << 63) - 1
KILLED, LEFT = "killed", "left"
_STAGE = ("process", "stage")
_KEY = ("process", "rank", "role", "pid", "step", "stage", "part", "waits_for")


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
    """`step, stage, rank, role, pid, count, total_ns, start_ns, end_ns, part, waits_for`, by step, stage and rank.

    Of `outermost` ones. `total_ns` is the union of their time across the tracks of their process: two threads in one
    stage at once count once.
    """
    import polars as pl

    rows = occurrences.sort("start_ns")
    return (
        rows.with_columns(
            new_ns=new_ns(("process", "step", "stage", "waits_for")), end_ns=pl.col("start_ns") + pl.col("duration_ns")
        )
        .group_by(_KEY)
        .agg(
            count=pl.len().cast(pl.Int64),
            total_ns=pl.col("new_ns").sum(),
            start_ns=pl.col("start_ns").min(),
            end_ns=pl.col("end_ns").max(),
        )
        .sort("step", pl.col("stage").cast(pl.String), "process", "waits_for")
        .select("step", "stage", "rank", "role", "pid", "count", "total_ns", "start_ns", "end_ns", "part", "waits_for")
    )


def new_ns(key: tuple[str, ...]) -> pl.Expr:
    """How much of each row's time no earlier row of its `key` covers (rows sorted by start): its sum is their union."""
    import polars as pl

    end_ns = pl.col("start_ns") + pl.col("duration_ns")
    covered_until = end_ns.cum_max().shift(1).over(*key)
    return (end_ns - pl.max_horizontal("start_ns", covered_until)).clip(lower_bound=0)


def by_process(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`stage, process, rank, host, pid, role, count, total_ns, mean_ns, p50_ns, p99_ns, first_ns`, in order of begin.

    Of the outermost occurrences. `total_ns` is the union over the tracks of the process; mean and percentiles are those
    of single occurrences.
    """
    import polars as pl

    key = ("process", "stage")
    rows = occurrences.sort("start_ns").with_columns(new_ns=new_ns(key))
    per_process = rows.group_by("stage", "process", "rank", "host", "pid", "role").agg(
        count=pl.len().cast(pl.Int64),
        total_ns=pl.col("new_ns").sum(),
        **_of_single_ones(),
        first_ns=pl.col("start_ns").min(),
    )
    ordered = per_process.with_columns(stage_first_ns=pl.col("first_ns").min().over("stage"))
    return ordered.sort("stage_first_ns", pl.col("stage").cast(pl.String), "process").drop("stage_first_ns")


def totals(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`stage, count, mean_ns, p50_ns, p99_ns`: single occurrences of a stage over all processes."""
    import polars as pl

    return occurrences.group_by("stage").agg(count=pl.len().cast(pl.Int64), **_of_single_ones())


def _of_single_ones() -> dict[str, pl.Expr]:
    import polars as pl

    ns = pl.col("duration_ns")
    percentiles = {f"p{p}_ns": ns.quantile(p / 100, interpolation="nearest") for p in (50, 99)}
    return {"mean_ns": ns.mean(), **percentiles}


def endings(processes: pl.DataFrame, open_ranges: pl.DataFrame) -> pl.DataFrame:
    """The innermost open range on each track of each process that is gone without a word, the one entered last first.

    `row, track, step, stage, name, domain, start_ns, open_ns`; `row` is the process's row in `processes`; `open_ns` is
    from its begin until the process was last seen. Both tables are as `Run` gives them.
    """
    import polars as pl

    gone = processes.with_row_index("row").filter(pl.col("state").is_in((KILLED, LEFT))).select("row", "last_seen_ns")
    innermost = open_ranges.sort("depth", "start_ns").group_by("process", "track", maintain_order=True).last()
    return (
        innermost.rename({"process": "row"})
        .join(gone, on="row", how="inner")
        .with_columns(open_ns=(pl.col("last_seen_ns") - pl.col("start_ns")).clip(lower_bound=0))
        .sort(["row", "start_ns", "track"], descending=[False, True, False])
        .select("row", "track", "step", "stage", "name", "domain", "start_ns", "open_ns")
    )
