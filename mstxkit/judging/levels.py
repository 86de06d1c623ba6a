"""How long each piece of a step takes for everybody, against its own history, for the work that there was."""

from __future__ import annotations

import numpy as np

from ..triggers import slow_stage
from .columns import At, Matrix, Regression, Vector

_OUTLIER, _LEAST_NOISE = 4.0, 0.01
# How fast history follows: while nothing has changed, and while something seems to have.
_FOLLOWS, _FOLLOWS_CHANGED = 0.03, 0.002
# So many steps make a history.
_STEPS = 10


class Levels:
    """What is usual for each piece: (C,) level, noise and work, and what has been added up against it."""

    def __init__(self, features: int) -> None:
        self.seen, self.level, self.variance = np.zeros(0), np.zeros(0), np.zeros(0)
        self.work = np.zeros((0, features))
        self.change = slow_stage.empty(0)
        self._regression = Regression(features)

    def widen(self, columns: int) -> None:
        """Room for so many columns."""
        more = columns - len(self.seen)
        if more <= 0:
            return
        self._regression.widen(columns)
        self.seen, self.level, self.variance = (np.pad(v, (0, more)) for v in (self.seen, self.level, self.variance))
        self.work = np.pad(self.work, ((0, more), (0, 0)))
        self.change = slow_stage.Change(*(np.pad(values, (0, more)) for values in self.change))

    def add(self, settings: slow_stage.SlowStage, at: At, level: Vector, work: Matrix, is_judged: bool) -> Vector:
        """One step more; (K,) logarithm of time over what was expected, NaN where there is no history yet."""
        is_there = np.isfinite(level)
        more_work = np.where(self.seen[at][:, None] > 0, work - self.work[at], 0.0)
        off = level - self.level[at] - (more_work * self._regression.slopes(at)).sum(axis=1)
        off = np.where(is_there & (self.seen[at] > 0), off, 0.0)
        noise = np.maximum(np.sqrt(self.variance[at]), _LEAST_NOISE)
        excess = np.where(is_there & (self.seen[at] >= _STEPS), off, np.nan)
        if is_judged:
            before = slow_stage.Change(*(values[at] for values in self.change))
            for kept, new in zip(self.change, slow_stage.added(settings, before, excess, noise)):
                kept[at] = np.minimum(new, 6 * settings.threshold) if kept is self.change.score else new
        self._learn(settings, at, level, off, noise, work, more_work, is_there)
        return excess

    def _learn(
        self, settings: slow_stage.SlowStage, at: At, level: Vector, off: Vector, noise: Vector, work: Matrix,
        more_work: Matrix, is_there: np.typing.NDArray[np.bool_],
    ) -> None:  # fmt: skip
        seen = self.seen[at]
        off = np.where(seen >= 3, np.clip(off, -_OUTLIER * noise, _OUTLIER * noise), off)
        has_changed = (self.change.score[at] > settings.asks_at) & (seen >= _STEPS)
        follows = np.where(has_changed, _FOLLOWS_CHANGED, np.maximum(1 / (seen + 1), _FOLLOWS))
        rate = np.where(is_there, follows, 0.0)
        known_change = np.where(seen > 0, off, np.nan_to_num(level))
        usable = (is_there & (seen > 0)).astype(float)
        target = np.where(usable > 0, level - self.level[at], 0.0)
        self._regression.learn(at, more_work[None], target[None], usable[None])
        self.level[at] += rate * known_change
        self.work[at] += rate[:, None] * np.where(seen[:, None] > 0, more_work, work)
        grown = np.where(seen == 1, 1.0, np.where(seen > 1, follows, 0.0)) * is_there
        self.variance[at] += grown * (off**2 - self.variance[at])
        self.seen[at] = seen + is_there

    def forget(self, column: int) -> None:
        """What has changed becomes what is usual."""
        self.level[column] += slow_stage.mean_excess(self.change)[column]
        for part in self.change:
            part[column] = 0.0
