"""Tables of times in a report: names that wrap, then numbers that never do, however narrow a terminal is.

Of stages, time a step, slowest rank first; of ranges the longest inside of each stage, then those outside of any.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .escape import NAME_LIMIT, for_rich
from .units import write_duration

NOTHING = "–"
_NAME_LEAST, _NAME_MOST = 12, 28
RANKS_SHOWN = 5
# Of the attributes by which a stage says what it did: what one of it took, the column, and how many of it.
_WORK = {"tokens": ("token_ns", "per 1k\ntokens", 1000), "prompts": ("prompt_ns", "per\nprompt", 1)}
RANGES_SHOWN, RANGES_SHOWN_WITHOUT_STAGES = 3, 10


class PlainTable(Table):
    """Without lines. Where it has more numbers than fit the terminal, its lines are longer, and nothing is cut.
    `options`: of its columns, as rich has them; numbers, in those on the `right`, never wrap.
    """

    def __init__(self, *columns: str, right: Sequence[str] = (), has_header: bool = True, **options: Any) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=has_header)
        for name in columns:
            number: dict[str, Any] = {"justify": "right", "no_wrap": True} if name in right else {}
            self.add_column(name, **{"overflow": "fold", **options, **number})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As wide as its numbers are. Names wrap, the longest first; columns stand closer where fewer words break."""
        wide, names = options.update(max_width=1 << 16), [not column.no_wrap for column in self.columns]
        texts = [[Measurement.get(console, wide, text) for text in (c.header, *c.cells)] for c in self.columns]
        words = [
            max(text.minimum if is_name and text.maximum > _NAME_MOST else text.maximum for text in column)
            for column, is_name in zip(texts, names)
        ]

        def fitted(gap: int) -> tuple[list[int], int, int]:
            """The columns of which words break, how wide all are then, and `gap`."""
            least, broken = sum(words) + gap * len(words), []
            for place in sorted(range(len(words)), key=words.__getitem__, reverse=True):
                if names[place] and least > options.max_width:
                    broken.append(place)
                    least -= max(0, words[place] - _NAME_LEAST)
            return broken, least, gap

        broken, least, gap = min(fitted(2), fitted(1), key=lambda each: (len(each[0]), each[1] > options.max_width))
        self.padding = (0, gap, 0, 0)
        for place, column in enumerate(self.columns):
            is_short = max(text.maximum for text in texts[place]) <= _NAME_MOST
            column.no_wrap = not names[place] or (is_short and place not in broken)
        yield from super().__rich_console__(console, options.update(max_width=max(options.max_width, least)))


class NumberTable(PlainTable):
    """A name, the time a step, its share, how often a step, and more columns. Without steps, those of the whole run."""

    def __init__(self, name: str, has_steps: bool, *columns: str) -> None:
        self._has_steps = has_steps
        of_a_step = ("time\na step", "share", "times\na step") if has_steps else ("time\nin all", "times\nin all")
        headers = [header if "\n" in header else f"\n{header}" for header in (name, *of_a_step, *columns)]
        super().__init__(*headers, right=headers[1:])

    def of_a_step(self, row: dict[str, Any]) -> list[str]:
        """The cells of the first columns. What a table of steps has of what is in no step, is of no step."""
        if not self._has_steps:
            return [write_duration(row["total_ns"]), str(row["count"])]
        if not row["steps"]:
            return [NOTHING] * 3
        # Where calls overlap so that their share is more than the whole: how many at once, 23 at once.
        ratio = row["share_ratio"]
        share = write_percent(ratio) if ratio is None or ratio < 1.5 else f"{ratio:.0f} at once"
        return [write_duration(row["step_ns"]), share, write_times(row["step_count"])]

    def add_inner(self, name: Text, *numbers: str) -> None:
        """A row of what belongs to the row above: indented, also where it wraps."""
        self.add_row(Padding(name, (0, 0, 0, 2)), *numbers)


def write_percent(ratio: float | None) -> str:
    """93 %; of less than half a percent, but not nothing: <1 %."""
    if ratio is None:
        return NOTHING
    return "<1 %" if 0 < ratio < 0.005 else f"{100 * ratio:.0f} %"


def write_times(count: float) -> str:
    """16, 10.5, 0.05."""
    return f"{count:.0f}" if count >= 100 or count == int(count) else f"{count:.1f}" if count >= 1 else f"{count:.2g}"


def indent_lines(parts: Sequence[tuple[str, str]]) -> list[RenderableType]:
    """A line for each that says something, indented also where it wraps."""
    if not any(text for _, text in parts):
        return []
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for word, text in parts:
        if text:
            table.add_row(Text(f"  {word}", "dim"), Text(text))
    return [table]


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
        table.add_row(
            Text.assemble(name, f"  {rows[0]['label']}"), *_write_numbers(table, rows[0], work, is_middle=True)
        )
        return
    middle = next(row for row in rows if row["label"] == stage["middle"]["label"])
    compared = sum(row["step_ns"] is not None for row in rows)
    table.add_row(Text.assemble(name, f"  middle of {compared}"), *_write_numbers(table, middle, work, is_middle=True))
    listed = rows if len(rows) <= shown + 1 else rows[:shown]
    for row in listed:
        label, style = str(row["label"]), ""
        if row["is_cause"]:
            label, style = f"{label}, the cause", "bold red"
        elif row["waits_for"] is not None:
            label, style = f"{label} waits for rank {row['waits_for']['rank']}", "dim"
        table.add_inner(Text(label, style), *_write_numbers(table, row, work))
    if rest := rows[len(listed) :]:
        waiting = {row["waits_for"] and row["waits_for"]["rank"] for row in rest}
        whom = f" wait for rank {max(waiting)}" if len(waiting) == 1 and None not in waiting else ""
        table.add_inner(Text(f"… {len(rest)} {'faster' if waiting == {None} else 'more'}{whom} (--all)", "dim"))


def _write_numbers(table: NumberTable, row: dict[str, Any], work: Any, is_middle: bool = False) -> list[str]:
    over, per_one = row.get("over_middle_ratio"), row[work[0]] if work else None
    compared = "" if is_middle or over is None else "waits" if row["waits_for"] else f"{round(100 * over):+} %"
    singles = [write_duration(row["mean_ns"]), write_duration(row["p99_ns"])]
    of_work = [NOTHING if per_one is None else write_duration(per_one * work[2])] if work else []
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
            table.add_inner(name, *table.of_a_step(row), write_duration(row["mean_ns"]), write_duration(row["max_ns"]))
        if len(rows) > shown + 1 and not all_of_them:
            table.add_inner(Text(f"… {len(rows) - shown} shorter (--ranges {len(rows)})", "dim"))
    return table
