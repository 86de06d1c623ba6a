"""Verdicts that an earlier judge has left: they stand until this one sees them again, or sees that they are no more.

This judge has not seen what was usual before. So it goes by the numbers that a verdict rests on: is at least half of
what it said still there?
"""

from __future__ import annotations

import math
from typing import Iterable, Iterator, NamedTuple, Optional

from ..store.verdicts import Verdict
from .evidence import RoleStep
from .findings import Key
from .links import LINK
from .measuring import INSIDE
from .roles import RoleHistory
from .shaping import key_of
from .standing import GONE_LEAST, GONE_MOST, LEFT_SHARE

LeftKey = tuple[str, str, Optional[str], Optional[int], tuple[int, ...]]
# Without any step that tells of it, for so many steps of its role.
_UNHEARD_OF = 150


class _Waiting(NamedTuple):
    """A verdict, for how long it was not there, and how many steps have told nothing of it."""

    verdict: Verdict
    gone: float = 0.0
    unheard_of: int = 0


def key_of_verdict(verdict: Verdict) -> LeftKey:
    """By what a verdict is found again."""
    return verdict.role, verdict.kind, verdict.stage, verdict.rank, verdict.group


class LeftVerdicts:
    """Those of an earlier judge of which nothing is known yet.

    Args:
        verdicts: As they were said last.
    """

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        self._waiting = {key_of_verdict(verdict): _Waiting(verdict) for verdict in verdicts if not verdict.withdrawn}

    def verdicts(self) -> list[Verdict]:
        """Those that stand."""
        return [waiting.verdict for waiting in self._waiting.values()]

    def take(self, verdict: Verdict) -> Verdict | None:
        """The one that says the same, which is none of these from now on."""
        waiting = self._waiting.pop(key_of_verdict(verdict), None)
        return None if waiting is None else waiting.verdict

    def follow(
        self, step: RoleStep, history: RoleHistory, has_rings: bool, is_late: bool, now_ns: int
    ) -> Iterator[Verdict]:
        """One judged step more of a role: what is withdrawn by it.

        Args:
            step, history: The step that was closed, and the history of its role.
            has_rings, is_late: Have its rings told anything; was it closed before, and is this what they tell?
            now_ns: Wall clock.
        """
        for key, waiting in list(self._waiting.items()):
            by_rings = waiting.verdict.evidence.get("where") in (INSIDE, LINK)
            if waiting.verdict.role == step.role and (by_rings or not is_late):
                self._waiting[key] = waiting = _followed(waiting, history, by_rings, has_rings)
                why = _why_gone(waiting, step.step)
                if why:
                    del self._waiting[key]
                    yield waiting.verdict._replace(step=step.step, time_ns=now_ns, withdrawn=why)


def _followed(waiting: _Waiting, history: RoleHistory, by_rings: bool, has_rings: bool) -> _Waiting:
    share = None if by_rings and not has_rings else _share_left(waiting.verdict, history)
    if share is None:
        return waiting._replace(unheard_of=waiting.unheard_of + 1)
    return waiting._replace(gone=max(0.0, waiting.gone + (-1 if share > LEFT_SHARE else 1)), unheard_of=0)


def _why_gone(waiting: _Waiting, step: int) -> str:
    took = _number(waiting.verdict, "steps") or 0.0
    if waiting.gone >= min(max(GONE_LEAST, took), GONE_MOST):
        return f"not seen any more up to step {step}"
    return f"not seen by the judge that took over, up to step {step}" if waiting.unheard_of >= _UNHEARD_OF else ""


def _share_left(verdict: Verdict, history: RoleHistory) -> float | None:
    """How much of its excess the step that was closed last has; None: it tells nothing of it."""
    ratio, where, stage = _number(verdict, "excess_ratio"), verdict.evidence.get("where"), verdict.stage
    if ratio is None or ratio <= 0 or not isinstance(where, str) or stage is None:
        return None
    if verdict.rank is not None:
        members = [key_of(peer) for peer in history.members if peer.rank == verdict.rank]
        seen = history.seen(Key(verdict.kind, where, stage, members[0])) if members else None
        return None if seen is None else seen.excess / math.log1p(ratio)
    usual_s, now_s = _number(verdict, "usual_s"), history.took_s(where, stage, verdict.group)
    if now_s is None or usual_s is None or usual_s <= 0 or now_s <= 0:
        return None
    # What all take is said as it was in the fault, what a link takes as it was before.
    before_s = usual_s if where == LINK else usual_s / (1 + ratio)
    return math.log(now_s / before_s) / math.log1p(ratio)


def _number(verdict: Verdict, name: str) -> float | None:
    value: object = verdict.evidence.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
