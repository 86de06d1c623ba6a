"""What a report says where no verdict holds: that nobody is blamed, or that nobody can know, why, and what to do."""

from __future__ import annotations

from typing import Any, Collection, NamedTuple

from ...judging.gates import Gates
from ...judging.judged import LIGHT, RINGS
from .. import judged as judging
from .escape import SENTENCE_LIMIT, for_terminal, shown
from .sentences import sentence

NOBODY = "nobody is blamed: no rank is seen to make others wait"
_WITHDRAWN_SHOWN = 3
_REMEDIES = {
    judging.NO_STEP: "mark the stages of each step, mstxkit.stage(…), count the steps, mstxkit.step() at the end of "
    "each, and let one be over",
    judging.NO_PEER: "record ranks that do the same work into one run folder: a rank is compared with others",
    judging.ANEW: "count on, mstxkit.step(steps_before + n): each step is one then; `mstxkit top` tells them apart",
    judging.TWICE: "give each of two jobs a run folder of its own (MSTXKIT_RUN), each role of one job its name "
    "(MSTXKIT_ROLE); `mstxkit status` shows which process is which rank",
}
_TELLS = {RINGS: "rings tell who is late in it, capture(rings=True)", LIGHT: "a profile of it tells who is late"}
_LEFT_OUT = (
    f"the first {Gates().warm_up} steps of a role, those around a checkpoint and those after ranks came or went do not "
    "count"
)


class NobodyBlamed(NamedTuple):
    """`verdict`: a sentence, beginning small; `why`: a sentence or ""; `next`: what would tell more."""

    verdict: str
    why: str
    next: list[str]


def words(judged: dict[str, Any]) -> NobodyBlamed:
    """In words, escaped. `judged`: as the summary has it."""
    if judged["why_not"]:
        remedy = _REMEDIES.get(judged["why_not"])
        return NobodyBlamed(f"not judged: {judged['why_not']}.", "", [remedy] if remedy else _wanted(judged))
    if is_too_short(judged):
        return _too_short(judged)
    if judged["withdrawn"]:
        count = len(judged["withdrawn"])
        verdict = f"nobody is blamed any more: {'1 verdict was' if count == 1 else f'{count} verdicts were'} withdrawn."
        return NobodyBlamed(verdict, "; ".join(_why(judged)), _wanted(judged))
    steps = max((role["judged_steps"] for role in judged["roles"]), default=0)
    of_steps = f" in the {steps} steps that were judged" if steps else ""
    verdict = f"nobody is blamed: no rank was seen to make others wait{of_steps}."
    return NobodyBlamed(verdict, "; ".join(_why(judged)), _wanted(judged))


def in_short(judged_steps: Collection[int | None], has_steps: bool = True) -> str:
    """The same in one clause, of a job as its judge shows it. `judged_steps`: of each role in which ranks are compared,
    how many steps could lead to a verdict; None: not known; `has_steps`: is any step over?
    """
    if not judged_steps:
        return f"not judged: {judging.NO_PEER if has_steps else judging.NO_STEP}"
    most = max(judging.ENOUGH_STEPS if count is None else count for count in judged_steps)
    if most < judging.ENOUGH_STEPS:
        return f"too few steps to judge who makes others wait: {most} count, {judging.ENOUGH_STEPS} are needed"
    return NOBODY


def is_too_short(judged: dict[str, Any]) -> bool:
    """Is the run, of each role, so short that nothing follows from nobody being blamed?"""
    roles = judged["roles"]
    return bool(roles) and all(role["judged_steps"] < judging.ENOUGH_STEPS for role in roles)


def _too_short(judged: dict[str, Any]) -> NobodyBlamed:
    most = max(judged["roles"], key=lambda role: role["judged_steps"])
    counts, more = most["judged_steps"], judging.ENOUGH_STEPS - most["judged_steps"]
    verdict = f"too few steps to judge who makes others wait: {_counted(most)}, and {judging.ENOUGH_STEPS} are needed."
    nobody_in = f"no rank was seen to make others wait in the {counts} that count" if counts else ""
    why = "; ".join(filter(None, (nobody_in, *_withdrawn(judged), _LEFT_OUT)))
    more_steps = f"let the job go on for {more} steps more, or record a longer run; report again"
    return NobodyBlamed(verdict, why, [more_steps, "until then see below who takes longest: that may be chance"])


def _counted(role: dict[str, Any]) -> str:
    return f"{role['judged_steps']} of {role['steps']} steps count"


def _why(judged: dict[str, Any]) -> list[str]:
    short = [role for role in judged["roles"] if role["judged_steps"] < judging.ENOUGH_STEPS]
    names = [f"role {shown(role['role'])} has too few steps to be judged: {_counted(role)}" for role in short]
    return [*_withdrawn(judged), *names]


def _withdrawn(judged: dict[str, Any]) -> list[str]:
    return [
        f"{sentence(verdict)}, since step {verdict['since_step']}: {for_terminal(verdict['withdrawn'], SENTENCE_LIMIT)}"
        for verdict in judged["withdrawn"][:_WITHDRAWN_SHOWN]
    ]


def _wanted(judged: dict[str, Any]) -> list[str]:
    """What would tell more: what the judge asks for, else what shows a rank that a barrier hides."""
    if judged["wants"]:
        wants = [(for_terminal(want["why"], SENTENCE_LIMIT), want["kind"]) for want in judged["wants"]]
        return [f"{why}: {_TELLS[kind]}" if kind in _TELLS else why for why, kind in wants]
    if not judged["hiding"]:
        return []
    stages = " and ".join(map(shown, judged["hiding"]))
    return [f"a rank that is slow inside of {stages}, which all leave together, is seen with capture(rings=True) only"]
