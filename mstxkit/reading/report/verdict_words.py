"""A verdict in sentences: what it is, why, what to do next, and the numbers it rests on. Every name is escaped."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...store.verdicts import HANG
from . import nobody
from .escape import SENTENCE_LIMIT, for_terminal, shown
from .evidence_words import evidence
from .number_table import percent
from .sentences import blames, not_come, sentence

_SHOWN = 5


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
        return [head, *below([("why", words.why), *(("next", what) for what in words.next)])]
    shown_lines: list[RenderableType] = []
    for place, verdict in enumerate(verdicts[:_SHOWN]):
        why, *others = parts(verdict)
        shown_lines += [_headline(verdict), *below([why, ("saves", "" if place else saves), *others])]
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
    advice = for_terminal(verdict["next"] or "", SENTENCE_LIMIT)
    parts = [("why", _why(verdict)), ("profile", _profile(verdict)), ("next", advice)]
    return [*parts, ("evidence", evidence(verdict["evidence"]))]


def _profile(verdict: dict[str, Any]) -> str:
    """What it has asked for by itself, or why it has not."""
    why_not = for_terminal(verdict["no_request"] or "", SENTENCE_LIMIT)
    if verdict["request"]:
        return f"it has asked for one by itself: request {shown(verdict['request'])}{not_come(why_not)}"
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


def below(parts: list[tuple[str, str]]) -> list[Table]:
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
