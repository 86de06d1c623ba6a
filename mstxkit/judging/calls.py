"""A stage's collectives gone through again with some time taken away: by how much earlier each member is through."""

from __future__ import annotations

from typing import Mapping

import numpy as np
import numpy.typing as npt

from .inside import Entered

Vector = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
# Of a stage with more collectives than this, what is taken away is taken to be lost to all.
_CALLS_AT_MOST = 20_000


def inside_of(
    entered: Entered, less_s: Mapping[int, Vector], of_groups: Mapping[int, float], begin: Vector
) -> Vector:  # fmt: skip
    """(M,) by how much earlier each member is through with some stages.

    Args:
        entered: The collectives of the step.
        less_s: Index of each of the stages to (M,) what is taken away of each member's own time in it.
        of_groups: Taken away of what the collectives of a group take in them.
        begin: (M,) by how much earlier each comes to the first of them.
    """
    here = np.flatnonzero(np.isin(entered.rings.stage, list(less_s)))
    calls = np.unique(entered.call[here])
    if not len(here) or len(calls) > _CALLS_AT_MOST:
        most = max((float(less.max(initial=0.0)) for less in less_s.values()), default=0.0)
        return np.asarray(begin + most + max(of_groups.values(), default=0.0))
    of_entry, behind = np.zeros(len(entered.call)), np.zeros(len(begin))
    for stage, less in less_s.items():
        if less.any():
            before, after = _shared_out(entered, np.flatnonzero(entered.rings.stage == stage), stage, less)
            of_entry, behind = of_entry + before, behind + after
    return _gone_through(entered, here, of_entry, _of_calls(entered, here, of_groups), begin) + behind


def _shared_out(entered: Entered, here: Whole, stage: int, less_s: Vector) -> tuple[Vector, Vector]:
    """(K,) what is taken away before each entry, (M,) and behind the last: where the member took longer than others."""
    member, own = entered.rings.member[here], entered.own_s[here]
    more = np.maximum(0.0, own - _of_others(entered.call[here], own))
    behind = np.maximum(0.0, entered.behind_s[:, stage])
    count = len(less_s)
    total = np.bincount(member, more, count) + behind
    is_none = total <= 0
    more, behind = np.where(is_none[member], own, more), np.where(is_none, 0.0, behind)
    total = np.where(is_none, np.maximum(np.bincount(member, own, count), 1e-12), total)
    share = less_s / total
    of_entry = np.zeros(len(entered.call))
    of_entry[here] = np.minimum(more * share[member], own)
    return of_entry, np.minimum(behind * share, behind)


def _of_others(call: Whole, own: Vector) -> Vector:
    """(K,) own time before each entry in the middle of those that enter the same collective; of two, the shorter."""
    order = np.lexsort((own, call))
    begins = np.flatnonzero(np.diff(call[order], prepend=-1))
    sizes = np.diff(np.append(begins, len(call)))
    low = own[order][begins + (sizes - 1) // 2]
    high = own[order][begins + np.where(sizes > 2, sizes // 2, 0)]
    middle = np.empty(len(call))
    middle[order] = np.repeat((low + high) / 2, sizes)
    return middle


def _of_calls(entered: Entered, here: Whole, of_groups: Mapping[int, float]) -> dict[int, float]:
    """Call to what is taken away of it."""
    result: dict[int, float] = {}
    for group, seconds in of_groups.items():
        calls = np.unique(entered.call[here][entered.rings.group[here] == group])
        result.update(dict.fromkeys(calls.tolist(), seconds / max(1, len(calls))))
    return result


def _gone_through(
    entered: Entered, here: Whole, of_entry: Vector, of_call: Mapping[int, float], begin: Vector
) -> Vector:  # fmt: skip
    """Call by call, as they were over; whoever has gone on meanwhile waits for all of them later."""
    lead: Vector = begin.copy()
    over, over_now = (np.full(len(begin), -np.inf) for _ in range(2))  # of those that it will wait for
    here = here[np.argsort(entered.call[here], kind="stable")]
    parts = np.split(here, np.flatnonzero(np.diff(entered.call[here])) + 1)
    for part in sorted(parts, key=lambda part: float(entered.rings.entered_s[part].max())):
        member, came = entered.rings.member[part], entered.rings.entered_s[part]
        waited = member[entered.has_waited[part] & np.isfinite(over[member])]
        lead[waited] = over[waited] - over_now[waited]
        over[waited] = over_now[waited] = -np.inf
        lead[member] += of_entry[part]
        last, sooner = came.max(), (came - lead[member]).max() - of_call.get(int(entered.call[part[0]]), 0.0)
        over[member], over_now[member] = np.maximum(over[member], last), np.maximum(over_now[member], sooner)
    waits = np.isfinite(over)
    lead[waits] = over[waits] - over_now[waits]
    return lead
