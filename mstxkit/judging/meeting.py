"""Which members meet in a stage: all of a role, or groups of it, as its collectives tell."""

from __future__ import annotations

from typing import Callable

import numpy as np
import numpy.typing as npt

from ..triggers.late_rank import after_others
from .evidence import Collectives

Matrix = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def labels_in(rings: Collectives, stage: int, members: int) -> Labels | None:
    """(M,) a number for those that meet in that stage; None where all of them meet, or nobody is known to.

    Groups that share a member meet: who is late in one of them makes the other late.
    """
    here = (rings.stage == stage) & rings.is_meeting
    member, group = rings.member[here], rings.group[here]
    if not len(member):
        return None
    _, group = np.unique(group, return_inverse=True)
    labels = np.arange(members)
    for _ in range(members):
        lowest = np.full(int(group.max()) + 1, members)
        np.minimum.at(lowest, group, labels[member])
        before = labels.copy()
        np.minimum.at(labels, member, lowest[group])
        if (labels == before).all():
            break
    is_alone = np.bincount(labels, minlength=members)[labels] == 1
    labels[is_alone] = members  # not there: compared with each other
    return None if (labels == labels[0]).all() else labels


def last_of(came: Matrix, labels: Labels | None) -> Matrix:
    """(M, K) when the last came of those that each meets; NaN where nobody did."""
    if labels is None:
        return np.broadcast_to(np.fmax.reduce(came, axis=0), came.shape)
    _, group = np.unique(labels, return_inverse=True)
    last = np.full((int(group.max()) + 1, came.shape[1]), np.nan)
    np.fmax.at(last, group, came)
    return last[group]


def after_those(values: Matrix, labels: Labels | None) -> Matrix:
    """(M, K) each value against the middle of those that it meets."""
    return after_others(values) if labels is None else _by_group(values, labels, after_others)


def _by_group(values: Matrix, labels: Labels, of: Callable[[Matrix], Matrix]) -> Matrix:
    order = np.argsort(labels, kind="stable")
    _, sizes = np.unique(labels, return_counts=True)
    result = np.empty_like(values)
    if (sizes == sizes[0]).all():
        parts = values[order].reshape(len(sizes), sizes[0], -1).swapaxes(0, 1)
        result[order] = of(parts).swapaxes(0, 1).reshape(values.shape)
        return result
    for places in np.split(order, np.cumsum(sizes)[:-1]):
        result[places] = of(values[places])
    return result
