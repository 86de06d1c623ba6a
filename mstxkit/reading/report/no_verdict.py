"""What a headline says where nothing is the matter, or nobody can know: what was judged, why not, and what to do."""

from __future__ import annotations

import math
from typing import Any, Collection, Mapping

from ...judging.gates import Gates
from ...judging.judged import CLOCKS, COUNTS, LIGHT, RINGS
from .. import judged as judging
from . import step_words
from .account import Account, Matter
from .escape import SENTENCE_LIMIT, escape_name, for_terminal
from .number_table import write_percent
from .sentences import list_texts

HEALTHY, TOO_SHORT, NOT_JUDGED, NOTHING_RECORDED = "healthy", "too_few_steps", "not_judged", "nothing_recorded"
NOT_MARKED, ALONE, NO_PEER = "not_marked", "one_alone", judging.NO_PEER
# From such a share of a step on it is said that no process is in a stage, or that one alone is.
_LARGE, _STAGES_NAMED = 0.1, 3
# What saves such a share of a step is told of too few steps, too.
_SO_FAR = 0.05
RANGES, STAGES, STEPS = "ranges", "stages", "steps"
_OWN_PAST = "one process alone is compared with its own past only, and no stage was seen to become slower"
_MARKED = "mark the stages of each step, mstxkit.stage(…), and count the steps, mstxkit.step() at the begin of each"
_REMEDIES = {
    judging.NO_STEP: f"{_MARKED}; let one be over",
    NO_PEER: "record ranks that do the same work into one run folder: a rank is compared with others",
    judging.ANEW: "count on, mstxkit.step(steps_before + n): each step is one then; `mstxkit top` tells them apart",
    judging.TWICE: "give each of two jobs a run folder of its own (MSTXKIT_RUN), each role of one job its name "
    "(MSTXKIT_ROLE); `mstxkit status` shows which process is which rank",
}
_LACKS = {
    RANGES: (NOTHING_RECORDED, "nothing was recorded: no range has ended in any process", f"{_MARKED}; or patch a "
             "framework, mstxkit.autopatch()"),
    STAGES: (NOT_JUDGED, "not judged: no stage is marked", _MARKED),
    STEPS: (NOT_JUDGED, "not judged: no step is counted", "count the steps, mstxkit.step() at the begin of each"),
}  # fmt: skip
_TELLS = {
    RINGS: "rings tell who is late in it, capture(rings=True)", LIGHT: "a profile of it tells who is late",
    CLOCKS: "under Ray they are compared", COUNTS: "let all begin with the same number, mstxkit.step(0)",
}  # fmt: skip
_LEFT_OUT = (
    f"the first {Gates().warm_up} steps of a role, those around a checkpoint and those after ranks came or went do not "
    "count"
)


def explain_silence(account: Account, largest: float) -> Matter:
    """`largest`: what the costliest of those things saves that are not worth being told of, as a share of all time."""
    judged = account.judged
    lacking = next((what for what in _LACKS if account.has is not None and what not in account.has), None)
    if lacking is not None and judged["why_not"] == judging.NO_STEP:
        kind, words, remedy = _LACKS[lacking]
        return Matter(kind, words, advice=remedy, blames=kind == NOTHING_RECORDED)
    if judged["why_not"]:
        is_alone = judged["why_not"] == NO_PEER and len(account.processes) == 1
        words = _OWN_PAST if is_alone else f"not judged: {judged['why_not']}"
        advice = "" if is_alone else _REMEDIES.get(judged["why_not"]) or "; ".join(_tell_wanted(judged))
        return _with_longest(account, Matter(NOT_JUDGED, words, advice=advice, blames=False))
    if is_too_short(judged):
        slow = (row for row in account.what_if if row["kind"] == "straggler" and (row["saved_ratio"] or 0) >= _SO_FAR)
        return _with_longest(account, _too_short(judged, next(map(step_words.describe_slow, slow), "")))
    steps = max((role["judged_steps"] for role in judged["roles"]), default=0)
    of_steps = f" in the {steps} steps that were judged" if steps else ""
    above = f"nothing above {max(1, math.ceil(100 * largest))} % of a step" if account.steps else ""
    nobody = f"no rank was seen to make others wait{of_steps}"
    if (unseen := _tell_occupancy(account)) is not None:
        return unseen._replace(words=f"{unseen.words}; else {nobody}")
    for fed in (row for row in account.fed_by[:1] if row["ratio"] >= _LARGE):
        role, by = escape_name(fed["role"]), escape_name(fed["by"])
        nobody += f"; {role} waits for {by} in {write_percent(fed['ratio'])} of its steps’ time"
    may_hide = judged["hiding"] or any(want["kind"] in (CLOCKS, COUNTS) for want in judged["wants"])
    words = f"healthy{' as far as is seen' * bool(may_hide)}: {'; '.join(filter(None, (above, nobody)))}"
    short = [role for role in judged["roles"] if role["judged_steps"] < judging.ENOUGH_STEPS]
    why = [f"role {escape_name(of['role'])} has too few steps to be judged: {of['judged_steps']} count" for of in short]
    return Matter(HEALTHY, words, why="; ".join(why), advice="; ".join(_tell_wanted(judged)), blames=False)


def _tell_occupancy(account: Account) -> Matter | None:
    """That for much of a step nobody is in a stage, or one process alone; None: neither is so."""
    of = account.occupancy
    alone = of["alone"] if of and of["others"] > 1 else 0.0
    if of is None or max(of["nobody"], alone) < _LARGE:
        return None
    if of["nobody"] >= alone:
        words = f"for {write_percent(of['nobody'])} of the steps’ time no process is in a stage"
        return Matter(NOT_MARKED, words, advice="mark what runs then: mstxkit.stage(…) in its process", blames=False)
    large = [f"{escape_name(stage)} {write_percent(ratio)}" for stage, ratio in of["stages"] if ratio >= 0.01]
    words = f"for {write_percent(alone)} of the steps’ time {escape_name(of['label'])} alone is in a stage"
    why = f"{list_texts(large, ', ', _STAGES_NAMED)}; the {of['others']} others are in none"
    return Matter(ALONE, words, why=why, blames=False, stage=of["stages"][0][0])


def _with_longest(account: Account, matter: Matter) -> Matter:
    """With where a step's time goes, which is known all the same."""
    if account.longest is None:
        return matter
    stage, ratio = account.longest
    words = f"{write_percent(ratio)} of a step’s time goes to {escape_name(stage)}"
    return matter._replace(why="; ".join(filter(None, (words, matter.why))), stage=stage)


def is_too_short(judged: Mapping[str, Any]) -> bool:
    """Is the run, of each role, so short that nothing follows from nobody being blamed?"""
    roles = judged["roles"]
    return bool(roles) and all(role["judged_steps"] < judging.ENOUGH_STEPS for role in roles)


def judged_live(judged_steps: Collection[int | None], has_steps: bool) -> dict[str, Any]:
    """`judged` of a job as its judge shows it, as the summary has it. `judged_steps`: of each role in which ranks are
    compared, how many could lead to a verdict; None: not known.
    """
    why_not = "" if judged_steps else NO_PEER if has_steps else judging.NO_STEP
    roles = [] if None in judged_steps else [{"role": "", "judged_steps": count} for count in judged_steps]
    return {"why_not": why_not, "roles": roles, "withdrawn": [], "wants": [], "hiding": []}


def _too_short(judged: Mapping[str, Any], so_far: str) -> Matter:
    most = max(role["judged_steps"] for role in judged["roles"])
    words = f"too few steps to judge who makes others wait: {most} count, {judging.ENOUGH_STEPS} are needed"
    words += f"; so far {so_far}" if so_far else ""
    nobody_in = f"no rank was seen to make others wait in the {most} that count" if most else ""
    why = "; ".join(filter(None, (nobody_in, _LEFT_OUT)))
    advice = f"let the job go on for {judging.ENOUGH_STEPS - most} steps more, or record a longer run"
    return Matter(TOO_SHORT, words, "", why, advice, blames=False)


def _tell_wanted(judged: Mapping[str, Any]) -> list[str]:
    """What would tell more: what the judge asks for, and what shows a rank that nobody sees inside of a stage."""
    wants = [(for_terminal(want["why"], SENTENCE_LIMIT), want["kind"]) for want in judged["wants"]]
    advice = [f"{why}: {_TELLS[kind]}" if kind in _TELLS else why for why, kind in wants]
    stages = list_texts([*map(escape_name, judged["hiding"])], ", ", _STAGES_NAMED)
    hidden = f"capture(rings=True) alone tells whether a rank is slow inside of {stages}, which all leave together"
    return [*advice, hidden] if stages else advice
