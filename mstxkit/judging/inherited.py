"""Verdicts that an earlier judge has left: they stand until this one sees them again, or sees that they are no more.

This judge has not seen what was usual before. So it goes by the numbers that a verdict rests on: is at least half of
what it said still there?
"""

from __future__ import annotations

import math
from typing import Container, Iterable, Iterator, NamedTuple

from ..store.values import finite_number
from ..store.verdicts import ALL_SLOW, COMPUTE, IMBALANCE, INPUT, JITTER, NOT_ENOUGH_EVIDENCE, Verdict
from .evidence import RoleStep
from .findings import Finding, Key
from .links import LINK
from .measuring import BASE_RATIO, INSIDE
from .roles import RoleHistory
from .shaping import key_of
from .standing import GONE_LEAST, GONE_MOST, add_gone

# Of one role's stage, rank verdicts explain why it has become slower.
OF_NOBODY, EXPLAINED = (ALL_SLOW, NOT_ENOUGH_EVIDENCE, JITTER), "explained by another verdict"
_UNHEARD_OF = 150  # steps of its role, none of which tells of it


class _Waiting(NamedTuple):
    """A verdict, for how long it was not there, and how many steps have told nothing of it."""

    verdict: Verdict
    gone: float = 0.0
    unheard_of: int = 0


class InheritedVerdicts:
    """Those of an earlier judge of which nothing is known yet. `verdicts`: as they were said last."""

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        self._waiting = {verdict.id: _Waiting(verdict) for verdict in verdicts if not verdict.withdrawn}

    def verdicts(self) -> list[Verdict]:
        """Those that stand."""
        return [waiting.verdict for waiting in self._waiting.values()]

    def take(self, verdict: Verdict, where: str) -> Verdict | None:
        """The one that says the same, which is none of these from now on; rather one of the same place of its stage.

        A judge that has just begun does not know who waits where: it may see the same in another place.
        """
        same = [left for left in self.verdicts() if _cause_of(left) == _cause_of(verdict)]
        same.sort(key=lambda left: left.evidence.get("where") != where)
        return self._waiting.pop(same[0].id).verdict if same else None

    def has_same(self, verdict: Verdict, where: str) -> bool:
        """Is one of these of the same rank in the same place, by another name?"""
        place = verdict.role, verdict.stage, verdict.rank, where
        others = [left for left in self.verdicts() if _cause_of(left)[0] != _cause_of(verdict)[0]]
        return any((left.role, left.stage, left.rank, left.evidence.get("where")) == place for left in others)

    def blames_another(self, verdict: Verdict) -> bool:
        """Does one of these say of another rank of the role that it is slow?"""
        blaming = [left for left in self.verdicts() if left.role == verdict.role and left.kind in (COMPUTE, INPUT)]
        return any(left.rank not in (None, verdict.rank) for left in blaming)

    def follow(
        self, step: RoleStep, history: RoleHistory, has_rings: bool, is_late: bool, explained: Container[str],
        now_ns: int,
    ) -> Iterator[Verdict]:  # fmt: skip
        """One judged step more: what is withdrawn by it. `has_rings`, `is_late`: have its rings told anything; was it
        closed before, and is this what they tell? `explained`: stages of which it is known why they are slow.
        """
        for key, waiting in list(self._waiting.items()):
            by_rings = waiting.verdict.evidence.get("where") in (INSIDE, LINK)
            is_told = waiting.verdict.role == step.role and step.step > (waiting.verdict.step or -1)
            if is_told and (by_rings or not is_late):
                share = None if by_rings and not has_rings else _share_left(waiting.verdict, history)
                gone = waiting.gone if share is None else add_gone(waiting.gone, share)
                unheard_of = waiting.unheard_of + 1 if share is None else 0
                self._waiting[key] = waiting = waiting._replace(gone=gone, unheard_of=unheard_of)
                is_explained = waiting.verdict.kind in OF_NOBODY and waiting.verdict.stage in explained
                why = EXPLAINED if is_explained else _why_gone(waiting, step.step)
                if why:
                    del self._waiting[key]
                    yield waiting.verdict._replace(step=step.step, time_ns=now_ns, withdrawn=why)


def _cause_of(verdict: Verdict) -> tuple[object, ...]:
    kind = ALL_SLOW if verdict.kind == NOT_ENOUGH_EVIDENCE else verdict.kind
    return kind, verdict.role, verdict.stage, verdict.rank, verdict.group


def _why_gone(waiting: _Waiting, step: int) -> str:
    took = finite_number(waiting.verdict.evidence.get("steps")) or 0.0
    if waiting.gone >= min(max(GONE_LEAST, took), GONE_MOST):
        return f"not seen any more up to step {step}"
    return f"not seen by the judge that took over, up to step {step}" if waiting.unheard_of >= _UNHEARD_OF else ""


def _share_left(verdict: Verdict, history: RoleHistory) -> float | None:
    """How much of its excess the step that was closed last has; None: it tells nothing of it."""
    where, stage = verdict.evidence.get("where"), verdict.stage
    numbers = (finite_number(verdict.evidence.get(name)) for name in ("excess_ratio", "usual_s", "step_s"))
    ratio, usual_s, step_s = (number or 0.0 for number in numbers)
    if ratio <= 0 or not isinstance(where, str) or stage is None:
        return None
    if verdict.rank is not None or verdict.kind in (COMPUTE, INPUT, IMBALANCE):
        members = [key_of(peer) for peer in history.members if peer.rank == verdict.rank]
        # Of several without a rank nobody knows which one it was.
        is_known = len(members) == 1 or (members and verdict.rank is not None)
        key = Key(verdict.kind, where, stage, members[0]) if is_known else None
        seen = None if key is None else history.seen(Finding(key, -1, 0, 0.0, 0.0, 0.0))
        return None if seen is None else seen.excess / math.log1p(ratio)
    now_s = history.took_s(where, stage, verdict.group)
    # What all take is said as it was in the fault, what a link takes as it was before.
    base_s, before_s = (BASE_RATIO * step_s, usual_s) if where == LINK else (0.0, usual_s / (1 + ratio))
    if now_s is None or now_s <= 0 or before_s + base_s <= 0:
        return None
    return math.log((now_s + base_s) / (before_s + base_s)) / math.log1p(ratio)
