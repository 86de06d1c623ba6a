"""Verdicts over time: what stands out becomes a verdict, which grows with its evidence and is withdrawn without it."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Sequence

from ..store.verdicts import ALL_SLOW, SERIAL, Verdict
from . import wording
from .cutting import BEFORE, IN
from .findings import LEFT_SHARE, Finding, Seen, Surplus
from .links import LINK
from .losses import STEPS, LossRatio, StepLoss
from .measuring import BEHIND, BEHIND_GAP, INSIDE
from .roles import RoleHistory
from .stalls import NOW_AND_THEN

# A verdict that stands is said again when its impact has changed by so much, or when it is twice as old.
_CHANGED_RATIO, _CHANGED_LEAST = 0.15, 0.01
_FOLLOWS = 0.1
# Evidence is gone after so many steps at least, and at most, in which next to nothing of the excess is left: in the
# mean, in which one step counts so many times its share at most.
GONE_LEAST, GONE_MOST, _SHARE_AT_MOST = 5.0, 60.0, 3.0
# A rank of which the step loses less than this share makes nobody wait.
_COSTS_LEAST = 0.003
# What a step counts in which nothing is seen of it.
_UNSEEN = 0.1


class _Excess:
    """By how much one piece takes too long in steps in which it does, a logarithm; `absent`: late ones without."""

    def __init__(self, finding: Finding) -> None:
        self.finding, self.value, self.steps = finding, math.log1p(finding.ratio), finding.steps
        self.absent = deque[int](maxlen=STEPS)

    def follow(self, step: int, excess: float) -> None:
        if excess <= LEFT_SHARE * math.log1p(self.finding.ratio):
            self.absent.append(step)
            return
        self.steps += 1
        self.value += max(1 / self.steps, _FOLLOWS) * (excess - self.value)


def _time_of(finding: Finding) -> tuple[str, str]:
    """Which time it is of: inside of a stage and in it is the same."""
    where = {INSIDE: IN, BEHIND: IN, BEHIND_GAP: BEFORE}.get(finding.key.where, finding.key.where)
    return where, finding.key.stage


@dataclass(eq=False)
class StandingVerdict:
    """One verdict, and what is needed to say more of it.

    Attributes:
        finding: As it was when it was judged.
        verdict: As it was said last.
        history: Of the role that it is of.
        pieces: What of the same rank, or set of ranks, takes too long: by where and stage.
        together: What is lost by all causes that stand in the role, where there are several; None: it stands alone.
        beside: What is lost by this one more than by all the others.
    """

    finding: Finding
    verdict: Verdict
    history: RoleHistory
    pieces: dict[tuple[str, str], _Excess]
    steps: int = 0
    times_seen: int = 0
    gone: float = 0.0
    loss: LossRatio = field(default_factory=LossRatio)
    together: LossRatio | None = None
    beside: LossRatio | None = None
    coverage: float = 0.0
    where: Seen | None = None
    said_at: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, finding: Finding, role: str, step: int, history: RoleHistory) -> StandingVerdict:
        """A verdict that was not there before; it is not said yet."""
        since, seen = history.since(finding), history.seen(finding)
        peer = history.members[finding.place] if finding.place >= 0 else None
        process = peer.who if peer is not None and peer.rank is None else ""
        text = "\n".join([role, *finding.key, *map(str, finding.group), str(since)])
        verdict = Verdict(
            hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16], 0, step, finding.kind,
            finding.owner or finding.key.stage, peer and peer.rank, role, since, group=finding.group, process=process,
        )  # fmt: skip
        begun = cls(finding, verdict, history, {_time_of(finding): _Excess(finding)}, finding.steps, finding.steps)
        if finding.key.where != NOW_AND_THEN:
            begun.loss = begun._loss_of_last(finding.steps)
        if not begun.loss.times:
            begun.loss.add(StepLoss(0.0 if begun.loss.is_open else finding.lost_s, history.step_s))
        begun.coverage = seen.coverage if seen is not None else 0.0 if finding.is_hidden else 1.0
        begun.where = seen
        begun.evidence = _make_evidence(finding, history)
        return begun

    def parts(self) -> list[Surplus]:
        """All that takes too long by this cause, in steps in which it does."""
        return [of.finding.part(of.value)._replace(absent=of.absent) for of in self.pieces.values()]

    def join(self, finding: Finding) -> None:
        """The same rank, or set of ranks, takes too long there as well. A link is said to be of the fewest ranks."""
        time, is_link = _time_of(finding), finding.key.where == LINK
        is_new = time not in self.pieces
        if is_new or is_link:
            self.pieces[time] = _Excess(finding)
        if is_link and len(finding.group) < len(self.finding.group):
            self.finding, self.evidence = finding, _make_evidence(finding, self.history)
            self.verdict = self.verdict._replace(stage=finding.key.stage)
        if is_new:
            self.loss = self._loss_of_last(finding.steps)

    def _loss_of_last(self, steps: int) -> LossRatio:
        loss = LossRatio()
        for lost in self.history.lost_lately(self.parts(), steps):
            loss.add(lost)
        return loss

    def follow(self, step: int, again: Finding | None, has_rings: bool) -> None:
        """One step more, in which it was found again or not; what rings tell of shows only in steps that have them."""
        seen = None if self.finding.kind == SERIAL else self.history.seen(self.finding)  # alone: compared with nobody
        by_rings = self.finding.key.where in (INSIDE, LINK)
        if by_rings and not has_rings:
            return
        names_somebody = self.finding.place >= 0 or bool(self.finding.members)
        if seen is None and again is None and self.finding.key.where != LINK and names_somebody:
            self.gone += _UNSEEN
            return
        self.steps += 1
        # Of a link a fault's test says so for long: what this step's collectives took counts.
        is_link = again is not None and again.key.where == LINK
        is_there = again is not None and (not is_link or again.lost_s > LEFT_SHARE * self.finding.lost_s)
        share = float(is_there) if seen is None else seen.excess / max(math.log1p(self.finding.ratio), 1e-9)
        self.times_seen += share > LEFT_SHARE
        self._follow_loss(step, again, seen)
        self.gone = add_gone(self.gone, 0.0 if self._is_over else share)
        if seen is not None:
            self.coverage += _FOLLOWS * (seen.coverage - self.coverage)
            self.where = seen
        if again is not None:
            if len(again.members) > len(self.finding.members) > 0:  # of the same host there are more
                self.finding = self.finding._replace(members=again.members, group=again.group)
            self.evidence = _make_evidence(again, self.history)
            self.show_all(not again.is_hidden and self.costs_anything())

    def show_all(self, is_known: bool) -> None:
        """Where nobody can hide that all are slow, it is known once and for all, also if somebody could hide later."""
        if is_known and self.finding.is_hidden:
            self.finding, self.coverage = self.finding._replace(is_hidden=False), 1.0

    def _follow_loss(self, step: int, again: Finding | None, seen: Seen | None) -> None:
        if self.finding.key.where == NOW_AND_THEN:
            if again is not None:
                self.loss.add(StepLoss(again.lost_s, self.history.step_s))
            return
        excess = seen.excess if seen is not None else None if again is None else math.log1p(again.ratio)
        if excess is None:
            return
        main = self.pieces[_time_of(self.finding)]
        main.finding = again or main.finding
        main.follow(step, excess)
        for other in self.pieces.values():
            seen_there = self.history.seen(other.finding)
            if other is not main and seen_there is not None:
                other.follow(step, seen_there.excess)
        self.loss.add(self.history.lost(self.parts()))

    @property
    def costs_nothing(self) -> bool:
        """Though it is as slow as before, would no step be shorter without it: does something else take as long?"""
        is_of_nobody = self.finding.kind in (ALL_SLOW, SERIAL) or (self.finding.is_hidden and self.finding.members)
        return bool(is_of_nobody or self.finding.blames_a_rank) and not self.costs_anything()

    @property
    def _is_over(self) -> bool:
        return self.loss.times > GONE_LEAST and self.costs_nothing

    def is_explained_by(self, finding: Finding) -> bool:
        """Is what it says a part of that? Who shares a slow link leaves its collectives a little later; and of who is
        slow between collectives a part may show in the stage as a whole.
        """
        own, where = self.finding.key, finding.key.where
        is_of_link = where == LINK and own.where in (INSIDE, BEHIND)
        is_inside = where == INSIDE and own.where in (IN, BEHIND) and self.is_of_same_ranks(finding)
        is_less = self.finding.lost_s < LEFT_SHARE * finding.lost_s
        return own.stage == finding.key.stage and (is_of_link or is_inside) and is_less

    def is_of_same(self, other: StandingVerdict) -> bool:
        """Is the other of the same rank in the same place, whatever it is called?"""
        return bool(self.finding.key.member) and self.finding.key[1:] == other.finding.key[1:]

    def is_of_same_ranks(self, finding: Finding) -> bool:
        """Are the same ranks blamed, or some of these? Or is it the same controller, or are slow links of one rank?"""
        if self.finding.is_of_controller:
            return finding.is_of_controller
        if self.finding.key.where == LINK == finding.key.where:
            return self.history.links.share_a_rank(self.finding.slow, finding.slow)
        own, others = self.finding.part().members, finding.part().members
        return self.finding.blames_a_rank and finding.blames_a_rank and bool(others) and set(others) <= set(own)

    def costs_anything(self) -> bool:
        """Is anything lost by it, alone or once the other causes are gone, where members wait for each other?"""
        won_ratio = max(self.loss.ratio, 0.0 if self.beside is None else self.beside.ratio)
        return not self.history.somebody_waits or won_ratio >= _COSTS_LEAST

    def compare_with(self, others: list[Surplus]) -> None:
        """What it costs beside these, by the last steps."""
        steps = self.finding.steps
        together = self.history.lost_lately([*others, *self.parts()], steps)
        self.together, self.beside = LossRatio(), LossRatio()
        for joint, without in zip(together, self.history.lost_lately(others, steps)):
            self.together.add(joint)
            self.beside.add(StepLoss(joint.seconds - without.seconds, joint.length_s))

    def why_gone(self, step: int) -> str:
        """Why it is withdrawn once it is gone."""
        why = "nobody waits for it" if self._is_over and self.times_seen else "not seen"
        return f"{why} any more up to step {step}"

    def is_gone(self) -> bool:
        """Has there been no evidence for as long as it took to find it?"""
        return self.gone >= min(max(GONE_LEAST, float(self.finding.steps)), GONE_MOST)

    def is_news(self) -> bool:
        """Is there more to say than was said last?"""
        moved = abs(self.loss.ratio - self.verdict.impact_ratio)
        is_moved = moved > max(_CHANGED_LEAST, _CHANGED_RATIO * self.verdict.impact_ratio)
        is_other = (self.verdict.kind, self.verdict.group) != (self.finding.kind, self.finding.group)
        return is_other or self.steps >= 2 * self.said_at or (is_moved and self.steps >= self.said_at + 10)

    def say(self, run: str, step: int, now_ns: int, withdrawn: str = "") -> Verdict:
        """The line that says it as it is now."""
        self.said_at = max(1, self.steps)
        certainty = min(1.0, 0.5 + 0.25 * min(2.0, self.finding.certainty) * self.times_seen / max(1, self.steps))
        self.verdict = self.verdict._replace(
            time_ns=now_ns, step=step, kind=self.finding.kind, group=self.finding.group,
            impact_ratio=round(self.loss.ratio, 4), coverage_ratio=round(self.coverage, 4),
            recurrence_ratio=round(self.times_seen / max(1, self.steps), 4), confidence=round(certainty, 3),
            waits_for=wording.waits_for(self.finding, self.history.members, self.where),
            evidence={**self.evidence, **self._of_several()},
            next=wording.next_step(self.finding, self.history.members, run), withdrawn=withdrawn,
        )  # fmt: skip
        return self.verdict

    def _of_several(self) -> dict[str, Any]:
        """What is lost together with other causes, and where else these ranks take too long."""
        also = sorted({of.finding.owner or of.finding.key.stage for of in self.pieces.values()} - {self.verdict.stage})
        evidence: dict[str, Any] = {"also_in": ", ".join(also)} if also else {}
        if self.together is not None and self.beside is not None:
            evidence["together_ratio"] = round(self.together.ratio, 4)
            evidence["beside_ratio"] = round(self.beside.ratio, 4)
        return evidence


def add_gone(gone: float, share: float) -> float:
    """For how many steps evidence has been gone, after one in which this share of the excess was left."""
    return max(0.0, gone + 2 * (LEFT_SHARE - min(max(0.0, share), _SHARE_AT_MOST)))


def share_out(several: Sequence[StandingVerdict]) -> None:
    """What causes of one role cost together in the step that was closed last, and each beside the others."""
    if len(several) < 2:
        for standing in several:
            standing.together = standing.beside = None
        return
    history, parts = several[0].history, [standing.parts() for standing in several]
    joint = history.lost([*chain(*parts)])
    for at, standing in enumerate(several):
        without = history.lost([*chain(*parts[:at], *parts[at + 1 :])])
        standing.together, standing.beside = standing.together or LossRatio(), standing.beside or LossRatio()
        standing.together.add(joint)
        if joint is not None and without is not None:
            standing.beside.add(StepLoss(joint.seconds - without.seconds, joint.length_s))


def _make_evidence(finding: Finding, history: RoleHistory) -> dict[str, Any]:
    """Numbers and names that the verdict rests on."""
    numbers = {
        "where": finding.key.where, "excess_ratio": round(finding.ratio, 4), "lost_s": round(finding.lost_s, 6),
        "step_s": round(history.step_s, 6), "steps": finding.steps, "members": len(history.members),
    }  # fmt: skip
    host = history.members[finding.place].host if finding.place >= 0 else ""
    return {**numbers, **({"host": host} if host else {}), **finding.evidence}
