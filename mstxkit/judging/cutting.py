"""A step of a role cut into pieces, one after the other: each stage, and the gap before each stage.

A piece has a time when each member came to it and a time when it was done with it, both on that member's clock.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .evidence import RoleStep

Matrix = npt.NDArray[np.float64]
IN, BEFORE = "in", "before"
# Which stage encloses which is looked at on so many members.
_LOOKED_AT = 64


class Piece(NamedTuple):
    """What a piece is: time in a stage, or in the gap before it."""

    where: str
    stage: str


class Pieces(NamedTuple):
    """One step in pieces, K of them, in their order.

    Args:
        kinds: What each is.
        stages: (K,) index of its stage in the step.
        came_s, done_s: (M, K) when each member came to it, and was done.
        took_s: (M, K) its time in it; less than the difference where a stage was entered several times.
        is_first: (K,) is it the gap before the step's first stage?
        error_s: (M, K) by how much a time may be wrong that is measured against another member's clock.
    """

    kinds: tuple[Piece, ...]
    stages: npt.NDArray[np.int64]
    came_s: Matrix
    done_s: Matrix
    took_s: Matrix
    is_first: npt.NDArray[np.bool_]
    error_s: Matrix


def nothing(members: int) -> Pieces:
    """No pieces."""
    empty = np.zeros((members, 0))
    return Pieces((), np.zeros(0, np.int64), empty, empty, empty, np.zeros(0, bool), empty)


def in_pieces(step: RoleStep, ended_s: npt.NDArray[np.float64] | None) -> Pieces:
    """The pieces of a step.

    Args:
        step: The step.
        ended_s: (M,) when each member's step before this ended; None: there was none.
    """
    order = _order(step)
    entered, left, total = (values[:, order] for values in (step.entered_s, step.left_s, step.total_s))
    before_s = np.full((len(step.members), 1), np.nan) if ended_s is None else ended_s[:, None]
    came_to_gap = np.fmax.accumulate(np.concatenate([before_s, left], axis=1), axis=1)[:, :-1]
    gap = np.maximum(0.0, entered - came_to_gap)
    count = len(order)
    kinds = tuple(Piece(where, step.stages[at]) for at in order for where in (BEFORE, IN))
    is_first = np.zeros(2 * count, bool)
    is_first[:1] = True
    return Pieces(
        kinds, np.repeat(order, 2), _alternating(came_to_gap, entered), _alternating(entered, left),
        _alternating(gap, total), is_first, np.repeat(step.error_s[:, None], 2 * count, axis=1),
    )  # fmt: skip


def _alternating(gaps: Matrix, stages: Matrix) -> Matrix:
    merged = np.empty((gaps.shape[0], 2 * gaps.shape[1]))
    merged[:, 0::2], merged[:, 1::2] = gaps, stages
    return merged


def _order(step: RoleStep) -> npt.NDArray[np.int64]:
    """Indices of the stages in the order in which most members enter them, without those that enclose others."""
    every = max(1, len(step.members) // _LOOKED_AT)
    entered, left = step.entered_s[::every], step.left_s[::every]
    seen: npt.NDArray[np.bool_] = np.isfinite(entered)
    entered = np.where(np.asarray(seen.any(axis=1))[:, None], entered - _first(entered), np.nan)
    with np.errstate(all="ignore"):
        middle = np.nansum(entered, axis=0) / np.maximum(1, seen.sum(axis=0))
    left = left - _first(step.entered_s[::every])
    present = np.flatnonzero(np.isfinite(step.entered_s).any(axis=0) & seen.any(axis=0))
    ordered = present[np.argsort(middle[present], kind="stable")]
    around = _encloses(entered[:, ordered], left[:, ordered])
    kept: npt.NDArray[np.int64] = ordered[~around]
    return kept


def _first(entered: Matrix) -> Matrix:
    """(M, 1) the first of each member's entries."""
    return np.fmin.reduce(entered, axis=1)[:, None] if entered.shape[1] else np.zeros((len(entered), 1))


def _encloses(entered: Matrix, left: Matrix) -> npt.NDArray[np.bool_]:
    """(S,): does this stage enclose another, of most members?"""
    with np.errstate(invalid="ignore"):
        begins = entered[:, :, None] <= entered[:, None, :]
        ends = left[:, :, None] >= left[:, None, :]
        longer = (left - entered)[:, :, None] > (left - entered)[:, None, :]
    both = np.isfinite(entered)[:, :, None] & np.isfinite(entered)[:, None, :]
    share = (begins & ends & longer & both).sum(axis=0) / np.maximum(1, both.sum(axis=0))
    around: npt.NDArray[np.bool_] = ((share > 0.5) & (both.sum(axis=0) > 0)).any(axis=1)
    return around
