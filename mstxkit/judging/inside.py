"""What collectives tell of the inside of a stage: each member's own time between them, and what the collectives took.

A member's own time goes on from when it was released by the collective before, or from when it entered the stage, to
when it enters the next collective. So whoever waits in a collective, in whatever group, does not look slow in the next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .evidence import Collectives, RoleStep

Vector = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


class GroupTime(NamedTuple):
    """What a group's collectives took in one stage of one step, from when its last member had entered."""

    group: int
    stage: int
    took_s: float
    calls: int


class Inside(NamedTuple):
    """The inside of the stages of one step.

    Args:
        own_s: (M, S) own time up to the last collective of the stage; NaN: no collective was entered in it.
        error_s: (M, S) bound of its error.
        groups: What the collectives took, where it is known when they were over.
    """

    own_s: npt.NDArray[np.float64]
    error_s: npt.NDArray[np.float64]
    groups: tuple[GroupTime, ...]


def inside(step: RoleStep, rings: Collectives) -> Inside:
    """What these collectives tell of this step."""
    shape = len(step.members), len(step.stages)
    rings = _usable(rings, *shape)
    if not len(rings.member):
        return Inside(np.full(shape, np.nan), np.zeros(shape), ())
    call, last_entered = _calls(rings)
    own, is_crossing = _own_times(step, rings, last_entered[call])
    place = rings.member * shape[1] + rings.stage
    size = shape[0] * shape[1]
    counted = np.bincount(place, minlength=size)
    total = np.bincount(place, weights=own, minlength=size)
    crossing = np.bincount(place, weights=is_crossing, minlength=size)
    own_s = np.asarray(np.where(counted > 0, total, np.nan).reshape(shape))
    error_s = crossing.reshape(shape) * step.error_s[:, None]
    behind_s, has_peers = _behind(step, rings, call)
    own_s, error_s = own_s + behind_s, error_s + has_peers * step.error_s[:, None]
    return Inside(_alike(own_s, counted.reshape(shape)), error_s, _group_times(rings, call))


def _usable(rings: Collectives, members: int, stages: int) -> Collectives:
    """Entries with a time, of a member and a stage that there are, in the order of each group's collectives."""
    usable = np.isfinite(rings.entered_s) & (rings.stage >= 0) & (rings.stage < stages)
    usable &= (rings.member >= 0) & (rings.member < members)
    order = np.flatnonzero(usable)
    order = order[np.lexsort((rings.sequence[order], rings.group[order]))]
    return rings.only(order)


def _calls(rings: Collectives) -> tuple[Whole, Vector]:
    """(K,) which call each entry is of; of each call, when its last member entered."""
    is_new = np.ones(len(rings.member), bool)
    is_new[1:] = (np.diff(rings.group) != 0) | (np.diff(rings.sequence) != 0)
    begins = np.flatnonzero(is_new)
    call = np.cumsum(is_new) - 1
    return call, np.maximum.reduceat(rings.entered_s, begins)


def _own_times(step: RoleStep, rings: Collectives, released: Vector) -> tuple[Vector, npt.NDArray[np.bool_]]:
    """(K,) own time that led to each entry, and whether it was measured against another member's clock."""
    order = np.lexsort((rings.entered_s, rings.member))
    entered, member, stage = rings.entered_s[order], rings.member[order], rings.stage[order]
    has_left = np.isfinite(rings.left_s[order])
    over = np.where(has_left, rings.left_s[order], released[order])
    is_same = np.zeros(len(order), bool)
    is_same[1:] = (member[1:] == member[:-1]) & (stage[1:] == stage[:-1])
    over_before, entered_before = np.roll(over, 1), np.roll(entered, 1)
    went_on = entered < over_before  # it did not wait for that collective
    since = np.where(went_on, entered_before, over_before)
    since = np.where(is_same, since, step.entered_s[member, stage])
    own, is_crossing = np.empty(len(order)), np.empty(len(order), bool)
    own[order] = np.maximum(0.0, entered - since)
    is_crossing[order] = is_same & ~np.roll(has_left, 1) & ~went_on
    return np.nan_to_num(own), is_crossing


def _behind(step: RoleStep, rings: Collectives, call: Whole) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """(M, S) by how much later than the first of those in its last collective of a stage a member left that stage,
    and whether that is anything: what it does behind that collective.
    """
    place = rings.member * len(step.stages) + rings.stage
    order = np.lexsort((rings.entered_s, place))
    is_last = np.append(place[order][1:] != place[order][:-1], True)
    last = order[is_last]
    member, stage, at = rings.member[last], rings.stage[last], call[last]
    left = step.left_s[member, stage]
    first, count = np.full(call.max() + 1, np.inf), np.bincount(at, minlength=call.max() + 1)
    np.fmin.at(first, at, left)
    behind, has_peers = np.zeros(step.left_s.shape), np.zeros(step.left_s.shape, bool)
    later = np.where((count[at] > 1) & np.isfinite(left), left - first[at], 0.0)
    behind[member, stage], has_peers[member, stage] = later, later > 0
    return behind, has_peers


def _alike(own_s: npt.NDArray[np.float64], counted: Whole) -> npt.NDArray[np.float64]:
    """Only members with as many collectives as most: others have done other work, or their ring began later."""
    usual = [np.bincount(column[column > 0]).argmax() if column.any() else 0 for column in counted.T]
    return np.where(counted == np.array(usual)[None, :], own_s, np.nan)


def _group_times(rings: Collectives, call: Whole) -> tuple[GroupTime, ...]:
    begins = np.flatnonzero(np.diff(call, prepend=-1))
    members = np.diff(np.append(begins, len(call)))
    # Who entered last waited for nobody; by its own clock, so that no clock's error counts.
    own = rings.left_s - rings.entered_s
    took = np.minimum.reduceat(np.where(np.isfinite(own), own, np.inf), begins)
    usable = np.isfinite(took) & (members > 1)
    keys, inverse = np.unique(
        np.stack([rings.group[begins][usable], rings.stage[begins][usable]], axis=1), axis=0, return_inverse=True
    )
    sums = np.bincount(inverse.reshape(-1), weights=np.maximum(0.0, took[usable]), minlength=len(keys))
    calls = np.bincount(inverse.reshape(-1), minlength=len(keys))
    return tuple(
        GroupTime(int(group), int(stage), float(total), int(count))
        for (group, stage), total, count in zip(keys, sums, calls)
    )
