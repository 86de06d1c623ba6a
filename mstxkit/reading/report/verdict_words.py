"""A verdict in sentences: what it is, why, what to do next, and the numbers it rests on. Every name is escaped."""

from __future__ import annotations

import math
from typing import Any, Callable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...store.verdicts import HANG
from . import nobody
from .escape import SENTENCE_LIMIT, for_terminal, shown
from .number_table import percent
from .sentences import blames, sentence
from .units import duration, size

_SHOWN, _NUMBERS_SHOWN = 5, 8


def lines(judged: dict[str, Any], verdicts: list[dict[str, Any]], saves: str = "") -> list[RenderableType]:
    """The report's first block.

    Args:
        judged: As the summary has it.
        verdicts: Those that hold, the first ones first.
        saves: What mending the first one saves, in words.
    """
    if not verdicts:
        words = nobody.words(judged)
        head = Text.assemble(("Verdict: ", "bold"), words.verdict)
        return [head, *_below([("why", words.why), *(("next", what) for what in words.next)])]
    shown_lines: list[RenderableType] = []
    for place, verdict in enumerate(verdicts[:_SHOWN]):
        why, *others = parts(verdict)
        shown_lines += [_headline(verdict), *_below([why, ("saves", "" if place else saves), *others])]
    if len(verdicts) > _SHOWN:
        shown_lines.append(Text(f"… and {len(verdicts) - _SHOWN} more verdicts (--json lists all)", "dim"))
    return shown_lines


def _headline(verdict: dict[str, Any]) -> Text:
    text = Text.assemble(("Verdict: ", "bold"), (sentence(verdict), "bold red" if blames(verdict) else "bold"))
    clauses = cost(verdict)
    return text.append(f": {clauses}." if clauses else ".")


def cost(verdict: dict[str, Any]) -> str:
    """`31 % of each step is lost by it, since step 3`; of a hang, after which there is no step, `nothing went on`."""
    impact = f"{percent(verdict['impact_ratio'])} of each step is lost by it" if verdict["impact_ratio"] else ""
    impact = "nothing went on" if verdict["kind"] == HANG else impact
    since = f"since step {verdict['since_step']}" if verdict["since_step"] is not None else ""
    return ", ".join(filter(None, (impact, since)))


def parts(verdict: dict[str, Any]) -> list[tuple[str, str]]:
    """What follows the sentence: why, what to do next, the evidence; "" where there is nothing to say."""
    evidence = [(name, value) for name, value in verdict["evidence"].items() if name != "where"]
    numbers = [f"{shown(name)} {with_unit(name, value)}" for name, value in evidence[:_NUMBERS_SHOWN]]
    more = [f"{len(evidence) - _NUMBERS_SHOWN} more (--json)"] if len(evidence) > _NUMBERS_SHOWN else []
    advice = for_terminal(verdict["next"] or "", SENTENCE_LIMIT)
    parts = [("why", _why(verdict)), ("profile", _profile(verdict)), ("next", advice)]
    return [*parts, ("evidence", ", ".join([*numbers, *more]))]


def _profile(verdict: dict[str, Any]) -> str:
    """What it has asked for by itself, or why it has not."""
    if verdict["request"]:
        return f"it has asked for one by itself: request {shown(verdict['request'])}"
    why_not = for_terminal(verdict["no_request"] or "", SENTENCE_LIMIT)
    return f"none was asked for: {why_not}" if why_not else ""


def _why(verdict: dict[str, Any]) -> str:
    waits = for_terminal(verdict["waits_for"] or "", SENTENCE_LIMIT)
    if not blames(verdict):
        return waits
    shares = {
        f"it explains {percent(verdict['coverage_ratio'])} of all that is lost": verdict["coverage_ratio"],
        f"seen in {percent(verdict['recurrence_ratio'])} of the steps since then": verdict["recurrence_ratio"],
        f"confidence {percent(verdict['confidence'])}": verdict["confidence"],
    }
    return "; ".join(filter(None, (waits, *(words for words, ratio in shares.items() if ratio))))


def with_unit(name: str, value: Any) -> str:
    """A number with its unit, by the end of its name."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return for_terminal(str(value), 100)
    for ending, written in _BY_ENDING.items():
        if name.endswith(ending):
            return written(value)
    return f"{value:g}" if isinstance(value, int) else f"{value:.3g}"


_BY_ENDING: dict[str, Callable[[float], str]] = {
    "_ns": duration,
    "_us": lambda us: duration(1e3 * us),
    "_ms": lambda ms: duration(1e6 * ms),
    "_s": lambda seconds: duration(1e9 * seconds),
    "_ratio": percent,
    "_bytes": size,
}


def _below(parts: list[tuple[str, str]]) -> list[Table]:
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
