"""Which groups' collectives take long while everybody has entered in time, step by step."""

from __future__ import annotations

import statistics
from typing import Iterable, NamedTuple

from ..triggers import slow_link
from .evidence import Collectives, RoleStep
from .findings import Finding, Key
from .inside import GroupTime

# Where a finding of this is: between members, not in one.
LINK = "link"
_GROUPS_AT_MOST = 8192
_HISTORY = 6


class _Usual(NamedTuple):
    """What a group's collectives in a stage take."""

    seconds: float
    steps: int


class Links:
    """Remembers what collectives of each group and stage take, and for how long that has been too much."""

    def __init__(self) -> None:
        self._usual: dict[tuple[int, str], _Usual] = {}
        self._slow: dict[tuple[int, str], int] = {}

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
            persistent = [group for group in slow if self._slow[group, stage] >= settings.steps]
            if persistent:
                findings.append(self._finding(stage, persistent, seconds, slow, rings, step_s))
        return findings

    def _slow_groups(
        self, settings: slow_link.SlowLink, stage: str, seconds: dict[int, float], rings: Collectives, step_s: float
    ) -> dict[int, float]:
        """Group to what is usual for it."""
        slow = {}
        for group, took_s in seconds.items():
            usual_s = self._usual_s(settings, stage, group, seconds, rings)
            if slow_link.is_slow(settings, took_s, usual_s, step_s):
                slow[group] = usual_s
                self._slow[group, stage] = min(1000, self._slow.get((group, stage), 0) + 1)
            else:
                self._slow.pop((group, stage), None)
                self._learn(stage, group, took_s)
        return slow

    def _usual_s(
        self, settings: slow_link.SlowLink, stage: str, group: int, seconds: dict[int, float], rings: Collectives
    ) -> float:
        """By its own history, or by groups of as many ranks; 0: nothing to compare it with."""
        usual = self._usual.get((group, stage))
        size = len(rings.groups.get(group, ()))
        others = [
            took_s for other, took_s in seconds.items() if other != group and len(rings.groups.get(other, ())) == size
        ]
        by_others = statistics.median(others) if len(others) >= settings.peers else 0.0
        own = usual.seconds if usual is not None and usual.steps >= 2 else 0.0
        return min(filter(None, (own, by_others)), default=0.0)

    def _learn(self, stage: str, group: int, took_s: float) -> None:
        if (group, stage) not in self._usual and len(self._usual) >= _GROUPS_AT_MOST:
            return
        before = self._usual.get((group, stage), _Usual(0.0, 0))
        steps = min(before.steps + 1, _HISTORY)
        self._usual[group, stage] = _Usual(before.seconds + (took_s - before.seconds) / steps, before.steps + 1)

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
            Key(kind, LINK, stage), -1, self._slow[worst, stage], more_s / max(slow[worst], 1e-9), more_s, 1.5,
            names, {
                "collectives_s": seconds[worst], "usual_s": slow[worst], "slow_groups": len(slow),
                "groups": len(compared), **({"ranks": ",".join(map(str, alone))} if alone else {}),
            },
        )  # fmt: skip
