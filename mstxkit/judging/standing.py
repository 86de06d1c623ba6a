"""Verdicts over time: what stands out becomes a verdict, which grows with its evidence and is withdrawn without it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

from ..store.verdicts import NOT_ENOUGH_EVIDENCE, Verdict
from . import wording
from .findings import Finding, Seen
from .links import LINK
from .measuring import INSIDE
from .roles import RoleHistory

# A verdict that stands is said again when its impact has changed by so much, or when it is twice as old.
_CHANGED_RATIO, _CHANGED_LEAST = 0.3, 0.01
_FOLLOWS = 0.1
# Evidence is gone where less than this share of the excess is left; for so many steps at least, and at most.
_LEFT, _GONE_LEAST, _GONE_MOST = 0.5, 5.0, 60.0
# What a step counts in which nothing is seen of it.
_UNSEEN = 0.1


@dataclass
class StandingVerdict:
    """One verdict, and what is needed to say more of it.

    Attributes:
        finding: As it was when it was judged.
        verdict: As it was said last.
        history: Of the role that it is of.
    """

    finding: Finding
    verdict: Verdict
    history: RoleHistory
    steps: int = 0
    times_seen: int = 0
    gone: float = 0.0
    impact: float = 0.0
    coverage: float = 0.0
    recurrence: float = 1.0
    where: Seen | None = None
    said_at: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, finding: Finding, role: str, step: int, history: RoleHistory) -> StandingVerdict:
        """A verdict that was not there before; it is not said yet."""
        since = max(0, step - finding.steps + 1)
        seen = history.seen(finding.key)
        rank = history.members[finding.place].rank if finding.place >= 0 else None
        text = "\n".join([role, *finding.key, *map(str, finding.group), str(since)])
        verdict = Verdict(
            hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16], 0, step, finding.key.kind,
            finding.key.stage, rank, role, since, group=finding.group,
        )  # fmt: skip
        lost_s = finding.lost_s if seen is None else min(finding.lost_s, max(seen.lost_s, 0.5 * finding.lost_s))
        begun = cls(finding, verdict, history, finding.steps, finding.steps)
        begun.impact = min(1.0, lost_s / history.step_s) if history.step_s else 0.0
        begun.coverage = seen.coverage if seen is not None else 0.0 if finding.key.kind == NOT_ENOUGH_EVIDENCE else 1.0
        begun.where = seen
        begun.evidence = _evidence(finding, history)
        return begun

    def follow(self, again: Finding | None, has_rings: bool) -> None:
        """One step more, in which it was found again or not; what rings tell of shows only in steps that have them."""
        seen, by_rings = self.history.seen(self.finding.key), self.finding.key.where in (INSIDE, LINK)
        if by_rings and not has_rings:
            return
        if seen is None and again is None and self.finding.key.where != LINK and self.finding.place >= 0:
            self.gone += _UNSEEN
            return
        self.steps += 1
        is_there = again is not None if seen is None else seen.excess > _LEFT * math.log1p(self.finding.ratio)
        self.times_seen += is_there
        self.gone = max(0.0, self.gone - 1) if is_there else self.gone + 1
        if seen is not None and self.history.step_s:
            self.impact += _FOLLOWS * (min(1.0, seen.lost_s / self.history.step_s) - self.impact)
            self.coverage += _FOLLOWS * (seen.coverage - self.coverage)
            self.where = seen
        if again is not None:
            self.evidence = _evidence(again, self.history)

    def is_gone(self) -> bool:
        """Has there been no evidence for as long as it took to find it?"""
        return self.gone >= min(max(_GONE_LEAST, float(self.finding.steps)), _GONE_MOST)

    def is_news(self) -> bool:
        """Is there more to say than was said last?"""
        moved = abs(self.impact - self.verdict.impact_ratio)
        is_moved = moved > max(_CHANGED_LEAST, _CHANGED_RATIO * self.verdict.impact_ratio)
        return self.steps >= 2 * self.said_at or (is_moved and self.steps >= self.said_at + 10)

    def say(self, run: str, step: int, now_ns: int, withdrawn: str = "") -> Verdict:
        """The line that says it as it is now."""
        self.said_at = max(1, self.steps)
        certainty = min(1.0, 0.5 + 0.25 * min(2.0, self.finding.certainty) * self.times_seen / max(1, self.steps))
        self.verdict = self.verdict._replace(
            time_ns=now_ns, step=step, impact_ratio=round(self.impact, 4), coverage_ratio=round(self.coverage, 4),
            recurrence_ratio=round(self.times_seen / max(1, self.steps), 4), confidence=round(certainty, 3),
            waits_for=wording.waits_for(self.finding, self.history.members, self.where), evidence=dict(self.evidence),
            next=wording.next_step(self.finding, self.history.members, run), withdrawn=withdrawn,
        )  # fmt: skip
        return self.verdict


def _evidence(finding: Finding, history: RoleHistory) -> dict[str, Any]:
    """Numbers and names that the verdict rests on."""
    numbers = {
        "where": finding.key.where, "excess_ratio": round(finding.ratio, 4), "lost_s": round(finding.lost_s, 6),
        "step_s": round(history.step_s, 6), "steps": finding.steps, "members": len(history.members),
    }  # fmt: skip
    host = history.members[finding.place].host if finding.place >= 0 else ""
    return {**numbers, **({"host": host} if host else {}), **finding.evidence}
