"""What one or a few members do in a stage in which no other is, while all wait for them: it is compared with nobody."""

from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from ..store.verdicts import SERIAL
from ..triggers.serial import Serial
from .cutting import IN
from .findings import EVERYTHING, Finding, Key, Surplus
from .losses import LossRatio, StepLoss
from .measuring import FED, MeasuredStep


class AloneInStages:
    """Remembers what steps lose by the stages of a few of a role."""

    def __init__(self) -> None:
        self._losses: dict[Key, LossRatio] = {}

    def find(
        self, limits: Serial, measured: MeasuredStep, keys: Sequence[str], step_s: float,
        lost: Callable[[Sequence[Surplus]], StepLoss | None],
    ) -> list[Finding]:  # fmt: skip
        """Those of this step that have cost enough for long enough.

        Args:
            limits: Settings.
            measured: The step.
            keys: Of its members.
            step_s: How long a step takes.
            lost: What the step loses by time that is taken away.
        """
        here = np.isfinite(measured.took_s) & np.array([kind.where == IN for kind in measured.kinds], bool)
        is_few = here.any(axis=0) & (here.sum(axis=0) <= max(1, limits.alone * len(keys))) & (len(keys) > 1)
        findings = []
        for piece in np.flatnonzero(is_few & (measured.mode != FED)).tolist():
            places = np.flatnonzero(here[:, piece])
            key = Key(SERIAL, IN, measured.kinds[piece].stage, keys[places[0]])
            loss = self._losses.setdefault(key, LossRatio())
            loss.add(lost([Surplus(IN, key.stage, tuple(keys[at] for at in places.tolist()), EVERYTHING)]))
            if loss.times >= limits.steps and loss.ratio >= limits.impact:
                took_s = float(np.fmax.reduce(measured.took_s[places, piece]))
                evidence = {"usual_s": took_s}
                findings.append(
                    Finding(key, int(places[0]), loss.times, took_s / step_s, took_s, 1.2, (), evidence)
                )  # fmt: skip
        return findings
