"""By how much values of one kind differ between two parts of a run: a ratio with its interval. Pure.

Times of steps have heavy tails and are like their neighbours. So medians of logarithms are compared, their spread is
taken from the middle of the values, and the number of values counts for less where each is like the one before. Where
values change once for good, each of the two parts has its own middle.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ..role_runs import Seconds

# Of fewer values on either side nothing is said.
STEPS_NEEDED = 5
# What is less is no difference that matters to anybody.
LEAST_RATIO = 0.01
# So many times as far apart as values lie from their middle: then they have changed for good.
_FOR_GOOD = 3
# Standard deviation of a normal distribution over its median absolute deviation, and over its quartiles' distance.
_OF_MAD, _OF_QUARTILES = 1.4826, 0.7413
# Standard error of a median over that of a mean, both of normal values.
_OF_MEDIAN = 1.2533
# A clock's grain: values that are all equal are no more certain than this share of them.
_GRAIN = 1e-4


class Difference(NamedTuple):
    """Of the values after against those before: medians, by which share that after is more (0.05 is 5 % more), the ends
    of its interval, and how many values there were.
    """

    before: float
    after: float
    ratio: float
    low: float
    high: float
    steps_before: int
    steps_after: int

    @property
    def direction(self) -> int:
        """1: it is more, for sure, and by as much as matters; -1: it is less; 0: no such difference is seen."""
        if self.low > 0 and self.ratio >= LEAST_RATIO:
            return 1
        return -1 if self.high < 0 and self.ratio <= -LEAST_RATIO else 0


def measure_difference(before: Seconds, after: Seconds, confidence: float = 0.95) -> Difference | None:
    """How values have changed; None where there are fewer than STEPS_NEEDED positive ones on either side.
    `before`, `after`: (N,) and (M,) in the order of their steps; NaN and what is not above 0 is left out; `confidence`:
    how often the interval should hold the truth, where nothing has changed either.
    """
    logs = [np.log(values[values > 0]) for values in (before, after)]  # NaN is not above 0
    if min(map(len, logs)) < STEPS_NEEDED:
        return None
    middles = [float(np.median(values)) for values in logs]
    errors, counts = zip(*(_standard_error(values) for values in logs))
    # Student's t, two-sided, by the first terms of its expansion about the normal one.
    z, freedom = NormalDist().inv_cdf(0.5 + min(confidence, 1 - 1e-12) / 2), max(1.0, min(counts) - 1)
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    reach = t * math.hypot(*errors)
    off = middles[1] - middles[0]
    return Difference(
        math.exp(middles[0]), math.exp(middles[1]), math.expm1(off), math.expm1(off - reach), math.expm1(off + reach),
        len(logs[0]), len(logs[1]),
    )  # fmt: skip


def _standard_error(logs: Seconds) -> tuple[float, float]:
    """Standard error of the median of logarithms, and how many values that do not depend on each other they are."""
    off = logs - np.median(logs)
    sums, counts = np.cumsum(off)[:-1], np.arange(1, len(off))
    at = int(np.argmax((sums - counts * off.mean()) ** 2 / (counts * (len(off) - counts)))) + 1
    # Off the middles of two parts, where they have changed for good in between.
    middles = [float(np.median(part)) for part in (logs[:at], logs[at:])]
    parts = np.concatenate((logs[:at] - middles[0], logs[at:] - middles[1]))
    if min(at, len(off) - at) >= STEPS_NEEDED and abs(middles[0] - middles[1]) > _FOR_GOOD * _measure_spread(parts):
        off = parts
    spread = _measure_spread(off)
    near = np.clip(off, -3 * spread, 3 * spread)
    energy = float(near @ near)
    alike = min(0.95, max(0.0, float(near[1:] @ near[:-1]) / energy)) if energy > 0 else 0.0
    count = max(2.0, len(logs) * (1 - alike) / (1 + alike))
    return _OF_MEDIAN * spread / math.sqrt(count), count


def _measure_spread(off: Seconds) -> float:
    """How far values lie from their middle, as a standard deviation would say it of normal ones."""
    quartiles = np.quantile(off, (0.25, 0.75))
    return max(_OF_MAD * float(np.median(np.abs(off))), _OF_QUARTILES * float(np.ptp(quartiles)), _GRAIN)


def find_onset(before: float, after: Seconds, ratio: float) -> int:
    """From which value on those after are as changed as they are in the end: an index of `after`, values in the order
    of their steps, NaN where there is none. `before`: the median before; `ratio`: by how much theirs is more, or less.
    """
    middle = math.log(before) + math.log1p(ratio) / 2  # half-way: on the far side of it a value is as changed
    beyond = np.sign(ratio) * (np.log(np.where(after > 0, after, np.exp(middle))) - middle)
    bound = abs(math.log1p(ratio))
    from_here = np.cumsum(np.clip(beyond, -bound, bound)[::-1])[::-1]
    return int(np.argmax(from_here))
