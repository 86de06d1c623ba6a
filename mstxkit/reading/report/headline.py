"""What a report says first, in sentences: the verdict, why, what it would save, what to do next, the evidence."""

from __future__ import annotations

from typing import Any, Sequence

from ...stages import canonical
from . import nobody, verdict_words
from .number_table import percent
from .sentences import begun, blames, sentence
from .units import duration

STRAGGLER, CHANGE, LINK = "straggler", "change", "link"
# What is saved is told from such a share of the step on.
_TOLD_FROM = 0.002


def headline(
    judged: dict[str, Any], verdicts: Sequence[dict[str, Any]], what_if: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """`verdict, cost, why, saves, next, evidence` of the first verdict, as sentences; "" where there is nothing to say.

    Args:
        judged: As the summary has it.
        verdicts: Those that hold, the first ones first.
        what_if: Rows of `Run.what_if()`.
    """
    if not verdicts:
        words = nobody.words(judged)
        return {
            "verdict": begun(words.verdict), "blames": False, "cost": "", "why": words.why,
            "saves": "", "next": "; ".join(words.next), "evidence": "",
        }  # fmt: skip
    verdict = verdicts[0]
    parts = dict(verdict_words.parts(verdict))
    return {
        "verdict": begun(sentence(verdict)) + ".", "blames": blames(verdict), "cost": verdict_words.cost(verdict),
        "why": parts["why"], "saves": saves(verdict, what_if), "next": parts["next"],
        "evidence": begun(parts["evidence"]),
    }  # fmt: skip


def saves(verdict: dict[str, Any], what_if: Sequence[dict[str, Any]]) -> str:
    """`without it a step takes 25.3 s in the mean, not 28.4 s: 11 % less`; "" where that is not known."""
    row = next((row for row in what_if if _is_of(row, verdict)), None)
    if row is None or row["saved_ratio"] is None or row["saved_ratio"] < _TOLD_FROM:
        return ""
    then, now = duration(row["without_ns"]), duration(row["step_ns"])
    return f"without it a step takes {then} in the mean, not {now}: {percent(row['saved_ratio'])} less"


def _is_of(row: dict[str, Any], verdict: dict[str, Any]) -> bool:
    """Is a row of what-if about what this verdict blames?"""
    if not blames(verdict) or verdict["stage"] is None or row["stage"] is None:
        return False
    if canonical(row["stage"]) != canonical(verdict["stage"]):
        return False
    if verdict["rank"] is not None:
        return bool(row["kind"] == STRAGGLER and row["rank"] == verdict["rank"])
    return row["kind"] in (CHANGE, LINK)
