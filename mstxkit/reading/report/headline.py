"""What a report says first, in sentences: the verdict, why, what it would save, what to do next, the evidence."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ...stages import canonical
from . import nobody, verdict_words
from .escape import shown
from .number_table import percent
from .sentences import begun, blames, sentence
from .units import duration

STRAGGLER, CHANGE, LINK = "straggler", "change", "link"
# What is saved is told from such a share of the step on.
_TOLD_FROM = 0.002
_MORE = 8
# What numbers of a verdict's evidence mean; where all of these are there.
_WORDS = {
    ("excess_ratio",): "it takes {} longer than expected",
    ("lost_s", "step_s"): "{} of a step of {}",
    ("steps",): "seen in {} steps",
    ("members",): "{} ranks were compared",
}


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
        "evidence": evidence(verdict["evidence"]),
    }  # fmt: skip


def evidence(numbers: Mapping[str, Any]) -> str:
    """The numbers that a verdict rests on, as a sentence; those that have no words of their own stand behind it."""
    rest = {name: value for name, value in numbers.items() if name != "where"}
    clauses = []
    for names, words in _WORDS.items():
        if all(isinstance(rest.get(name), (int, float)) for name in names):
            values = [verdict_words.with_unit(name, rest.pop(name)) for name in names]
            clauses.append(words.format(*values))
    more = ", ".join(
        f"{shown(name)} {verdict_words.with_unit(name, value)}" for name, value in list(rest.items())[:_MORE]
    )
    return begun("; ".join(clauses)) + (f" ({more})" if more and clauses else more)


def saves(verdict: dict[str, Any], what_if: Sequence[dict[str, Any]]) -> str:
    """`without it a step takes 25.3 s, not 28.4 s: 11 % less`; "" where that is not known."""
    row = next((row for row in what_if if _is_of(row, verdict)), None)
    if row is None or row["saved_ratio"] is None or row["saved_ratio"] < _TOLD_FROM:
        return ""
    then, now = duration(row["without_ns"]), duration(row["step_ns"])
    return f"without it a step takes {then}, not {now}: {percent(row['saved_ratio'])} less"


def _is_of(row: dict[str, Any], verdict: dict[str, Any]) -> bool:
    """Is a row of what-if about what this verdict blames?"""
    if not blames(verdict) or verdict["stage"] is None or row["stage"] is None:
        return False
    if canonical(row["stage"]) != canonical(verdict["stage"]):
        return False
    if verdict["rank"] is not None:
        return bool(row["kind"] == STRAGGLER and row["rank"] == verdict["rank"])
    return row["kind"] in (CHANGE, LINK)
