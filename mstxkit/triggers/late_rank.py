"""By how much each rank enters a synchronising collective after the others: who comes last makes the others wait.

Entries come from collectives where there are any, else from the beginning of a stage that synchronises.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._declare import setting

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LateRank:
    """When is a rank late?"""

    impact: float = setting(0.008, 0.0, 1, "Share of the step by which it enters collectives after the others.")
    doubt: float = setting(0.01, 0.0, 1, "Share of the step below which more evidence than usual is needed.")
    certainty: float = setting(1.5, 1, 3, "By how many times slow_rank.threshold is exceeded then.")


TRIGGER = LateRank


def after_others(values: Seconds) -> Seconds:
    """Each value against the middle of the others, along the first axis; of two, against the other."""
    off = values - middle_of(values)
    if len(values) > 2 and not np.isnan(off).any():
        return off
    return off * np.where(np.isfinite(values).sum(axis=0) == 2, 2.0, 1.0)


def middle_of(values: Seconds) -> Seconds:
    """Median along the first axis, NaN left out; NaN where there is none."""
    count = values.shape[0]
    if count == 0:
        return np.full(values.shape[1:], np.nan)
    ordered = values.copy()
    ordered.sort(axis=0)  # NaN last
    if not np.isnan(ordered[-1]).any():
        return np.asarray(0.5 * (ordered[(count - 1) // 2] + ordered[count // 2]))
    counts = count - np.isnan(ordered).sum(axis=0)
    low, high = np.maximum(0, (counts - 1) // 2), np.minimum(count - 1, counts // 2)
    lower, upper = (np.take_along_axis(ordered, at[np.newaxis], axis=0)[0] for at in (low, high))
    return np.asarray(0.5 * (lower + upper))
