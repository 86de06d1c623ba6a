"""Which groups' collectives take long while everybody has entered in time, step by step."""

from __future__ import annotations

import math
import statistics
from typing import Iterable, Mapping, NamedTuple, Sequence

import numpy as np

from ..triggers import slow_link
from .evidence import Collectives, RoleStep
from .findings import Finding, Key
from .inside import GroupTime
from .measuring import BASE_RATIO
from .wording import spans_in_words

# Where a finding of this is: between members, not in one.
LINK = "link"
_GROUPS_AT_MOST = 8192
_LEARNT_FROM = 5
# Deviations a step that are noise, that one step counts at most, that added up are a fault; and the least noise.
_SLACK, _CLIP, _THRESHOLD, _LEAST_NOISE = 0.75, 3.0, 12.0, 0.15
# What is usual, and what is slow, must have been seen in so many steps together: of a few nobody knows how they vary.
_SEEN_LEAST = 20
# A slow link makes the collectives of nearly every step slower than most of them were, and slower by the effect. Where
# processes share cores, times have two levels: more steps at the upper one are no slow link.
_MOST, _NEARLY_ALL = 0.75, 0.8
# After so many steps of which not nearly all are slower, that is how they are.
_NO_FAULT_STEPS = 24
# Up to this score it is noise of a single step; from that on a stage's links are suspected. So many steps are
# remembered, and so many of a fault.
_NOISE_SCORE, _SUSPECTED, _REMEMBERED, _SINCE_AT_MOST = 1.0, 3.0, 48, 64
_NOTHING = 700.0


class _Usual(NamedTuple):
    """What a group's collectives in a stage take, as logarithms, and what has been more than that for some steps.

    Args:
        before: Of the last steps but for those since.
        since: Of those that may be a fault: since the score was 0.
        score: Of the sequential test: deviations added up.
        steps, above: How many they are since it was more than noise, and how many of them took longer than most before,
            and by the effect.
        excess: Logarithms above what is usual, added up.
    """

    before: tuple[float, ...] = ()
    since: tuple[float, ...] = ()
    score: float = 0.0
    steps: int = 0
    above: int = 0
    excess: float = 0.0

    @property
    def is_slow(self) -> bool:
        """Is it a fault, as far as the test goes?"""
        is_seen = len(self.before) + self.steps >= _SEEN_LEAST
        return is_seen and self.score > _THRESHOLD and self.above >= _NEARLY_ALL * self.steps


class _Level(NamedTuple):
    """What a time is compared with, as logarithms: the mean, its noise, and what a slow one exceeds."""

    mean: float
    noise: float
    most: float


class Links:
    """Remembers what collectives of each group and stage take, and for how long that has been too much."""

    def __init__(self) -> None:
        self._usual: dict[tuple[int, str], _Usual] = {}
        # Of the last step: what groups took, by stage and group, and which ranks they have.
        self._last: dict[str, dict[int, GroupTime]] = {}
        self._ranks: Mapping[int, tuple[int, ...]] = {}

    def add(
        self, settings: slow_link.SlowLink, step: RoleStep, rings: Collectives, times: Iterable[GroupTime],
        step_s: float,
    ) -> list[Finding]:  # fmt: skip
        """One step more; what is slow in it, for long enough."""
        self._last, self._ranks = {}, rings.groups
        for time in times:
            self._last.setdefault(step.stages[time.stage], {})[time.group] = time
        findings = []
        for stage in self._last:
            slow = self._slow_groups(settings, stage, step_s)
            persistent = [group for group in slow if self._usual[group, stage].steps >= settings.steps]
            if persistent:
                findings.append(self._finding(stage, persistent, slow, BASE_RATIO * step_s))
        return findings

    def took_s(self, stage: str, ranks: tuple[int, ...]) -> float | None:
        """What the collectives of all groups with these ranks took in a stage of the last step: the most of them."""
        times = self._last.get(stage, {}).items()
        took_s = (time.took_s for group, time in times if set(ranks) <= set(self._ranks.get(group, ())))
        return max(took_s, default=None)

    def share_a_rank(self, some: Iterable[int], others: Iterable[int]) -> bool:
        """Is there a rank in one of some groups and in one of others?"""
        ranks, of_others = (set[int]().union(*(self._ranks.get(group, ()) for group in of)) for of in (some, others))
        return not ranks.isdisjoint(of_others)

    def suspects(self, stage: str) -> bool:
        """May a link be slow in this stage, or is one?"""
        return any(usual.score > _SUSPECTED for (_, of), usual in self._usual.items() if of == stage)

    def suspected_s(self, stage: str, ranks: set[int | None]) -> float:
        """By how much longer than usual collectives with one of these ranks took, where their link may be slow."""
        near = (group for group in self._last.get(stage, ()) if not ranks.isdisjoint(self._ranks.get(group, ())))
        usual = (self._usual.get((group, stage), _Usual()) for group in near)
        slow = (of for of in usual if of.score > _SUSPECTED and of.before)
        return max((math.exp(of.since[-1]) - math.exp(statistics.fmean(of.before)) for of in slow), default=0.0)

    def _slow_groups(self, settings: slow_link.SlowLink, stage: str, step_s: float) -> dict[int, float]:
        """Group to what is usual for it."""
        slow, base_s, times = dict[int, float](), BASE_RATIO * step_s, self._last[stage]
        values = {group: math.log(time.took_s + base_s) for group, time in times.items()}
        does = {group: (len(self._ranks.get(group, ())), time.calls) for group, time in times.items()}
        for group, value in values.items():
            before = self._usual.get((group, stage), _Usual())
            if not before.before and len(self._usual) >= _GROUPS_AT_MOST:
                continue
            others = [values[other] for other in values if other != group and does[other] == does[group]]
            level = self._level(settings, before, others, base_s)
            usual = self._usual[group, stage] = _add_step(before, level, value)
            if level is None:
                continue
            usual_s, more = max(0.0, math.exp(level.mean) - base_s), usual.excess / max(1, usual.steps)
            mean_s = math.exp(level.mean + more) - base_s
            if usual.is_slow and slow_link.is_slow(settings, mean_s, usual_s, step_s):
                slow[group] = usual_s
        return slow

    def _level(self, settings: slow_link.SlowLink, usual: _Usual, others: list[float], base_s: float) -> _Level | None:
        """By its own history, or by groups that do the same, whichever is quicker; None: nothing to compare it with."""
        own = _level_of(usual.before) if len(usual.before) >= _LEARNT_FROM else None
        by_others = _level_of(others, own) if len(others) >= settings.peers else None
        level = min((level for level in (own, by_others) if level is not None), default=None)
        if level is None:
            return None
        slow_s = (1 + settings.effect) * max(0.0, math.exp(level.mean) - base_s)
        return level._replace(most=max(level.most, math.log(slow_s + base_s)))

    def _finding(self, stage: str, persistent: list[int], slow: dict[int, float], base_s: float) -> Finding:
        seconds = {group: time.took_s for group, time in self._last[stage].items()}
        compared = {group: self._ranks.get(group, ()) for group in seconds}
        alone = slow_link.find_shared(compared, slow)
        worst = max(persistent, key=lambda group: seconds[group] - slow[group])
        kind = "link" if alone or len(compared) > len(slow) else "communication"
        more_s = seconds[worst] - slow[worst]
        names = tuple(alone) if len(alone) == 2 else tuple(compared[worst])
        return Finding(
            Key(kind, LINK, stage), -1, self._usual[worst, stage].steps, more_s / (slow[worst] + base_s), more_s, 1.5,
            names, {
                "collectives_s": seconds[worst], "usual_s": slow[worst], "slow_groups": len(slow),
                "groups": len(compared), **({"ranks": spans_in_words(alone)} if alone else {}),
            }, {group: seconds[group] - usual_s for group, usual_s in slow.items()},
        )  # fmt: skip


def _level_of(values: Sequence[float], own: _Level | None = None) -> _Level:
    """Of some times. Args: own: whose noise counts, where they are of other groups."""
    ordered = sorted(values)
    most = ordered[min(len(ordered) - 1, int(_MOST * len(ordered)))]
    if own is not None:
        return _Level(statistics.median(ordered), own.noise, most)
    return _Level(statistics.fmean(ordered), max(_LEAST_NOISE, float(np.std(ordered))), most)


def _add_step(usual: _Usual, level: _Level | None, value: float) -> _Usual:
    """One step more: tested against this level, and learned from once it is no fault."""
    if level is None:
        return usual._replace(before=(*usual.before, value)[-_REMEMBERED:])
    deviations = max(-_CLIP, min(_CLIP, (value - level.mean) / level.noise)) - _SLACK
    score = min(2 * _THRESHOLD, usual.score + deviations)
    since = (*usual.since, value)[-_SINCE_AT_MOST:]
    if score <= 0:
        return _Usual((*usual.before, *since)[-_REMEMBERED:])
    steps, above, excess = (usual.steps, usual.above, usual.excess) if usual.score > _NOISE_SCORE else (0, 0, 0.0)
    above += value > level.most
    if steps >= _NO_FAULT_STEPS and above < _NEARLY_ALL * steps:
        return _Usual((*usual.before, *since)[-_REMEMBERED:])
    return _Usual(usual.before, since, score, steps + 1, above, excess + value - level.mean)
