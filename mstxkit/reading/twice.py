"""What is there twice: ranks, of two jobs in one folder or two roles that nobody has named; steps that begin again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..host.parts import TRAINER

if TYPE_CHECKING:
    import polars as pl

# A rank that is started again may begin while the one before it is still said to live.
_TOGETHER_FROM_NS = 5_000_000_000
_PLACE = ("attempt", "role", "rank")


def ranks(processes: pl.DataFrame) -> list[int]:
    """The ranks that two processes of one role were at once, in one attempt at the job, for 5 s or longer.
    `processes`: as `Run.processes()` has them.
    """
    import polars as pl

    own = processes.filter(pl.col("rank").is_not_null() & (pl.col("part") == TRAINER)).sort("start_ns")
    before_ns = pl.col("last_seen_ns").cum_max().shift().over(_PLACE)
    together_ns = pl.min_horizontal(pl.col("last_seen_ns"), before_ns) - pl.col("start_ns")
    twice = own.filter(before_ns.is_not_null() & (together_ns >= _TOGETHER_FROM_NS))
    return sorted(set(twice["rank"].to_list()))


def are_steps(stage_rows: pl.DataFrame) -> bool:
    """Does any process count its steps from an earlier one on, by epochs say? Then one number is of several steps.
    `stage_rows`: as `Run.stage_rows()` has them.
    """
    import polars as pl

    from ..judging.steps import OVERLAP_STEPS

    rows = stage_rows.filter(pl.col("step").is_not_null()).sort("start_ns")
    return bool(rows.select((pl.col("step").cum_max().over("process") - pl.col("step") > OVERLAP_STEPS).any()).item())
