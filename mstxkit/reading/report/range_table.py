"""The report's table of ranges: the longest names inside of each stage, then those outside of any."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from .escape import NAME_LIMIT, for_rich
from .number_table import NumberTable
from .units import duration

SHOWN, SHOWN_WITHOUT_STAGES = 3, 10


def range_table(ranges: list[dict[str, Any]], top: int | None, all_of_them: bool) -> RenderableType:
    """`top`: so many of each stage."""
    by_stage = [(stage, list(rows)) for stage, rows in groupby(ranges, lambda row: row["stage"])]
    has_stages = any(stage is not None for stage, _ in by_stage)
    shown = (SHOWN if has_stages else SHOWN_WITHOUT_STAGES) if top is None else top
    table = NumberTable("ranges, longest first", any(row["steps"] for row in ranges), "mean", "max")
    for stage, rows in by_stage:
        if has_stages:
            heading = Text.assemble("in ", for_rich(stage or "", NAME_LIMIT, "bold"))
            table.add_row(Text("in no stage", "bold") if stage is None else heading)
        for row in rows if all_of_them or len(rows) <= shown + 1 else rows[:shown]:
            table.add_inner(_name(row), *table.of_a_step(row), duration(row["mean_ns"]), duration(row["max_ns"]))
        if len(rows) > shown + 1 and not all_of_them:
            table.add_inner(Text(f"… {len(rows) - shown} shorter (--ranges {len(rows)})", "dim"))
    return table


def _name(row: dict[str, Any]) -> Text:
    name = for_rich(row["name"], NAME_LIMIT)
    return name if row["domain"] == "default" else name.append(" of ").append(for_rich(row["domain"], NAME_LIMIT))
