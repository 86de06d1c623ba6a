"""Which members meet in a stage: all of a role, or groups of it, as its collectives tell; else as times show. And by
how much later than the first each rank enters a collective: a difference within the bound of the clocks is none.
"""

from __future__ import annotations

from typing import Callable, Iterable, NamedTuple

import numpy as np

from ..triggers.late_rank import after_others
from .evidence import MEET, Collectives, Matrix, RoleStep, Truths, Vector, Whole

Labels = Whole
# How far apart they leave, of how far apart they entered; 1 and more where nobody waits.
TOGETHER_AT_MOST = 0.5
# Of so many steps at least, in which entries lie farther apart than clocks err and a begin takes to be noted.
STEPS_NEEDED, APART_AT_LEAST_S = 4, 20e-6


def left_together(steps: Iterable[RoleStep], or_in_doubt: bool = False) -> frozenset[tuple[str, str]]:
    """(role, stage) of the stages in which members wait for each other, where steps are too few to learn it: they leave
    much closer together than they entered. `or_in_doubt`: those too into which all come too close together to tell.
    """
    ratios: dict[tuple[str, str], list[float]] = {}
    for step in steps:
        for place, stage in enumerate(step.stages):
            ratio, of_stage = _left_of_entered(step, place), ratios.setdefault((step.role, stage), [])
            of_stage += [] if ratio is None else [ratio]
    return frozenset(
        key for key, seen in ratios.items()
        if (np.median(seen) <= TOGETHER_AT_MOST if len(seen) >= STEPS_NEEDED else or_in_doubt)
    )  # fmt: skip


def _left_of_entered(step: RoleStep, stage: int) -> float | None:
    """How far apart they left a stage, of how far apart they entered it; None where that cannot be told."""
    entered, left = step.entered_s[:, stage], step.left_s[:, stage]
    there = ~np.isnan(entered) & taking_part(step)
    if np.count_nonzero(there) < 2:
        return None
    if np.ptp(entered[there]) <= max(APART_AT_LEAST_S, 2 * step.error_s[there].max()):
        return None
    return float(left[there].std() / entered[there].std())


def taking_part(step: RoleStep) -> Truths:
    """(M,) who is compared with others: those that do something in it, and do not only wait for others."""
    is_controller = np.array([peer.is_controller for peer in step.members], bool)
    return np.asarray(np.isfinite(step.entered_s).any(axis=1) & ~is_controller)


def labels_in(rings: Collectives, stage: int, members: int) -> Labels | None:
    """(M,) a number for those that meet in that stage; None where all of them meet, or nobody is known to.

    Groups that share a member meet: who is late in one of them makes the other late.
    """
    here = (rings.stage == stage) & rings.is_meeting
    if not here.any():
        return None
    member, (_, group) = rings.member[here], np.unique(rings.group[here], return_inverse=True)
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
    """(M, K) or (M,) when the last came of those that each meets, or the most of any values; NaN where nobody did."""
    if labels is None:
        return np.broadcast_to(np.fmax.reduce(came, axis=0), came.shape)
    _, group = np.unique(labels, return_inverse=True)
    last = np.full((int(group.max()) + 1, *came.shape[1:]), np.nan)
    np.fmax.at(last, group, came)
    return last[group]


def after_those(values: Matrix, labels: Labels | None) -> Matrix:
    """(M, K) each value against the middle of those that it meets."""
    return after_others(values) if labels is None else by_group(values, labels, after_others)


def by_group(values: Matrix, labels: Labels, of: Callable[[Matrix], Matrix]) -> Matrix:
    """(M, K) what that gives of the rows of each label."""
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


class Late(NamedTuple):
    """By how much later than the first each of K entries came, in collectives that at least two are known to enter.

    Args:
        at: (K,) which entries of the collectives these are.
        late_s: (K,) from 0 on.
        error_s: (K,) the bound of that: the member's own and that of who came first.
    """

    at: Labels
    late_s: Vector
    error_s: Vector


def late_in(entered: Collectives, error_s: Vector) -> Late:
    """Each entry against the first of its collective; of sends and receives nothing: one is to come before the other.
    `error_s`: (M,) bound of the error of each member's times.
    """
    order = np.lexsort((entered.entered_s, entered.sequence, entered.group))
    order = order if entered.kind is None else order[entered.kind[order] == MEET]
    if not len(order):
        return Late(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    group, sequence = entered.group[order], entered.sequence[order]
    begins = np.concatenate([[True], (group[1:] != group[:-1]) | (sequence[1:] != sequence[:-1])])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    size = np.bincount(np.cumsum(begins) - 1)[np.cumsum(begins) - 1]
    errors = error_s[entered.member[order]]
    late = entered.entered_s[order] - entered.entered_s[order][first]
    kept = size > 1
    return Late(order[kept], late[kept], np.where(first == np.arange(len(order)), 0.0, errors + errors[first])[kept])
