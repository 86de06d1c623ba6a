"""How long each piece of a step takes for everybody, against its own history, for the work that there was."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..triggers import slow_stage
from .columns import At, Matrix, Regression, Vector, grown, or_zero

_OUTLIER, _LEAST_NOISE = 4.0, 0.01
# How fast history follows: while nothing has changed, and while something seems to have.
_FOLLOWS, _FOLLOWS_CHANGED = 0.03, 0.002
# So many steps make a history.
_STEPS = 10


class LevelsNow(NamedTuple):
    """One step of K pieces.

    Args:
        at: (K,) columns.
        level: (K,) logarithm of the time; NaN: not seen.
        work: (K, F) logarithms of the work.
        cost: (K, F) by how much the former goes with the latter, as far as it is known from elsewhere.
    """

    at: At
    level: Vector
    work: Matrix
    cost: Matrix


class Levels:
    """What is usual for each piece: (C,) level, noise and work, and what has been added up against it."""

    def __init__(self, features: int) -> None:
        self.seen, self.level, self.variance, self._last = (np.zeros(0) for _ in range(4))
        self.work = np.zeros((0, features))
        self.change = slow_stage.empty(0)
        self._regression = Regression(features)

    def widen(self, columns: int) -> None:
        """Room for so many columns."""
        self._regression.widen(columns)
        arrays = self.seen, self.level, self.variance, self._last, self.work
        self.seen, self.level, self.variance, self._last, self.work = (grown(values, columns) for values in arrays)
        self.change = slow_stage.Change(*(grown(values, columns) for values in self.change))

    def add(self, settings: slow_stage.SlowStage, now: LevelsNow, is_judged: bool) -> None:
        """One step more; nothing is added up as long as there is no history, or where it is not to be judged."""
        at = now.at
        is_there = np.isfinite(now.level)
        # Against the work that is usual: a slope that is a little wrong counts little there.
        more_work = np.where(self.seen[at][:, None] > 0, now.work - self.work[at], 0.0)
        by_work = (more_work * (now.cost + self._regression.slopes(at))).sum(axis=1)
        off = np.where(is_there & (self.seen[at] > 0), now.level - self.level[at] - by_work, 0.0)
        noise = np.maximum(np.sqrt(self.variance[at]), _LEAST_NOISE)
        if is_judged:
            excess = np.where(is_there & (self.seen[at] >= _STEPS), off, np.nan)
            before = slow_stage.Change(*(values[at] for values in self.change))
            after = slow_stage.added(settings, before, excess, noise)
            after = after._replace(score=np.minimum(after.score, 6 * settings.threshold))
            for kept, new in zip(self.change, after):
                kept[at] = new
        self._learn(settings, now, off, noise, more_work)

    def _learn(
        self, settings: slow_stage.SlowStage, now: LevelsNow, off: Vector, noise: Vector, more_work: Matrix
    ) -> None:
        at, is_there = now.at, np.isfinite(now.level)
        seen = self.seen[at]
        has_changed = (self.change.score[at] > settings.asks_at) & (seen >= _STEPS)
        bounded = np.where(seen >= 3, np.minimum(np.maximum(off, -_OUTLIER * noise), _OUTLIER * noise), off)
        usable = (is_there & (seen > 0) & ~has_changed).astype(float)
        rest = np.where(usable > 0, now.level - self.level[at] - (more_work * now.cost).sum(axis=1), 0.0)
        self._regression.learn(at, more_work[None], rest[None], usable[None])
        # From one step to the next, so that a change that lasts is no noise.
        jump = (off - self._last[at]) ** 2 / 2
        jump = np.where(seen >= 4, np.minimum(jump, (_OUTLIER * noise) ** 2), jump)
        rate = np.where(is_there & (seen > 1), np.maximum(1 / np.maximum(1.0, seen - 1), _FOLLOWS), 0.0)
        self.variance[at] += rate * (jump - self.variance[at])
        follows = np.where(has_changed, _FOLLOWS_CHANGED, np.maximum(1 / (seen + 1), _FOLLOWS)) * is_there
        self.level[at] += follows * np.where(seen > 0, bounded, or_zero(now.level))
        self.level[at] += np.where(seen > 0, follows * (more_work * now.cost).sum(axis=1), 0.0)
        self.work[at] += follows[:, None] * np.where(seen[:, None] > 0, more_work, now.work)
        self._last[at] = np.where(is_there, off, self._last[at])
        self.seen[at] = seen + is_there

    def rebase(self, before_s: float, now_s: float) -> None:
        """Times are compared as logarithms of so much more from now on: what is usual stays as long as it was."""
        moved = np.log(np.maximum(np.exp(self.level) - before_s, 0.0) + now_s)
        self.level = np.where(self.seen > 0, moved, self.level)

    def drop(self, columns: At) -> None:
        """What has been added up against their history was something else."""
        for part in self.change:
            part[columns] = 0.0

    def begin_anew(self, column: int) -> None:
        """What is measured there is something else from now on."""
        if 0 <= column < len(self.level):
            for part in (self.seen, self.variance, *self.change):
                part[column] = 0.0

    def forget(self, column: int) -> None:
        """What has changed becomes what is usual."""
        if column >= len(self.level):
            return  # it was never compared
        self.level[column] += slow_stage.mean_excess(self.change)[column]
        for part in self.change:
            part[column] = 0.0
