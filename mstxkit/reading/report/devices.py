"""What devices did in each stage, as a report shows it: from imports and the run's own profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...errors import ReadError
from .choice import stages_of
from .escape import NAME_LIMIT, for_rich
from .number_table import NOTHING
from .units import duration

if TYPE_CHECKING:
    from ..run import Run
    from .choice import ReportChoice

# What the time of a stage is divided into; transfer and waiting are parts of communicating.
PARTS = ("computing", "communicating", "transfer", "waiting", "free")
_TIMES = ("stage_ns", *(f"{part}_ns" for part in PARTS))
_STAGES_SHOWN, _RANKS_SHOWN = 16, 4


def summarise(run: Run, choice: ReportChoice) -> list[dict[str, Any]]:
    """Of each stage, the longest first, and rank: `stage, rank, steps, stage_ns` and each of PARTS in ns, a step.

    In the mean of the steps; what no file tells is None. *Cost*: the run's own profiles are joined the first time, a
    gigabyte of them at most.
    """
    import polars as pl

    rows = run.device().filter(choice.rows())
    if choice.stages is not None:
        rows = rows.filter(pl.col("stage").is_in(_stages_in(choice.stages, rows["stage"].unique().to_list())))
    if not rows.height:
        return []
    means = [pl.col(name).mean().round().cast(pl.Int64) for name in _TIMES]
    of_ranks = rows.group_by("stage", "rank").agg(pl.col("step").n_unique().cast(pl.Int64).alias("steps"), *means)
    most = pl.col("stage_ns").max().over("stage")
    return of_ranks.sort(most, "stage", "rank", descending=[True, False, False], nulls_last=True).to_dicts()


def _stages_in(wanted: tuple[str, ...], there: list[str]) -> list[str]:
    try:
        return sorted(stages_of(wanted, there))
    except ReadError:
        return []  # the report has it, and no device did anything in it


def lines(devices: list[dict[str, Any]], everything: bool) -> list[RenderableType]:
    """A table, where there is anything to show."""
    if not devices:
        return []
    stages: dict[str, list[dict[str, Any]]] = {}
    for row in devices:
        stages.setdefault(row["stage"], []).append(row)
    table = _empty()
    for stage in list(stages) if everything else list(stages)[:_STAGES_SHOWN]:
        _add(table, stage, stages[stage], len(stages[stage]) if everything else _RANKS_SHOWN)
    hidden = 0 if everything else len(stages) - _STAGES_SHOWN
    return [table, *([Text(f"… {hidden} shorter stages (--all)", "dim")] if hidden > 0 else [])]


def _empty() -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("devices, of a step", overflow="fold")
    for column in ("steps", "recorded", *PARTS):
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _add(table: Table, stage: str, rows: list[dict[str, Any]], shown: int) -> None:
    for row in rows if len(rows) <= shown + 1 else rows[:shown]:
        name = for_rich(stage, NAME_LIMIT).append(f"  rank {row['rank']}")
        values = (row[name] for name in _TIMES)
        table.add_row(name, str(row["steps"]), *(NOTHING if ns is None else duration(ns) for ns in values))
    if len(rows) > shown + 1:
        table.add_row(Text(f"  … {len(rows) - shown} more ranks (--all)", "dim"))
