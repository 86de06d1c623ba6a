"""Arrays that grow by columns and keep their members: what is remembered of each rank in each piece of a step.

What is remembered is bounded: so many numbers for each member and piece, however many steps go by.
"""

from __future__ import annotations

from typing import Callable, Hashable, Iterator, Sequence

import numpy as np

from ..triggers import slow_rank
from ..triggers.late_rank import middle_of
from .evidence import Matrix, Vector, Whole

# So many columns there are at most.
COLUMNS = 160
# What lies further out than so many standard deviations counts as if it lay there.
OUTLIER = 5.0
LEAST_NOISE = 0.005
# By how many steps all ranks' noise speaks for that of each, and by how many its own does at most.
_SEEN_BEFORE, _SEEN_AT_MOST = 20.0, 33.0
# So many steps make a history; how fast it follows, and how much of a change it takes for noise.
_HISTORY_STEPS, _FOLLOWS, _CLIP = 8, 0.05, 0.1


def or_zero(values: Matrix) -> Matrix:
    """0 in place of NaN. `np.nan_to_num` costs five times as much."""
    return np.where(np.isnan(values), 0.0, values)


class PieceColumns:
    """Which column a piece has. More pieces than `COLUMNS` are not remembered."""

    def __init__(self) -> None:
        self._at: dict[Hashable, int] = {}

    def of(self, keys: Sequence[Hashable]) -> Whole:
        """Column of each key, -1 where there is no room for it."""
        for key in keys:
            if key not in self._at and len(self._at) < COLUMNS:
                self._at[key] = len(self._at)
        return np.array([self._at.get(key, -1) for key in keys], dtype=np.int64)

    def find(self, key: Hashable) -> int:
        """Column of a key; -1 where it has none."""
        return self._at.get(key, -1)

    def __len__(self) -> int:
        return len(self._at)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._at)


class Ranks:
    """A value of each rank in each piece, (M, C): how often it was seen, its level, a mean in which later values count
    more, the variance around that, and the sums of a sequential test.
    """

    def __init__(self, members: int) -> None:
        self.seen, self.level, self.variance = (np.zeros((members, 0)) for _ in range(3))
        self.sums = slow_rank.empty_sums(members, 0)

    def widen(self, columns: int) -> None:
        """Room for so many columns."""
        more = columns - self.seen.shape[1]
        if more > 0:
            self._change(lambda values: np.pad(values, ((0, 0), (0, more))))

    def rearrange(self, places: Whole) -> None:
        """Members have come, gone or moved: (M,) where each was before, -1 for who is new."""
        self._change(lambda values: np.where(places[:, None] >= 0, np.pad(values, ((0, 1), (0, 0)))[places], 0.0))

    def _change(self, change: Callable[[Matrix], Matrix]) -> None:
        self.seen, self.level, self.variance = (change(v) for v in (self.seen, self.level, self.variance))
        self.sums = slow_rank.AddedUp(*(change(values) for values in self.sums))

    def usual_noise(self, at: Whole) -> Vector:
        """(K,) standard deviation from step to step of the steadier ones; infinite while there is no history."""
        variance = np.sort(np.where(self.seen[:, at] >= 3, self.variance[:, at], np.inf), axis=0)[len(self.seen) // 4]
        return np.where(np.isfinite(variance), np.sqrt(np.fmax(variance, LEAST_NOISE**2)), np.inf)

    def lowest_level(self, at: Whole) -> Vector:
        """(K,) of the quarter that is lowest: by how much all are above the middle, as times lie far out above it."""
        return np.asarray(np.sort(np.maximum(0.0, self.level[:, at]), axis=0)[len(self.level) // 4])

    def noise(self, at: Whole, values: Matrix) -> Matrix:
        """(M, K) standard deviation of each, from step to step; no less than is usual among all.

        As long as there is no history, how far this step's values lie apart stands for it.
        """
        seen, variance = self.seen[:, at], self.variance[:, at]
        usual = middle_of(np.where(seen >= 3, variance, np.nan))
        if np.isnan(usual).any():
            apart = 1.4826 * middle_of(np.abs(values - middle_of(values)))
            usual = np.where(np.isfinite(usual), usual, apart**2)
        # A rank's own noise is believed as far as it was seen often: a few values may lie far out by chance.
        weight = np.minimum(seen, _SEEN_AT_MOST)
        own = (weight * variance + _SEEN_BEFORE * usual) / (weight + _SEEN_BEFORE)
        return np.asarray(np.sqrt(np.fmax(np.fmax(own, usual), LEAST_NOISE**2)))

    def learn(self, at: Whole, values: Matrix, noise: Matrix) -> None:
        """One step's values become part of level and noise."""
        seen = self.seen[:, at]
        is_there = np.isfinite(values)
        off = np.where(is_there, values - self.level[:, at], 0.0)
        off = np.where(seen > 0, np.minimum(np.maximum(off, -OUTLIER * noise), OUTLIER * noise), off)
        rate = np.maximum(1 / (seen + 1), 0.05)
        self.level[:, at] += rate * off
        slow_rate = np.where(seen > 0, np.maximum(1 / np.maximum(seen, 1), 0.03), 0.0)
        square = off**2 * seen / (seen + 1)  # the level itself is uncertain as long as it was seen seldom
        grown = self.variance[:, at] + slow_rate * (square - self.variance[:, at])
        self.variance[:, at] = np.where(is_there, grown, self.variance[:, at])
        self.seen[:, at] = seen + is_there

    def add(self, settings: slow_rank.SlowRank, at: Whole, values: Matrix, noise: Matrix) -> slow_rank.AddedUp:
        """One step of the sequential test; the sums of these columns."""
        sums = slow_rank.added(self.sums.of(at), values, noise, settings.slack, settings.clip)
        limit = 4 * settings.threshold  # what goes on for long shall not take as long to be forgotten
        sums = sums._replace(score=np.minimum(sums.score, limit))
        self.sums.put(at, sums)
        return sums

    def begin_anew(self, column: int) -> None:
        """What was measured in a column so far was something else."""
        for part in (self.seen, self.level, self.variance, *self.sums):
            part[:, column] = 0.0

    def forget(self, member: int) -> None:
        """The tests of one begin anew."""
        for part in self.sums:
            part[member] = 0.0


class Regression:
    """What a value owes to the work that was done: slopes, by least squares over all steps, old ones fading."""

    FADES, RIDGE = 0.98, 0.02

    def __init__(self, features: int) -> None:
        self.features = features
        self.squares, self.products = np.zeros((COLUMNS, features, features)), np.zeros((COLUMNS, features))

    def slopes(self, at: Whole) -> Matrix:
        """(K, F)."""
        squares = self.squares[at]
        if not squares.any():  # nobody has told of any work
            return np.zeros((len(at), self.features))
        size = np.trace(squares, axis1=1, axis2=2)
        ridge = (self.RIDGE * size / self.features + 1e-9)[:, None, None] * np.eye(self.features)
        return np.asarray(np.linalg.solve(squares + ridge, self.products[at][:, :, None])[:, :, 0])

    def learn(self, at: Whole, features: Matrix, values: Matrix, weights: Matrix) -> None:
        """One step more: (M, K, F), (M, K), (M, K); weight 0 where something is not known."""
        weighted = features * weights[:, :, None]
        values = np.where(weights > 0, values, 0.0)
        self.squares[at] = self.FADES * self.squares[at] + np.einsum("mkf,mkg->kfg", weighted, features)
        self.products[at] = self.FADES * self.products[at] + np.einsum("mkf,mk->kf", weighted, values)


class JointEnds:
    """Is a piece over for all together, whoever comes to it late? Learned from who came when and how long it took.

    What counts is by how much each comes and takes longer than it itself usually does: who is always late, or always
    slow, by whatever much, teaches nothing wrong; but who leaves much closer together than they came has waited, also
    where nothing varies but how late each wakes up. What far more than noise is not learned from. Once it is known, it
    stays known.
    """

    FADES, FOLLOWS, OUTLIER = 0.97, 0.1, 4.0
    # Known is what so many steps and deviations show. So far apart, as a share of a step, they come at least, and of
    # that so far apart they leave at most, in so many of the last steps.
    STEPS, SURE, APART, TOGETHER, MOST = 12, 6.0, 0.01, 0.05, 0.7

    def __init__(self) -> None:
        self._sums, (self._known, self._steps, self._together) = np.zeros((COLUMNS, 4)), np.zeros((3, COLUMNS))
        self._usual: dict[int, tuple[Vector, Vector]] = {}

    def learn(self, at: Whole, came: Matrix, took: Matrix) -> None:
        """One step more: (M, K) each against the middle of all, NaN where not known, came 0 where it is uncertain."""
        for place, column in enumerate(at.tolist()):
            self._learn(column, came[:, place], took[:, place])

    def _learn(self, column: int, came: Vector, took: Vector) -> None:
        usable = np.isfinite(came) & np.isfinite(took)
        came, took = np.where(usable, came, 0.0), np.where(usable, took, 0.0)
        is_together = np.ptp(came) > max(self.APART, np.ptp(came + took) / self.TOGETHER)
        before = self._usual.get(column)
        self._together[column] += (self.FOLLOWS if before else 1.0) * (is_together - self._together[column])
        if before is None:
            self._usual[column] = came, took
            return
        came_off, took_off = came - before[0], took - before[1]
        rate = self.FOLLOWS * usable
        self._usual[column] = before[0] + rate * came_off, before[1] + rate * took_off
        size = 1.4826 * float(middle_of(np.abs(np.where(usable, came_off, np.nan))))
        usable &= np.abs(came_off) <= self.OUTLIER * size if usable.sum() > 2 else usable
        x, y = came_off[usable], took_off[usable]
        self._sums[column] = self.FADES * self._sums[column] + (x @ x, x @ y, y @ y, len(x))
        self._steps[column] += 1
        if not self._known[column] and self._steps[column] >= self.STEPS:
            slope, error = self.slopes(np.array([column]))
            self._known[column] = np.sign(-0.5 - slope[0]) * (abs(slope[0] + 0.5) > self.SURE * error[0])

    def known(self, at: Whole) -> Vector:
        """(K,) 1: it is over for all together, -1: for each alone, 0: that is not known for sure."""
        return self._known[at]

    def slopes(self, at: Whole) -> tuple[Vector, Vector]:
        """(K,) change of the time in it by when it was come to, -1 where all wait; and its standard error."""
        squares, products, took, count = self._sums[at].T
        slope = products / np.maximum(squares, 1e-30)
        rest = np.maximum(0.0, took - slope * products) / np.maximum(1.0, count - 2)
        is_together = self._together[at] > self.MOST
        slope, error = np.where(is_together, -1.0, slope), np.where(is_together, 0.0, rest / np.maximum(squares, 1e-30))
        return slope, np.where((is_together | (squares > 1e-30)) & (count >= 6), np.sqrt(error), np.inf)


class OwnHistory:
    """What is expected of those who have no other in their place: what they took so far, if all the others still do.

    Logarithms of times of members, or of places of the model, by column.
    """

    def __init__(self) -> None:
        self._usual: dict[int, tuple[int, Vector]] = {}

    def excess(self, column: int, times: Vector, is_learned: bool = True) -> Vector:
        """Logarithm of the time over what each usually takes, less what all take more; and learn from it. NaN: unknown.
        `times`: logarithms; NaN: not there. `is_learned`: is nothing known to be wrong there?
        """
        count, usual = self._usual.get(column, (0, times))
        if len(usual) != len(times):
            count, usual = 0, times
        usual = np.where(np.isfinite(usual), usual, times)
        more = times - usual
        # Of two the one that has become slower less is taken for healthy.
        common = np.fmin.reduce(more) if np.isfinite(more).sum() == 2 else middle_of(more)
        rate = max(1 / (count + 1), _FOLLOWS) * (is_learned or not count)
        bounded = np.clip(more, -_CLIP, _CLIP) if count > _HISTORY_STEPS else more
        self._usual[column] = count + 1, usual + rate * np.where(np.isnan(more), 0.0, bounded)
        return np.asarray(more - common if count >= _HISTORY_STEPS else np.full(len(times), np.nan))
