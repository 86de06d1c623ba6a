"""Tables of times in a report: names that wrap, then numbers that never do, also where there are 80 columns only."""

from __future__ import annotations

from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .units import duration

NOTHING = "–"


class NumberTable:
    """A name, the time a step, its share, how often a step, and more columns. Without steps, those of the whole run."""

    def __init__(self, name: str, has_steps: bool, *columns: str) -> None:
        self._has_steps, self._columns = has_steps, len(columns)
        self.table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        self.table.add_column(_on_two_lines(name), overflow="fold")
        of_a_step = ("time\na step", "share", "times\na step") if has_steps else ("time\nin all", "times\nin all")
        for column in (*of_a_step, *columns):
            self.table.add_column(_on_two_lines(column), justify="right", no_wrap=True)

    def of_a_step(self, row: dict[str, Any]) -> list[str]:
        """The cells of the first columns. What a table of steps has of what is in no step, is of no step."""
        if not self._has_steps:
            return [duration(row["total_ns"]), str(row["count"])]
        if not row["steps"]:
            return [NOTHING] * 3
        return [duration(row["step_ns"]), share(row["share_ratio"]), times(row["step_count"])]

    def add(self, name: Text, *numbers: str) -> None:
        """A row."""
        self.table.add_row(name, *numbers)

    def add_inner(self, name: Text, *numbers: str) -> None:
        """A row of what belongs to the row above: indented, also where it wraps."""
        self.table.add_row(Padding(name, (0, 0, 0, 2)), *numbers)


def _on_two_lines(header: str) -> str:
    return header if "\n" in header else f"\n{header}"


def percent(ratio: float | None) -> str:
    """93 %; of less than half a percent, but not nothing: <1 %."""
    if ratio is None:
        return NOTHING
    return "<1 %" if 0 < ratio < 0.005 else f"{100 * ratio:.0f} %"


def share(ratio: float | None) -> str:
    """As a percentage; where calls overlap so that it is more than the whole: how many at once, 23 at once."""
    return percent(ratio) if ratio is None or ratio < 1.5 else f"{ratio:.0f} at once"


def times(count: float) -> str:
    """16, 10.5, 0.05."""
    return f"{count:.0f}" if count >= 100 or count == int(count) else f"{count:.1f}" if count >= 1 else f"{count:.2g}"
