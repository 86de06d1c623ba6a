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
from .losses import Lead, StepLoss
from .measuring import BEHIND, INSIDE
from .roles import RoleHistory
from .stalls import NOW_AND_THEN

# A verdict that stands is said again when its impact has changed by so much, or when it is twice as old.
_CHANGED_RATIO, _CHANGED_LEAST = 0.3, 0.01
_FOLLOWS, _LOSS_FOLLOWS = 0.1, 0.05
# Evidence is gone where less than this share of the excess is left; for so many steps at least, and at most.
LEFT_SHARE, GONE_LEAST, GONE_MOST = 0.5, 5.0, 60.0
# A rank of which the step loses less than this share makes nobody wait.
_COSTS_LEAST = 0.003
# One of which it loses less than that makes nobody wait though no other stands out.
_COSTS_ALONE = 0.001
# What a step counts in which nothing is seen of it.
_UNSEEN = 0.1


@dataclass
class _Loss:
    """What steps lose by a finding: by how much shorter they would be without it, as of late.

    Attributes:
        excess: Logarithm of time over expected time.
    """

    excess: float = 0.0
    _seen: int = 0
    _lost_s: float = 0.0
    _length_s: float = 0.0
    _times: int = 0
    _lead: Lead | None = None

    @property
    def ratio(self) -> float:
        """Share of the step that is lost."""
        return min(1.0, max(0.0, self._lost_s / self._length_s)) if self._length_s > 0 else 0.0

    def begin(self, finding: Finding, history: RoleHistory) -> None:
        """By the last steps since it is there."""
        self.excess, self._seen = math.log1p(finding.ratio), finding.steps
        if finding.key.where == NOW_AND_THEN:
            self._add(finding.lost_s, history.step_s)
            return
        for lost in history.lost_lately(finding):
            self._take(lost)
        if not self._times:
            self._add(finding.lost_s, history.step_s)

    def follow(self, finding: Finding, again: Finding | None, seen: Seen | None, history: RoleHistory) -> None:
        """By one step more."""
        if finding.key.where == NOW_AND_THEN:
            if again is not None:
                self._add(again.lost_s, history.step_s)
            return
        excess = seen.excess if seen is not None else None if again is None else math.log1p(again.ratio)
        if excess is None:
            return
        self._seen += 1
        self.excess += max(1 / self._seen, _FOLLOWS) * (excess - self.excess)
        lost = history.lost(again or finding, self.excess, self._lead)
        if lost is not None:
            self._take(lost)

    def _take(self, lost: StepLoss) -> None:
        self._lead = lost.lead
        self._add(lost.seconds, lost.length_s)

    def _add(self, lost_s: float, length_s: float) -> None:
        self._times += 1
        rate = max(1 / self._times, _LOSS_FOLLOWS)
        self._lost_s += rate * (lost_s - self._lost_s)
        self._length_s += rate * (length_s - self._length_s)


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
    loss: _Loss = field(default_factory=_Loss)
    coverage: float = 0.0
    where: Seen | None = None
    said_at: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, finding: Finding, role: str, step: int, history: RoleHistory) -> StandingVerdict:
        """A verdict that was not there before; it is not said yet."""
        since, seen = history.since(finding), history.seen(finding.key)
        rank = history.members[finding.place].rank if finding.place >= 0 else None
        text = "\n".join([role, *finding.key, *map(str, finding.group), str(since)])
        verdict = Verdict(
            hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16], 0, step, finding.key.kind,
            finding.key.stage, rank, role, since, group=finding.group,
        )  # fmt: skip
        begun = cls(finding, verdict, history, finding.steps, finding.steps)
        begun.loss.begin(finding, history)
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
        is_there = self._is_there(again) if seen is None else seen.excess > LEFT_SHARE * math.log1p(self.finding.ratio)
        self.times_seen += is_there
        self.gone = max(0.0, self.gone - 1) if is_there else self.gone + 1
        self.loss.follow(self.finding, again, seen, self.history)
        if seen is not None:
            self.coverage += _FOLLOWS * (seen.coverage - self.coverage)
            self.where = seen
        if again is not None:
            self.evidence = _evidence(again, self.history)

    def _is_there(self, again: Finding | None) -> bool:
        """Was it found again? Of a link a fault's test says so for long: what this step's collectives took counts."""
        is_link = again is not None and again.key.where == LINK
        return again is not None and (not is_link or again.lost_s > LEFT_SHARE * self.finding.lost_s)

    def explains(self, other: StandingVerdict) -> bool:
        """Is what the other says a part of this? Who shares a slow link leaves its collectives a little later."""
        is_same = self.finding.key.stage == other.finding.key.stage and self.finding.key.where == LINK
        is_behind = other.finding.key.where in (INSIDE, BEHIND)
        return is_same and is_behind and other.finding.lost_s < LEFT_SHARE * self.finding.lost_s

    @property
    def blames_a_rank(self) -> bool:
        """Does it say that one rank is slow?"""
        return self.finding.blames_a_rank

    def is_of_same(self, other: StandingVerdict) -> bool:
        """Is the other of the same rank in the same place, whatever it is called?"""
        return self.finding.place >= 0 and self.finding.key[1:] == other.finding.key[1:]

    def costs_anything(self, is_alone: bool = False) -> bool:
        """Is anything lost by it, where members wait for each other?

        Args:
            is_alone: Does no other rank stand out, which would hide what it costs?
        """
        least = _COSTS_ALONE if is_alone else _COSTS_LEAST
        return not self.history.somebody_waits or self.loss.ratio >= least

    def is_gone(self) -> bool:
        """Has there been no evidence for as long as it took to find it?"""
        return self.gone >= min(max(GONE_LEAST, float(self.finding.steps)), GONE_MOST)

    def is_news(self) -> bool:
        """Is there more to say than was said last?"""
        moved = abs(self.loss.ratio - self.verdict.impact_ratio)
        is_moved = moved > max(_CHANGED_LEAST, _CHANGED_RATIO * self.verdict.impact_ratio)
        return self.steps >= 2 * self.said_at or (is_moved and self.steps >= self.said_at + 10)

    def say(self, run: str, step: int, now_ns: int, withdrawn: str = "") -> Verdict:
        """The line that says it as it is now."""
        self.said_at = max(1, self.steps)
        certainty = min(1.0, 0.5 + 0.25 * min(2.0, self.finding.certainty) * self.times_seen / max(1, self.steps))
        self.verdict = self.verdict._replace(
            time_ns=now_ns, step=step, impact_ratio=round(self.loss.ratio, 4), coverage_ratio=round(self.coverage, 4),
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
