"""A comparison on a terminal. Every name in it goes through `escape`."""

from __future__ import annotations

from typing import Callable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ..report.escape import escape_name, for_rich, for_terminal
from ..report.number_table import PlainTable
from ..report.units import write_duration
from .comparing import Comparison
from .difference import Difference
from .rows import RANK, STAGE, STEP, ComparedTime
from .sides import Side

_RANKS_SHOWN, _CHANGES_SHOWN, _LEFT_OUT_SHOWN = 8, 12, 8
_STYLES = {"slower": "bold red", "faster": "bold green", "more work": "bold", "less work": "bold"}


def render_comparison(comparison: Comparison, everything: bool = False) -> RenderableType:
    """All of it: the verdict, what changed first, what changed with it; then stages and the ranks that have changed."""
    after, before = _tell_side(comparison.after), _tell_side(comparison.before)
    parts: list[RenderableType] = [Text.assemble(("After ", "bold"), after, ("\nagainst ", "bold"), before)]
    parts += [_write_headline(row, comparison.other_work) for row in comparison.of(STEP)]
    parts += _tell_first(comparison)
    if comparison.other_work:
        parts.append(Text("The two sides do not do the same work: only times for one token can be compared.", "bold"))
    changes = ([for_terminal(part, 80) for part in change] for change in comparison.with_it)
    changed = [f"{what}: {before or 'none'} → {after or 'none'}" for what, before, after in changes]
    parts += _list_texts("with it", changed, _CHANGES_SHOWN)
    stages = comparison.of(STAGE)
    roles = "role" if _has_roles(comparison) else ""
    parts += [Text(), _draw_table(stages, roles, lambda row: for_rich(row.role))] if stages else []
    parts += _find_ranks(comparison, everything)
    parts += _list_texts("left out", [for_terminal(words) for words in comparison.left_out], _LEFT_OUT_SHOWN)
    return Group(*parts)


def _tell_side(side: Side) -> str:
    steps = sum(len(steps) for steps in side.steps.values())
    of_roles = f" of {len(side.steps)} roles" if len(side.steps) > 1 else ""
    return f"{for_terminal(side.path)}, steps {side.first_step} to {side.last_step} ({steps} steps{of_roles})"


def _write_headline(row: ComparedTime, other_work: bool) -> Text:
    """Where the two sides do other work, the length of a step does not say who is slower."""
    time, each = row.time, row.judged
    word, style = {1: "Longer", -1: "Shorter", 0: "No difference seen"}[time.direction], "bold"
    if row.verdict in ("slower", "faster") and not other_work:
        word, style = row.verdict.capitalize(), _STYLES[row.verdict]
    whose = f" of {escape_name(row.role)}" if row.role else ""
    took = f"a step{whose} takes {write_duration(1e9 * time.after)}, before {write_duration(1e9 * time.before)}"
    by, of_same = (f"{write_percent(of.ratio)} ({write_interval(of)})" for of in (time, each))
    of_work = f"; for the same work {of_same}" if write_percent(each.ratio) != write_percent(time.ratio) else ""
    return Text.assemble((f"{word}: ", style), took, f": {by}{of_work}")


def _tell_first(comparison: Comparison) -> list[Text]:
    row = comparison.first
    if row is None:
        return []
    since = "from its first step on" if row.since_step == comparison.after.first_step else f"from step {row.since_step}"
    whose = f" of {escape_name(row.role)}" if _has_roles(comparison) else ""
    seconds = row.time.after - row.time.before
    more = f"{'+' if seconds >= 0 else '-'}{write_duration(1e9 * abs(seconds))} in the member that takes longest"
    if row.tokens is not None and row.tokens.direction:  # of a token, where there are more or fewer of them
        more = f"{write_percent(row.judged.ratio)} for a token"
    return [Text.assemble(("  first     ", "dim"), f"{escape_name(row.stage)}{whose}, {since}: ", more)]


def _has_roles(comparison: Comparison) -> bool:
    """Several, each of which may have that stage and that rank."""
    return len(comparison.before.steps) > 1


def _list_texts(word: str, texts: list[str], limit: int) -> Iterator[Text]:
    for place, text in enumerate(texts[:limit]):
        yield Text.assemble((f"  {word if place == 0 else '':<9} ", "dim"), text)
    if len(texts) > limit:
        yield Text(f"  … and {len(texts) - limit} more (--json lists all)", "dim")


def _draw_table(rows: list[ComparedTime], first: str, name: Callable[[ComparedTime], RenderableType]) -> PlainTable:
    """After what is in the first column ("": nothing); with one of the time for a token where any row has one."""
    has_tokens = any(row.per_token is not None for row in rows)
    numbers = ("before", "after", "change", "between", *(("a token",) if has_tokens else ()))
    table = PlainTable(*filter(None, [first]), "stage", *numbers, right=numbers)
    table.columns[0].justify = "right" if first == "rank" else "left"
    table.add_column("")
    for row in rows:
        time = row.time
        figures = [write_duration(1e9 * seconds) for seconds in (time.before, time.after)]
        figures += [write_percent(time.ratio), write_interval(time)]
        if has_tokens:
            figures.append("" if row.per_token is None else write_percent(row.per_token.ratio))
        words = [row.verdict] if row.verdict != "alike" else []
        words += ["no difference seen for a token"] if not words and row.time.direction else []
        remark = Text("; ".join(words + ["members wait in it"] * row.waits), _STYLES.get(row.verdict, ""))
        table.add_row(*([name(row)] if first else []), for_rich(row.stage or "", 48), *figures, remark)
    return table


def _find_ranks(comparison: Comparison, everything: bool) -> list[RenderableType]:
    """Ranks that have changed, where the others have not by as much: what most have in common is the stage's."""
    every = comparison.of(RANK)
    rows = [row for row in every if everything]
    for row in (row for row in every if not everything and row.verdict != "alike"):
        own, others = row.telling, [other for other in every if (other.role, other.stage) == (row.role, row.stage)]
        ratios = sorted((other.time if row.has_other_work else other.judged).ratio for other in others)
        middle = ratios[(len(ratios) - 1) // 2] if own.ratio > 0 else ratios[len(ratios) // 2]
        rows += [row] if (own.low > middle if own.ratio > 0 else own.high < middle) else []
    if not rows:
        return []
    rows.sort(key=lambda row: (row.has_other_work, -abs(row.telling.ratio)))
    kept = rows if everything else rows[:_RANKS_SHOWN]
    whose = "{0.role} {0.rank}" if _has_roles(comparison) else "{0.rank}"
    table = _draw_table(kept, "rank", lambda row: for_rich(whose.format(row)))
    more = [Text(f"… and {len(rows) - len(kept)} more (--all)", "dim")] if len(rows) > len(kept) else []
    return [Text(), table, *more]


def write_percent(ratio: float) -> str:
    """+9.1 %, -40 %."""
    value = 100 * ratio
    return f"{value:+.1f} %" if abs(value) < 9.95 else f"{value:+.0f} %"


def write_interval(time: Difference) -> str:
    """`+6 to +12 %`: where the true ratio lies."""
    low, high = 100 * time.low, 100 * time.high
    digits = 1 if max(abs(low), abs(high)) < 9.95 else 0
    return f"{low:+.{digits}f} to {high:+.{digits}f} %"
