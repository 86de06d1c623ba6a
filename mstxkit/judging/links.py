"""Which groups' collectives take long while everybody has entered in time, step by step."""

from __future__ import annotations

import math
import statistics
from typing import Iterable, NamedTuple

from ..triggers import slow_link
from .evidence import Collectives, RoleStep
from .findings import Finding, Key
from .inside import GroupTime

# Where a finding of this is: between members, not in one.
LINK = "link"
_GROUPS_AT_MOST = 8192
_LEARNT_FROM = 5
# Times are compared as logarithms of so much more than they are: a share of the step.
_BASE_RATIO = 0.01
# Deviations a step that are noise, that one step counts at most, that added up are a fault, from which on nothing is
# learned; and the least that is noise. Where processes share cores, times have two levels and long tails.
_SLACK, _CLIP, _THRESHOLD, _SUSPECTED = 0.75, 4.0, 12.0, 3.0
_LEAST_NOISE, _FOLLOWS, _NOTHING = 0.15, 0.05, 700.0


class _Usual(NamedTuple):
    """What a group's collectives in a stage take, as a logarithm, and what has been more than that for some steps.

    Args:
        seen: Steps that it was learned from.
        level, variance: Of the logarithm.
        score, steps, excess: Of the sequential test: deviations, steps and logarithms added up since it began.
    """

    seen: int = 0
    level: float = 0.0
    variance: float = 0.0
    score: float = 0.0
    steps: int = 0
    excess: float = 0.0


class Links:
    """Remembers what collectives of each group and stage take, and for how long that has been too much."""

    def __init__(self) -> None:
        self._usual: dict[tuple[int, str], _Usual] = {}

    def add(
        self,
        settings: slow_link.SlowLink,
        step: RoleStep,
        rings: Collectives,
        times: Iterable[GroupTime],
        step_s: float,
    ) -> list[Finding]:
        """One step more; what is slow in it, for long enough."""
        by_stage: dict[str, dict[int, float]] = {}
        for time in times:
            by_stage.setdefault(step.stages[time.stage], {})[time.group] = time.took_s
        findings = []
        for stage, seconds in by_stage.items():
            slow = self._slow_groups(settings, stage, seconds, rings, step_s)
            persistent = [group for group in slow if self._usual[group, stage].steps >= settings.steps]
            if persistent:
                findings.append(self._finding(stage, persistent, seconds, slow, rings, step_s))
        return findings

    def _slow_groups(
        self, settings: slow_link.SlowLink, stage: str, seconds: dict[int, float], rings: Collectives, step_s: float
    ) -> dict[int, float]:
        """Group to what is usual for it."""
        slow, base_s = {}, _BASE_RATIO * step_s
        for group, took_s in seconds.items():
            before = self._usual.get((group, stage), _Usual())
            if not before.seen and len(self._usual) >= _GROUPS_AT_MOST:
                continue
            level = self._level(settings, before, group, seconds, rings, base_s)
            usual = self._usual[group, stage] = _added(before, level, math.log(took_s + base_s))
            usual_s, more = math.exp(level) - base_s, usual.excess / max(1, usual.steps)
            mean_s = math.exp(level + more) - base_s
            if usual.score > _THRESHOLD and slow_link.is_slow(settings, mean_s, max(usual_s, 1e-9), step_s):
                slow[group] = usual_s
        return slow

    def _level(
        self, settings: slow_link.SlowLink, usual: _Usual, group: int, seconds: dict[int, float], rings: Collectives,
        base_s: float,
    ) -> float:  # fmt: skip
        """By its own history, or by groups of as many ranks; infinite: nothing to compare it with."""
        size = len(rings.groups.get(group, ()))
        others = [
            took_s for other, took_s in seconds.items() if other != group and len(rings.groups.get(other, ())) == size
        ]
        by_others = math.log(statistics.median(others) + base_s) if len(others) >= settings.peers else _NOTHING
        return min(usual.level if usual.seen >= _LEARNT_FROM else _NOTHING, by_others)

    def _finding(
        self, stage: str, persistent: list[int], seconds: dict[int, float], slow: dict[int, float], rings: Collectives,
        step_s: float,
    ) -> Finding:  # fmt: skip
        compared = {group: rings.groups.get(group, ()) for group in seconds}
        alone = slow_link.separated(compared, slow)
        worst = max(persistent, key=lambda group: seconds[group] - slow[group])
        kind = "link" if alone or len(compared) > len(slow) else "communication"
        more_s = seconds[worst] - slow[worst]
        names = tuple(alone) if len(alone) == 2 else tuple(compared[worst])
        return Finding(
            Key(kind, LINK, stage), -1, self._usual[worst, stage].steps, more_s / max(slow[worst], 1e-9), more_s, 1.5,
            names, {
                "collectives_s": seconds[worst], "usual_s": slow[worst], "slow_groups": len(slow),
                "groups": len(compared), **({"ranks": ",".join(map(str, alone))} if alone else {}),
            }, {group: seconds[group] - usual_s for group, usual_s in slow.items()},
        )  # fmt: skip


def _added(usual: _Usual, level: float, value: float) -> _Usual:
    """One step more: tested against this level, and learned from as long as nothing is suspected."""
    if level < _NOTHING:
        noise = max(_LEAST_NOISE, math.sqrt(usual.variance))
        deviations = max(-_CLIP, min(_CLIP, (value - level) / noise)) - _SLACK
        score = min(4 * _THRESHOLD, usual.score + deviations)
        usual = (
            usual._replace(score=score, steps=usual.steps + 1, excess=usual.excess + value - level)
            if score > 0
            else usual._replace(score=0.0, steps=0, excess=0.0)
        )
    return usual if usual.score > _SUSPECTED else _learnt(usual, value)


def _learnt(usual: _Usual, value: float) -> _Usual:
    rate = max(1 / (usual.seen + 1), _FOLLOWS)
    off = value - usual.level if usual.seen else 0.0
    variance = usual.variance + (rate * (off * off - usual.variance) if usual.seen else 0.0)
    level = usual.level + rate * off if usual.seen else value
    return usual._replace(seen=usual.seen + 1, level=level, variance=variance)
