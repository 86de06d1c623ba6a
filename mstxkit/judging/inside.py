"""What collectives tell of the inside of a stage: each member's own time between them, and what the collectives took.

A member's own time goes on from when it was released by the collective before, or from when it entered the stage, to
when it enters the next collective. So whoever waits in a collective, in whatever group, does not look slow in the next.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from .evidence import CALL, Collectives, Matrix, RoleStep, Truths, Vector, Whole


class GroupTime(NamedTuple):
    """What a group's collectives took in one stage of one step, from when its last member had entered.

    `calls`: how many they are; below 0: they are sends.
    """

    group: int
    stage: int
    took_s: float
    calls: int


class Inside(NamedTuple):
    """The inside of the stages of one step.

    Args:
        own_s: (M, S) own time up to the last collective of the stage; NaN: no collective was entered in it.
        between_s: (M, S) the same, 0 where none was, of those too who have entered more or fewer of them than most.
        error_s: (M, S) bound of its error.
        waits_s: (M, S) what it waited in collectives until the last of each had entered, for sure.
        uneven_s: (M, S) own time before collectives beyond the mean of those that enter the same, all of it together.
        groups: What the collectives took, where it is known when they were over.
        entered: The entries; None: they are kept no more.
    """

    own_s: Matrix
    between_s: Matrix
    error_s: Matrix
    waits_s: Matrix
    uneven_s: Matrix
    groups: tuple[GroupTime, ...]
    entered: Entered | None


def measure_inside(step: RoleStep, rings: Collectives) -> Inside:
    """What these collectives tell of this step."""
    shape, entered = (len(step.members), len(step.stages)), entries_of(step, rings)
    rings = entered.rings
    place, size = rings.member * shape[1] + rings.stage, shape[0] * shape[1]
    counted = np.bincount(place[~rings.is_taking], minlength=size)
    total = np.bincount(place, weights=entered.own_s, minlength=size)
    crossing = np.bincount(place, weights=entered.is_crossing, minlength=size)
    between_s, counted = total.reshape(shape) + entered.behind_s, counted.reshape(shape)
    error_s = (crossing.reshape(shape) + (entered.behind_s > 0)) * step.error_s[:, None]
    # In the middle of a pipeline there are twice as many sends and receives as at its ends.
    met = np.bincount(place[rings.is_meeting], minlength=size).reshape(shape) if rings.source == CALL else counted
    own_s = _pick_alike(np.where(counted > 0, between_s, np.nan), met, [peer.place for peer in step.members])
    mean_s = np.bincount(entered.call, entered.own_s) / np.bincount(entered.call)
    uneven_s = np.maximum(0.0, entered.own_s - mean_s[entered.call]) * rings.is_meeting
    uneven: Any = np.bincount(place, weights=uneven_s, minlength=size).reshape(shape)
    waits: Any = np.bincount(place, weights=entered.waits_s * rings.is_meeting, minlength=size).reshape(shape)
    return Inside(own_s, between_s, error_s, waits, uneven, _group_times(rings, entered.call), entered)


class Entered(NamedTuple):
    """Entries into the collectives of a step, K of them, in the order of each group's collectives.

    Args:
        rings: The entries.
        call: (K,) which call each is of, from 0 on.
        own_s: (K,) own time that led to it.
        has_waited: (K,) was the collective before it, of that member, over by then?
        is_crossing: (K,) was its own time measured against another member's clock?
        waits_s: (K,) what it waited there until the last had entered, beyond what clocks may err by.
        behind_s: (M, S) by how much later than the first of those in its last collective a member left the stage.
    """

    rings: Collectives
    call: Whole
    own_s: Vector
    has_waited: Truths
    is_crossing: Truths
    waits_s: Vector
    behind_s: Matrix


def entries_of(step: RoleStep, rings: Collectives) -> Entered:
    """The entries that tell anything, with each member's own time before them."""
    rings = _pick_usable(rings, len(step.members), len(step.stages))
    is_new = np.ones(len(rings.member), bool)
    is_new[1:] = (np.diff(rings.group) != 0) | (np.diff(rings.sequence) != 0)
    call, last_entered = np.cumsum(is_new) - 1, np.maximum.reduceat(rings.entered_s, np.flatnonzero(is_new))
    return Entered(rings, call, *_own_times(step, rings, last_entered[call]), _measure_behind(step, rings, call))


def _pick_usable(rings: Collectives, members: int, stages: int) -> Collectives:
    """Entries with a time, of a member and a stage that there are, in the order of each group's collectives."""
    usable = np.isfinite(rings.entered_s) & (rings.stage >= 0) & (rings.stage < stages)
    usable &= (rings.member >= 0) & (rings.member < members)
    if rings.is_of_host is not None:  # its device is behind: when that came is not known
        usable &= ~rings.is_of_host
    order = np.flatnonzero(usable)
    order = order[np.lexsort((rings.sequence[order], rings.group[order]))]
    return rings.only(order)


def _own_times(step: RoleStep, rings: Collectives, released: Vector) -> tuple[Vector, Truths, Truths, Vector]:
    """(K,) own time that led to each entry, whether it has waited before, whether clocks of two members tell, and what
    it waits there.

    Whoever leaves before the last has come, as who sends does, has not waited. Stages may alternate, as forward and
    backward passes do: what lies between two entries is of the stage of the later one, as far as it was entered.
    """
    order = np.lexsort((rings.entered_s, rings.member))
    entered, member, stage = rings.entered_s[order], rings.member[order], rings.stage[order]
    has_left = np.isfinite(rings.left_s[order])
    over = np.where(has_left, rings.left_s[order], released[order])
    waited = ~has_left | (rings.left_s[order] >= released[order])
    is_next, is_same = np.zeros(len(order), bool), np.zeros(len(order), bool)
    is_next[1:] = member[1:] == member[:-1]
    is_same[1:] = is_next[1:] & (stage[1:] == stage[:-1])
    over_before, entered_before, waited_before = np.roll(over, 1), np.roll(entered, 1), np.roll(waited, 1)
    went_on = entered < over_before  # it did not wait for that collective
    since = np.where(went_on, entered_before, over_before)
    begun = step.entered_s[member, stage]
    since = np.where(is_same, since, np.where(is_next, np.fmax(begun, since), begun))
    own, has_waited, is_crossing = np.empty(len(order)), np.empty(len(order), bool), np.empty(len(order), bool)
    own[order] = np.maximum(0.0, entered - since) + np.where(is_next & ~went_on, _measure_between(rings, order), 0.0)
    has_waited[order] = is_next & ~went_on & waited_before
    is_crossing[order] = is_same & ~np.roll(has_left, 1) & ~went_on
    has_gone_on, waits = np.roll(went_on & is_next, -1), np.empty(len(order))
    begun = entered if rings.waited_s is None else np.fmax(entered, over - rings.waited_s[order])
    waits[order] = np.where(waited & ~has_gone_on, released[order] - begun - 2 * step.error_s[member], 0.0)
    return np.nan_to_num(own), has_waited, is_crossing, np.maximum(0.0, waits)


def _measure_between(rings: Collectives, order: Whole) -> Vector:
    """(K,) what the member did for itself between the entry before and when it began to wait for that: not what it has
    waited for another one then, of several that it has begun at once.
    """
    if rings.waited_s is None:
        return np.zeros(len(order))
    waited_s, first_s = np.nan_to_num(rings.waited_s[order]), rings.entered_s.min(initial=np.inf)
    apart_s = rings.member[order] * (np.nanmax(rings.left_s, initial=first_s) - first_s + 1.0)  # no two overlap
    entered, over = rings.entered_s[order] + apart_s, rings.left_s[order] + apart_s
    by_end = np.argsort(np.where(waited_s > 0, over, np.nan))[: np.count_nonzero(waited_s > 0)]
    ends, lasts_s = np.append(over[by_end], np.inf), np.append(waited_s[by_end], 0.0)
    between = np.stack([entered, over - waited_s])
    place = np.searchsorted(ends[:-1], between, side="right")
    until_s = np.append(0.0, np.cumsum(lasts_s))[place] + np.maximum(0.0, between - (ends - lasts_s)[place])
    meanwhile = np.diff(between - until_s, axis=0)[0]
    return np.roll(np.where(np.isfinite(meanwhile), np.maximum(0.0, meanwhile), 0.0), 1)


def _measure_behind(step: RoleStep, rings: Collectives, call: Whole) -> Matrix:
    """(M, S) by how much later than the first of those in its last collective of a stage a member left that stage:
    what it does behind that collective.
    """
    place = rings.member * len(step.stages) + rings.stage
    order = np.lexsort((rings.entered_s, place))
    order = order[~rings.is_taking[order]]
    is_last = np.ones(len(order), bool)
    is_last[:-1] = place[order][1:] != place[order][:-1]
    last = order[is_last]
    member, stage, at = rings.member[last], rings.stage[last], call[last]
    left = step.left_s[member, stage]
    first, count = np.full(len(call), np.inf), np.bincount(at, minlength=len(call))
    np.fmin.at(first, at, left)
    behind = np.zeros(step.left_s.shape)
    behind[member, stage] = np.where((count[at] > 1) & np.isfinite(left), left - first[at], 0.0)
    return behind


def _pick_alike(own_s: Matrix, counted: Whole, places: Sequence[str]) -> Matrix:
    """Only members with as many as most of those in their place: others did other work, or their ring began later."""
    of_place = np.unique(places, return_inverse=True)[1].reshape(-1)
    is_alike = np.zeros(counted.shape, bool)
    for place in range(int(of_place.max(initial=0)) + 1):
        here = counted[of_place == place]
        usual = [np.bincount(column[column > 0], minlength=1).argmax() for column in here.T]
        is_alike[of_place == place] = here == np.array(usual)[None, :]
    return np.where(is_alike, own_s, np.nan)


def _group_times(rings: Collectives, call: Whole) -> tuple[GroupTime, ...]:
    begins = np.flatnonzero(np.diff(call, prepend=-1))
    members = np.diff(np.append(begins, len(call)))
    # Who entered last waited for nobody; by its own clock, so that no clock's error counts.
    own = rings.left_s - rings.entered_s
    took = np.minimum.reduceat(np.where(np.isfinite(own), own, np.inf), begins)
    # Who sends may be through before the other has come, and who waits late did something else until then: there it is
    # what is waited since both had come.
    is_handed, last_s = ~rings.is_meeting[begins], np.maximum.reduceat(rings.entered_s, begins)
    after_s = np.fmin(rings.left_s - last_s[call], np.inf if rings.waited_s is None else rings.waited_s)
    handed = np.maximum.reduceat(np.where(np.isfinite(after_s), after_s, -np.inf), begins)
    took = np.where(is_handed & np.isfinite(took), handed, took)
    usable = np.isfinite(took) & (members > 1)
    keys, inverse = np.unique(
        np.stack([rings.group[begins][usable], rings.stage[begins][usable]], axis=1), axis=0, return_inverse=True
    )
    sums = np.bincount(inverse.reshape(-1), weights=np.maximum(0.0, took[usable]), minlength=len(keys))
    calls = np.bincount(inverse.reshape(-1), weights=np.where(is_handed[usable], -1, 1), minlength=len(keys))
    return tuple(map(GroupTime, *keys.T.tolist(), sums.tolist(), calls.astype(int).tolist()))
