"""The report's tables: of stages, time a step, slowest rank first; of ranges, the longest names inside of each stage,
then those outside of any. At 80 columns names wrap, nothing else.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from .escape import NAME_LIMIT, for_rich
from .number_table import NOTHING, NumberTable
from .units import duration

RANKS_SHOWN = 5
# Of the attributes by which a stage says what it did: what one of it took, the column, and how many of it.
_WORK = {"tokens": ("token_ns", "per 1k\ntokens", 1000), "prompts": ("prompt_ns", "per\nprompt", 1)}
RANGES_SHOWN, RANGES_SHOWN_WITHOUT_STAGES = 3, 10


def stage_table(stages: list[dict[str, Any]], all_ranks: bool) -> list[RenderableType]:
    """The table, and what is not in it."""
    rows = [row for stage in stages for row in stage["ranks"]]
    has_steps = any(row["steps"] for row in rows)
    work = next((_WORK[work] for work in _WORK if any(row[work] for row in rows)), None)
    columns = ("over\nmiddle", "mean", "p99", *([work[1]] if work else []))
    table = NumberTable("stages, in order\nranks, slowest first", has_steps, *columns)
    for stage in stages:
        _add_stage(table, stage, work, len(stage["ranks"]) if all_ranks else RANKS_SHOWN)
    stepless = [stage for stage in stages if stage["stepless"] and has_steps]
    what = "occurrences are in no step, and not in its time a step"
    lines = (f": {stage['stepless']} of its {stage['count']} {what}" for stage in stepless)
    return [table, *(for_rich(stage["stage"], NAME_LIMIT).append(line) for stage, line in zip(stepless, lines))]


def _add_stage(table: NumberTable, stage: dict[str, Any], work: Any, shown: int) -> None:
    rows, name = stage["ranks"], for_rich(stage["stage"], NAME_LIMIT, "bold")
    if len(rows) == 1:
        table.add_row(Text.assemble(name, f"  {rows[0]['label']}"), *_numbers(table, rows[0], work, is_middle=True))
        return
    middle = next(row for row in rows if row["label"] == stage["middle"]["label"])
    compared = sum(row["step_ns"] is not None for row in rows)
    table.add_row(Text.assemble(name, f"  middle of {compared}"), *_numbers(table, middle, work, is_middle=True))
    listed = rows if len(rows) <= shown + 1 else rows[:shown]
    for row in listed:
        label, style = str(row["label"]), ""
        if row["is_cause"]:
            label, style = f"{label}, the cause", "bold red"
        elif row["waits_for"] is not None:
            label, style = f"{label} waits for rank {row['waits_for']['rank']}", "dim"
        table.add_inner(Text(label, style), *_numbers(table, row, work))
    if rest := rows[len(listed) :]:
        waiting = {row["waits_for"] and row["waits_for"]["rank"] for row in rest}
        whom = f" wait for rank {max(waiting)}" if len(waiting) == 1 and None not in waiting else ""
        table.add_inner(Text(f"… {len(rest)} {'faster' if waiting == {None} else 'more'}{whom} (--all)", "dim"))


def _numbers(table: NumberTable, row: dict[str, Any], work: Any, is_middle: bool = False) -> list[str]:
    over, per_one = row.get("over_middle_ratio"), row[work[0]] if work else None
    compared = "" if is_middle or over is None else "waits" if row["waits_for"] else f"{round(100 * over):+} %"
    singles = [duration(row["mean_ns"]), duration(row["p99_ns"])]
    of_work = [NOTHING if per_one is None else duration(per_one * work[2])] if work else []
    return [*table.of_a_step(row), compared, *singles, *of_work]


def range_table(ranges: list[dict[str, Any]], top: int | None, all_of_them: bool) -> RenderableType:
    """`top`: so many of each stage."""
    by_stage = [(stage, list(rows)) for stage, rows in groupby(ranges, lambda row: row["stage"])]
    has_stages = any(stage is not None for stage, _ in by_stage)
    shown = (RANGES_SHOWN if has_stages else RANGES_SHOWN_WITHOUT_STAGES) if top is None else top
    table = NumberTable("ranges, longest first", any(row["steps"] for row in ranges), "mean", "max")
    for stage, rows in by_stage:
        if has_stages:
            heading = Text.assemble("in ", for_rich(stage or "", NAME_LIMIT, "bold"))
            table.add_row(Text("in no stage", "bold") if stage is None else heading)
        for row in rows if all_of_them or len(rows) <= shown + 1 else rows[:shown]:
            name = for_rich(row["name"], NAME_LIMIT)
            if row["domain"] != "default":
                name.append(" of ").append(for_rich(row["domain"], NAME_LIMIT))
            table.add_inner(name, *table.of_a_step(row), duration(row["mean_ns"]), duration(row["max_ns"]))
        if len(rows) > shown + 1 and not all_of_them:
            table.add_inner(Text(f"… {len(rows) - shown} shorter (--ranges {len(rows)})", "dim"))
    return table
