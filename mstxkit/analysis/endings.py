"""Endings: what processes that were killed were inside of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

KILLED = "killed"


def table(processes: pl.DataFrame, open_ranges: pl.DataFrame) -> pl.DataFrame:
    """The innermost open range on each track of each killed process, the one entered last first.

    `row, track, step, stage, name, domain, start_ns, open_ns`; `row` is the process's row in `processes`; `open_ns` is
    from its begin until the process was last seen.

    Args:
        processes: as `Run.processes()` gives them.
        open_ranges: as `Run.open_ranges()` gives them.
    """
    import polars as pl

    killed = processes.with_row_index("row").filter(pl.col("state") == KILLED).select("row", "last_seen_ns")
    innermost = open_ranges.sort("depth", "start_ns").group_by("process", "track", maintain_order=True).last()
    return (
        innermost.rename({"process": "row"})
        .join(killed, on="row", how="inner")
        .with_columns(open_ns=(pl.col("last_seen_ns") - pl.col("start_ns")).clip(lower_bound=0))
        .sort(["row", "start_ns", "track"], descending=[False, True, False])
        .select("row", "track", "step", "stage", "name", "domain", "start_ns", "open_ns")
    )
