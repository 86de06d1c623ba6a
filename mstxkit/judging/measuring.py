"""What each member's time in each piece of a step was, against what it should have been for the work it did."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..triggers.late_rank import after_others, middle_of
from .columns import At, Columns, Matrix, Ranks, Regression, Vector, Waiting
from .cutting import BEFORE, IN, Piece, Pieces
from .evidence import RoleStep

BEHIND, BEHIND_GAP, INSIDE = "behind", "behind_gap", "inside"
FEATURES = 3
# Times are compared as logarithms of so much more: pieces shorter than this share of a step are all alike.
BASE_RATIO = 0.01
WAITS, FREE, UNKNOWN = 0, 1, 2


class Measured(NamedTuple):
    """K pieces of a step, measured.

    Args:
        kinds: What each is; `where` is BEHIND for what a member does in a stage once all have been released in it.
        at: (K,) its column.
        mode: (K,) WAITS: it is over for all together; FREE: for each alone; UNKNOWN.
        came_s: (M, K) when each came to it.
        excess: (M, K) logarithm of time over what is expected for its work.
        by_work: (M, K) logarithm of what is expected for its work over what is expected for the usual work.
        load: (M, K) logarithm of its work over the usual work, by the feature by which it is most.
        level: (K,) logarithm of the time that a member takes for usual work; of one that waits, after the last came.
        work: (K, F) logarithm of the work: in the middle, and where all wait, the most of it.
        usual_s: (K,) time in the middle.
        is_first: (K,) is it the gap before the step's first stage?
        waits: (K,) column by which it is remembered whether all wait in it.
    """

    kinds: tuple[Piece, ...]
    at: At
    mode: npt.NDArray[np.int64]
    came_s: Matrix
    excess: Matrix
    by_work: Matrix
    load: Matrix
    level: Vector
    work: Matrix
    usual_s: Vector
    is_first: npt.NDArray[np.bool_]


class Norms:
    """What is usual in a role: who waits where, and what the work costs. Learned from its steps."""

    def __init__(self) -> None:
        self.columns, self.places = Columns(), Columns()
        self.waiting, self.regression = Waiting(), Regression(FEATURES)
        self.collective_in: set[str] = set()

    def measure(self, step: RoleStep, pieces: Pieces, step_s: float, ranks: Ranks) -> Measured:
        """Measure one step, by what was learned from those before it."""
        place = self.places.of(pieces.kinds)
        mode = self._modes(place, pieces.kinds)
        kinds = tuple(
            Piece(BEHIND if where == IN else BEHIND_GAP, stage) if waits == WAITS else Piece(where, stage)
            for (where, stage), waits in zip(pieces.kinds, mode)
        )
        at = self.columns.of(kinds)
        kept = (at >= 0) & (place >= 0)
        self._widen(ranks)
        return self._measured(step, _choose(pieces, kept), step_s, _Chosen(kinds, at, mode, kept), ranks)

    def _widen(self, ranks: Ranks) -> None:
        self.waiting.widen(len(self.places))
        self.regression.widen(len(self.columns))
        ranks.widen(len(self.columns))

    def _modes(self, place: At, kinds: tuple[Piece, ...]) -> npt.NDArray[np.int64]:
        self.waiting.widen(len(self.places))
        slope, error = self.waiting.slopes(np.maximum(place, 0))
        mode = np.full(len(place), UNKNOWN)
        mode[slope + 3 * error < -0.5] = WAITS
        is_inside = np.array([kind.where == INSIDE for kind in kinds], bool)
        may_wait = np.array([kind.stage in self.collective_in and kind.where == IN for kind in kinds], bool)
        mode[(slope - 3 * error > -0.5) & ~may_wait] = FREE
        mode[is_inside] = FREE
        return mode

    def _measured(self, step: RoleStep, pieces: Pieces, step_s: float, chosen: _Chosen, ranks: Ranks) -> Measured:
        base_s = BASE_RATIO * step_s
        at, mode = chosen.at[chosen.kept], chosen.mode[chosen.kept]
        last_came = np.fmax.reduce(pieces.came_s, axis=0)
        waits = mode == WAITS
        took = np.where(waits, np.maximum(0.0, pieces.done_s - last_came), pieces.took_s)
        features, load, work = _features(step, pieces, waits)
        slopes = self.regression.slopes(at)
        predicted = np.einsum("mkf,kf->mk", features, slopes)
        times = np.log(took + base_s)
        excess, level = after_others(times - predicted), middle_of(times - predicted)
        noise = ranks.noise(at, excess)
        self._learn(step, pieces, at, times, features, excess / noise, step_s)
        is_inside = np.array([kind.where == INSIDE for kind in pieces.kinds], bool)
        could_wait = np.where(mode == UNKNOWN, last_came - pieces.came_s + pieces.error_s, 0.0)
        could_wait = np.where(waits | is_inside, pieces.error_s, could_wait)
        sure = np.log(np.maximum(took - np.nan_to_num(could_wait), 0.0) + base_s) - times
        kinds = tuple(kind for kind, keep in zip(chosen.kinds, chosen.kept) if keep)
        return Measured(
            kinds, at, mode, pieces.came_s, np.where(sure < 0, np.minimum(excess, excess + sure), excess),
            after_others(predicted), load, level, work, middle_of(took), pieces.is_first,
        )  # fmt: skip

    def _learn(
        self, step: RoleStep, pieces: Pieces, at: At, times: Matrix, features: Matrix, off: Matrix, step_s: float
    ) -> None:
        came, error = pieces.came_s - middle_of(pieces.came_s), step.error_s[:, None]
        came = np.sign(came) * np.maximum(0.0, np.abs(came) - 2 * error)
        took = pieces.took_s - middle_of(pieces.took_s)
        place = self.places.of(pieces.kinds)
        self.waiting.learn(place, came / step_s, took / step_s)
        with np.errstate(invalid="ignore", divide="ignore"):
            weights = np.where(np.isfinite(off), np.minimum(1.0, 3 / np.abs(off)), 0.0)
        self.regression.learn(at, features, times - middle_of(times), weights)


class _Chosen(NamedTuple):
    """Pieces with their columns, and which of them there is room for."""

    kinds: tuple[Piece, ...]
    at: At
    mode: npt.NDArray[np.int64]
    kept: npt.NDArray[np.bool_]


def _choose(pieces: Pieces, kept: npt.NDArray[np.bool_]) -> Pieces:
    if kept.all():
        return pieces
    kinds = tuple(kind for kind, keep in zip(pieces.kinds, kept) if keep)
    return Pieces(
        kinds, pieces.stages[kept], pieces.came_s[:, kept], pieces.done_s[:, kept], pieces.took_s[:, kept],
        pieces.is_first[kept], pieces.error_s[:, kept],
    )  # fmt: skip


def _features(
    step: RoleStep, pieces: Pieces, waits: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], Matrix, Matrix]:
    """(M, K, F) logarithms of the work against the middle; (M, K) the largest of them; (K, F) what all did.

    0 where nothing is known of it, and in gaps.
    """
    in_stage = np.array([kind.where != BEFORE for kind in pieces.kinds], bool)
    raw = np.stack([values[:, pieces.stages] for values in step.work], axis=2)
    raw = np.log(np.where(in_stage[None, :, None] & (raw > 0), raw, np.nan))
    features = raw - middle_of(raw)
    is_known = np.isfinite(features)
    work = np.where(waits[:, None], np.fmax.reduce(raw, axis=0), middle_of(raw))
    features = np.where(is_known, features, 0.0)
    return features, features.max(axis=2), np.nan_to_num(work)
