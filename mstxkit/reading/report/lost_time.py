"""What the steps of a run lose, each loss by what a step would take without it: causes, tails, uneven work.

A loss that has a verdict is told in the verdict's words, by the steps of the run where these were replayed without it.
What a tail or uneven work costs is only what it costs beside the causes that are told: one effect has one figure.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Sequence

from ...stages import canonical_key
from ...store.values import finite_number
from ...store.verdicts import ALL_SLOW, COMPUTE, HANG, IMBALANCE, INPUT, JITTER, NOT_ENOUGH_EVIDENCE, SERIAL
from . import no_verdict, step_words
from .account import Account, Matter, Rows
from .escape import SENTENCE_LIMIT, escape_name, for_terminal
from .number_table import write_percent
from .sentences import blames_cause, write_sentence
from .units import write_duration, write_size, write_spans

STRAGGLER, ALONE, CHANGE, LINK = "straggler", "alone", "change", "link"
TAIL, BUBBLE, SPLIT = "tail", "bubble", "split"
# A loss that no verdict tells of is told from such a share of the run's time on: of a rank, and of anything else.
TOLD_FROM = {STRAGGLER: 0.02, ALONE: 0.05, LINK: 0.02, CHANGE: 0.05, TAIL: 0.05, BUBBLE: 0.05, SPLIT: 0.05}
_ADVICE = {
    TAIL: "let long responses begin first, or go on beside the next stage; share them out among ranks by their length",
    BUBBLE: "where some have more work, share it out by its length (tokens, responses), not by its count",
}
_WHOLE = 0.95  # of all steps
_OF_SETS = (COMPUTE, INPUT, SERIAL, NOT_ENOUGH_EVIDENCE)
_BY_ENDING: dict[str, Callable[[float], str]] = {
    "_ns": write_duration,
    "_us": lambda us: write_duration(1e3 * us),
    "_ms": lambda ms: write_duration(1e6 * ms),
    "_s": lambda seconds: write_duration(1e9 * seconds),
    "_ratio": write_percent,
    "_bytes": write_size,
}


def weigh_losses(account: Account) -> tuple[list[Matter], float]:
    """All that are worth being told of; and what the costliest of the others saves, as a share of the run's time."""
    judged = [verdict for verdict in account.verdicts if verdict["kind"] != HANG]
    rows = [row for row in account.what_if if row["saved_ratio"]]
    replayed = _find_replayed(account, judged, rows)
    matters = [_by_steps(account, of_verdict(verdict), row) for verdict, row in zip(judged, replayed)]
    if account.judged["why_not"] not in ("", no_verdict.NO_PEER) or no_verdict.is_too_short(account.judged):
        return matters, 0.0
    several = {_key_of(row["stage"]) for row in rows if row["kind"] == STRAGGLER and row["group"]}
    alone = {of["role"]: sum(m.weight for v, m in zip(judged, matters) if v["role"] == of["role"]) for of in judged}
    pairs = zip(matters, judged)
    matters = [m if _key_of(m.stage) in several else _with_others(m, v, alone[v["role"]]) for m, v in pairs]
    explained = [(v["role"], v["stage"], m.weight) for v, m in zip(judged, matters) if m.blames]
    others = []
    rest = [row for row in rows if row not in replayed and not any(_is_of_set(verdict, row) for verdict in judged)]
    for gone in account.judged["withdrawn"]:
        of_set = [row for row in rest if _is_of_set(gone, row)]
        rest = [row for row in rest if row not in of_set[1:]]
    for row in (row for kind in TOLD_FROM for row in rest if row["kind"] == kind):
        saved = row["saved_ratio"] - (row["error_ratio"] or 0.0)
        weight = saved * _share_of(account, row) - _sum_explained(row, explained)
        if weight > 0:
            others.append(_of_row(account, row, weight))
            explained.append((row["role"], row["stage"], weight))
    told_of = [matter for matter in others if matter.weight >= TOLD_FROM[matter.kind]]
    return matters + told_of, max((matter.weight for matter in others if matter not in told_of), default=0.0)


def _sum_explained(row: Mapping[str, Any], losses: Sequence[tuple[str | None, str | None, float]]) -> float:
    """How much of what a row saves is told already: of a slow rank nothing, of a tail, of few steps and of who is
    alone what is in that stage, else all that is of its role.
    """
    return sum(
        weight for role, stage, weight in losses
        if (role or "") == row["role"] and row["kind"] not in (STRAGGLER, LINK)
        and (row["kind"] not in (ALONE, CHANGE, TAIL) or _key_of(stage) == _key_of(row["stage"]))
    )  # fmt: skip


def _key_of(stage: str | None) -> str | None:
    return stage and canonical_key(stage)


def _find_replayed(account: Account, verdicts: Rows, rows: Rows) -> list[Mapping[str, Any] | None]:
    """Of each verdict the row of what-if that is about what it blames; a row is of one of them."""
    replayed: list[Mapping[str, Any] | None] = []
    for verdict in verdicts:
        of_ranks = (ALONE,) if verdict["kind"] == SERIAL else (STRAGGLER,)
        kinds = (CHANGE, LINK, *of_ranks) if verdict["rank"] is None and not verdict["process"] else of_ranks
        same = (
            row for row in rows if row not in replayed
            and ((row["kind"] in kinds and _is_of(verdict, row)) or _is_its_tail(account, verdict, row))
        )  # fmt: skip
        names_any = (blames_cause(verdict) or verdict["group"]) and verdict["stage"] is not None
        replayed.append(next(same, None) if names_any else None)
    return replayed


def _is_its_tail(account: Account, verdict: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Is the tail of a stage what the verdict tells of: of nobody alone, or of who is last there in most steps?"""
    is_of_same = row["kind"] == TAIL and _key_of(row["stage"]) == _key_of(verdict["stage"])
    if not is_of_same or verdict["kind"] not in (IMBALANCE, JITTER):
        return False
    return verdict["rank"] is None or any(
        rank == verdict["rank"] and 2 * count > tail["steps"]
        for tail in _find_tails(account, row) for rank, count in tail["often"]
    )  # fmt: skip


def _find_tails(account: Account, row: Mapping[str, Any]) -> Rows:
    return [t for t in account.tails if (t["role"], _key_of(t["stage"])) == (row["role"], _key_of(row["stage"]))]


def _is_of(verdict: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Is it of the same process, or one of the same several, and of the same stage?"""
    is_of_same = row["rank"] == verdict["rank"] and _key_of(row["stage"]) == _key_of(verdict["stage"])
    is_one = is_of_same and (row["rank"] is not None or (row["who"] or "") == verdict["process"])
    return is_one or _is_of_set(verdict, row)


def _is_of_set(verdict: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Is it of one of several that are slow together, or of another stage of it, each of which has what all save?"""
    is_also = row["stage"] in str(verdict["evidence"].get("also_in", "")).split(", ")
    is_there = is_also or _key_of(row["stage"]) == _key_of(verdict["stage"])
    is_set = verdict["kind"] in _OF_SETS and verdict["rank"] is None
    is_it = is_set and (row["rank"] in verdict["group"] or row["group"] == write_spans(verdict["group"]))
    is_it = is_it or (is_also and row["rank"] == verdict["rank"])
    return is_it and is_there and row["kind"] in (STRAGGLER, ALONE)


def of_verdict(verdict: Mapping[str, Any]) -> Matter:
    """In its own words."""
    advice, command, rest = for_terminal(verdict["next"] or "", SENTENCE_LIMIT).partition("mstxkit ")
    since = "" if verdict["since_step"] is None else f", since step {verdict['since_step']}"
    cost = "nothing goes on" if verdict["kind"] == HANG else ""
    if verdict["impact_ratio"] and not cost:
        cost = f"{write_percent(verdict['impact_ratio'])} of each step is lost by it{since}"
    shares = {"seen in {} of the steps since then": verdict["recurrence_ratio"], "confidence {}": verdict["confidence"]}
    sureness = [words.format(write_percent(ratio)) for words, ratio in shares.items() if ratio]
    why_not = for_terminal(verdict["no_request"] or "", SENTENCE_LIMIT)
    profile = f"none was asked for: {why_not}" if why_not else ""
    if verdict["request"]:
        but = f", which did not come: {why_not}" if why_not else ""
        profile = f"it has asked for one by itself: request {escape_name(verdict['request'])}{but}"
    return Matter(
        verdict["kind"], write_sentence(verdict), cost,
        for_terminal(verdict["waits_for"] or "", SENTENCE_LIMIT), advice.rstrip(" ;:").removesuffix("; or"),
        profile, "; ".join([*sureness, write_evidence(verdict["evidence"])]), command + rest, blames_cause(verdict),
        verdict["impact_ratio"], verdict["stage"], () if verdict["rank"] is None else (verdict["rank"],),
        verdict["since_step"] if verdict["kind"] in (ALL_SLOW, NOT_ENOUGH_EVIDENCE) else None,
    )  # fmt: skip


def _by_steps(account: Account, matter: Matter, row: Mapping[str, Any] | None) -> Matter:
    """As the run's own steps have it, where these tell; its cost: `without it a step takes 143 ms, not 262: 45 % less,
    in steps 150 to 189 (40 of 300)`, or `in 9 of steps …`.
    """
    if row is None:
        return matter
    is_later = account.steps and row["last_step"] > row["first_step"] > account.steps[0]  # than the first that there is
    count, (first, last) = row["last_step"] - row["first_step"] + 1, account.steps or (0, -1)
    part = "" if not account.steps or count > _WHOLE * (last - first + 1) else f" ({count} of {last - first + 1})"
    less = f"{write_percent(row['saved_ratio'])}{step_words.write_error(row)} less"
    times = f"{write_duration(row['without_ns'])}, not {write_duration(row['step_ns'])}"
    to = f"{row['steps']} of " if row.get("steps") else ""
    to += f"steps {row['first_step']} to" if count > 1 else "step"
    cost = f"without it a step takes {times}: {less}, in {to} {row['last_step']}{part}"
    since = row["first_step"] if is_later else None
    # What holds goes on: from now on it costs as much.
    return matter._replace(cost=cost, weight=row["saved_ratio"], since_step=since, blames=True)


def _with_others(matter: Matter, verdict: Mapping[str, Any], alone: float) -> Matter:
    """With what all causes of its role cost together, where that is far more than each costs `alone`, all of these in
    sum: one hides the other.
    """
    together = finite_number(verdict["evidence"].get("together_ratio")) or 0.0
    if not matter.blames or together < max(TOLD_FROM[STRAGGLER], 2 * alone):
        return matter
    cost = f"{matter.cost}; {write_percent(together)} without all that take longer"
    return matter._replace(cost=cost, weight=together)


def _of_row(account: Account, row: Mapping[str, Any], weight: float) -> Matter:
    """A loss that no verdict tells of."""
    kind, stage = row["kind"], escape_name(row["stage"])
    words = {
        **dict.fromkeys((STRAGGLER, ALONE, CHANGE), step_words.describe_slow(row)),
        LINK: f"the collectives of ranks {row['group']} are slow in {stage}",
        TAIL: f"there is a long tail in {stage}: all wait for the last of it",
        BUBBLE: f"ranks are not done together: they wait for the last of them {step_words.WHERE[row['where']]} {stage}",
        SPLIT: f"trainers and rollouts wait for each other: {row['trainers']} and {row['rollouts']} would be better",
    }[kind]  # fmt: skip
    whose = f" (role {escape_name(row['role'])})" if account.roles > 1 and row["role"] else ""
    ranks = () if row["rank"] is None else (row["rank"],)
    gates = [gate for gate in account.held_up_by if kind == BUBBLE and gate["role"] == row["role"]][:1]
    where = next((gate["stage"] for gate in gates), stage)
    # Of a tail who is last; of waiting for whom most of it is; of a rank that is not blamed any more, why not.
    withdrawn = account.judged["withdrawn"] if kind == STRAGGLER else ()
    why = [
        *(map(step_words.whose_tail, _find_tails(account, row)) if kind == TAIL else ()),
        *map(step_words.held_up, gates),
        *(for_terminal(v["withdrawn"], SENTENCE_LIMIT) for v in withdrawn if blames_cause(v) and _is_of(v, row)),
    ]  # fmt: skip
    matter = Matter(kind, words + whose, "", "; ".join(why), _ADVICE.get(kind, ""), stage=where, ranks=ranks)
    return _by_steps(account, matter, row)._replace(weight=weight)


def _share_of(account: Account, row: Mapping[str, Any]) -> float:
    """Of the time of the run's steps, how much the row is of."""
    first, last = account.steps or (row["first_step"], row["last_step"])
    whole = (each["step_ns"] for each in account.what_if if (each["first_step"], each["last_step"]) == (first, last))
    longer = (row["step_ns"] or 0) / (next(whole, None) or row["step_ns"] or 1)
    return float(min(1.0, longer * (row["last_step"] - row["first_step"] + 1) / (last - first + 1)))


def write_evidence(numbers: Mapping[str, Any]) -> str:
    """`excess 99 %, lost 20.3 ms, members 2, host node3`, every name escaped; "" where there is none."""
    texts = []
    for name, value in numbers.items():
        words, ending = escape_name(name).replace("_", " "), next((end for end in _BY_ENDING if name.endswith(end)), "")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            texts += [] if value in (None, "") else [f"{words} {for_terminal(str(value), 100)}"]
        elif ending:
            texts.append(f"{words[: -len(ending)]} {_BY_ENDING[ending](value)}")
        else:
            texts.append(f"{words} {value:g}" if isinstance(value, int) else f"{words} {value:.3g}")
    return ", ".join(texts)
