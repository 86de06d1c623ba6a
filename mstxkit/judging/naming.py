"""Who may be named of those that stand out: it takes more where little is lost, nobody is who may be waiting, and those
that are slow together (a host, those with one part of the model) are named as what they are.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from ..triggers import slow_rank
from ..triggers.late_rank import LateRank
from .cutting import are_of
from .evidence import Matrix, Peer, Truths, Vector, Whole
from .in_a_row import Rows
from .measuring import INSIDE, MeasuredStep
from .settings import JudgeSettings

# From this score on a rank may be one of several that are slow together.
_TIED_SCORE = 3.0
# Of a set of members that one of them stands out of, so many must build up, by this share of what is asked of one;
# where nearly all do, who builds up less is one of them.
_OF_A_SET, _NEARLY_ALL, _BUILDS_UP = 0.7, 0.85, 0.35
# Of what the slowest of a set is slow by, the others are by this share at least.
_ALIKE = 0.33


class SlowSet(NamedTuple):
    """Members that are slow together in one piece: all of a "host", a "place" or a "row" of that name; "": of none."""

    places: Whole
    dimension: str = ""
    name: str = ""


def is_sure(measured: MeasuredStep, sums: slow_rank.AddedUp, lost_ratio: Matrix, settings: JudgeSettings) -> Truths:
    """(M, K): is its score high enough for the share of the step that is lost? Chance makes somebody a little late
    inside.
    """
    limits = settings.of(LateRank)
    least = limits.certainty * slow_rank.threshold_for(settings.of(slow_rank.SlowRank), sums.score.size)
    is_little = are_of(measured.kinds, INSIDE)[None, :] & (lost_ratio < limits.doubt)
    return np.asarray(~is_little | (sums.score > least))


def sets_in(
    fires: Truths, score: Vector, mean: Vector, threshold: float, peers: Sequence[Peer], rows: Rows | None
) -> list[SlowSet]:
    """Who is slow in a piece, those of one host, place or row together where nearly all of it are, by about as much. Of
    each it is told whether it stands out, what has been added up (NaN: it is not in that piece), and the mean, a
    logarithm.
    """
    sets: list[SlowSet] = []
    left = fires.copy()
    builds_up = score > _BUILDS_UP * threshold
    there = np.isfinite(score)
    names = {name: [getattr(peer, name) for peer in peers] for name in ("host", "place")}
    if rows is not None:
        names["row"] = [str(row) for row in rows.tolist()]
    candidates = []
    for what, of_peers in names.items():
        values = np.array(of_peers, dtype=object)
        distinct = sorted({name for name in values[there].tolist() if name})
        if len(distinct) > 1:
            candidates += [SlowSet(np.flatnonzero((values == name) & there), what, name) for name in distinct]
    candidates.sort(key=lambda each: -len(each.places))  # the one that explains most comes first
    for members, dimension, name in candidates:
        most = mean[members][left[members]].max(initial=0.0)
        are_alike = mean[members] >= _ALIKE * most
        is_set = left[members].any() and 1 < len(members) < there.sum()
        if is_set and (are_alike & builds_up[members]).mean() >= _OF_A_SET:
            # Of them are those too that build up half as far, or that began to long before, so that their mean is low;
            # and who builds up at all, where it is one of the last.
            of_them = (are_alike & (score[members] > _BUILDS_UP / 2 * threshold)) | (score[members] > threshold)
            of_them |= are_alike & (score[members] > 0) & (of_them.mean() >= _NEARLY_ALL)
            sets.append(SlowSet(members[of_them], dimension, name))
            left[members] = False
    return [*sets, *(SlowSet(np.array([place])) for place in np.flatnonzero(left).tolist())]


def find_tied(measured: MeasuredStep, sums: slow_rank.AddedUp, base_s: float) -> Truths:
    """(M, K): was it done with a piece just when another was that looks slow too?

    They wait for each other, in a group that nobody has told of: who of them is late is not to be seen from here.
    """
    tied = np.zeros(sums.score.shape, bool)
    are_several = (sums.score > _TIED_SCORE).sum(axis=0) > 1
    for piece in np.flatnonzero(are_several & ~are_of(measured.kinds, INSIDE)).tolist():
        slow = np.flatnonzero(sums.score[:, piece] > _TIED_SCORE)
        slow = slow[np.argsort(measured.done_s[slow, piece])]
        near_s = 0.25 * (np.expm1(sums.mean[slow, piece]) * (measured.usual_s[piece] + base_s))
        close = np.diff(measured.done_s[slow, piece]) < np.minimum(near_s[1:], near_s[:-1])
        tied[slow[1:][close], piece] = tied[slow[:-1][close], piece] = True
    return tied
