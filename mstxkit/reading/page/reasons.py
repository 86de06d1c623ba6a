"""Why a section has nothing to draw: by the run's steps, ranks and work, so that it denies nothing that is there."""

from __future__ import annotations

from typing import Any, Sequence

from ..report.nobody import is_too_short

NO_STEP = "No step was counted in which a stage has ended."
NO_PEER = "There are no two ranks to compare."
_NO_WORK = "says how much work it did (attributes tokens, responses): a tail cannot be told."

Roles = Sequence[dict[str, Any]]


def not_compared(roles: Roles) -> str:
    """Why no rank can be compared with another one; "" where some can. `roles`: as `figures.of_run` gives them."""
    if not roles:
        return NO_STEP
    return "" if _of_several(roles) else NO_PEER


def nobody_slow(roles: Roles, judged: dict[str, Any]) -> str:
    """Why nobody is slower than the others."""
    too_short = "There are too few steps to tell." if is_too_short(judged) else ""
    return not_compared(roles) or too_short or "Nobody is, beyond chance."


def no_tail(roles: Roles) -> str:
    """Why no stage goes on for one rank after the others."""
    stages = list(dict.fromkeys(stage for role in _of_several(roles) for stage in role["works"]))
    if stages:
        return f"The ranks leave {' and '.join(stages[:3])} together: nobody goes on there after the others."
    has_work = any(role["works"] for role in roles)
    return not_compared(roles) or f"No stage {'of several ranks ' if has_work else ''}{_NO_WORK}"


def no_rate(roles: Roles) -> str:
    """Why there is no throughput."""
    return "No stage says how many tokens it worked on (attribute tokens)." if roles else NO_STEP


def nothing_saved(roles: Roles, what_if: Sequence[dict[str, Any]]) -> str:
    """Why no change makes a step shorter."""
    if why := not_compared(roles):
        return f"There is nothing to replay. {why}"
    if what_if:
        return "No change of a single thing makes a step shorter by a thousandth or more."
    return "There is nothing to replay: no two ranks wait for each other."


def _of_several(roles: Roles) -> list[dict[str, Any]]:
    return [role for role in roles if role["members"] > 1]
