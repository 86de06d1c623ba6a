"""Who may be named of those that stand out: it takes more where little is lost, and nobody is who may be waiting."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..triggers import slow_rank
from ..triggers.late_rank import LateRank
from .columns import Matrix
from .measuring import INSIDE, MeasuredStep
from .settings import JudgeSettings

Truths = npt.NDArray[np.bool_]
# From this score on a rank may be one of several that are slow together.
_TIED_SCORE = 3.0


def inside_in(measured: MeasuredStep) -> Truths:
    """(K,): which pieces are seen by rings only."""
    return np.array([kind.where == INSIDE for kind in measured.kinds], bool)


def is_sure(measured: MeasuredStep, sums: slow_rank.RankSums, lost_ratio: Matrix, settings: JudgeSettings) -> Truths:
    """(M, K): is its score high enough for what the step loses? Chance alone makes somebody a little late inside.

    Args:
        measured, sums: The step, and what has been added up.
        lost_ratio: (M, K) share of the step that is lost.
        settings: In force.
    """
    limits = settings.of(LateRank)
    least = limits.certainty * slow_rank.threshold(settings.of(slow_rank.SlowRank), sums.score.size)
    is_little = inside_in(measured)[None, :] & (lost_ratio < limits.doubt)
    return np.asarray(~is_little | (sums.score > least))


def tied(measured: MeasuredStep, sums: slow_rank.RankSums, base_s: float) -> Truths:
    """(M, K): was it done with a piece just when another was that looks slow too?

    They wait for each other, in a group that nobody has told of: who of them is late is not to be seen from here.
    """
    tied = np.zeros(sums.score.shape, bool)
    mean = sums.excess / np.maximum(1.0, sums.steps)
    for piece in np.flatnonzero(((sums.score > _TIED_SCORE).sum(axis=0) > 1) & ~inside_in(measured)).tolist():
        slow = np.flatnonzero(sums.score[:, piece] > _TIED_SCORE)
        slow = slow[np.argsort(measured.done_s[slow, piece])]
        near_s = 0.25 * (np.expm1(mean[slow, piece]) * (measured.usual_s[piece] + base_s))
        close = np.diff(measured.done_s[slow, piece]) < np.minimum(near_s[1:], near_s[:-1])
        tied[slow[1:][close], piece] = tied[slow[:-1][close], piece] = True
    return tied
