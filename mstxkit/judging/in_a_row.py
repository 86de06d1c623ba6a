"""Stages in which members hand work on from one to the next, as in a pipeline: who is done right after whom.

Where members tell which part of the model they have, or what they send, that says it. Else it shows in when they are
done: in rows of as many members each, always in the same order, each row at nearly the same distance from the one
before, though when all are done varies far more.
"""

from __future__ import annotations

from collections import deque
from typing import Sequence

import numpy as np
import numpy.typing as npt

from ..triggers.late_rank import middle_of

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
# Looked at in so many steps, of no more members than this; rows there must be.
_STEPS, _MEMBERS_AT_MOST, _ROWS_LEAST = 8, 1024, 3
# Rows lie apart by so many deviations and by this share of a step, and distances vary by so much less than the ends.
_DEVIATIONS, _APART, _TIGHT = 4.0, 0.01, 0.75
_FOLLOWS, _CLIP = 0.05, 0.1


class RowOrder:
    """What is known of one role: of each piece the row of each member, and how long each usually is after the row before."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[Vector]] = {}
        self._known: dict[int, Rows] = {}
        self._usual: dict[int, tuple[int, Vector]] = {}

    def forget(self) -> None:
        """Members have come or gone."""
        self._seen.clear()
        self._known.clear()
        self._usual.clear()

    def of(self, column: int) -> Rows | None:
        """(M,) the row of each member in a piece, from 0 on; None: they are in none, as far as is known."""
        return self._known.get(column)

    def learn(self, column: int, came_s: Vector, done_s: Vector, step_s: float) -> None:
        """One step more of a piece."""
        if column in self._known or len(done_s) > _MEMBERS_AT_MOST or len(done_s) < _ROWS_LEAST:
            return
        if not np.isfinite(done_s).all():
            return
        seen = self._seen.setdefault(column, deque(maxlen=_STEPS))
        seen.append(done_s - np.nanmin(came_s) if np.isfinite(came_s).any() else done_s - done_s.min())
        if len(seen) == _STEPS:
            rows = _rows_in(np.stack(seen), step_s)
            if rows is not None:
                self._known[column] = rows

    def excess(self, column: int, times: Vector, is_learned: bool = True) -> Vector:
        """(M,) logarithm of the time over what each usually takes, less what all take more; and learn from it."""
        count, usual = self._usual.get(column, (0, times))
        usual = np.where(np.isfinite(usual), usual, times)
        more = times - usual
        common = middle_of(more)
        excess = more - common
        rate = max(1 / (count + 1), _FOLLOWS) * (is_learned or not count)
        self._usual[column] = (
            count + 1,
            usual + rate * np.where(np.isnan(more), 0.0, np.clip(more, -_CLIP, _CLIP) if count > _STEPS else more),
        )
        return np.asarray(excess if count else np.where(np.isfinite(times), 0.0, np.nan))


def after_the_row_before(rows: Rows, took_s: Vector, done_s: Vector) -> Vector:
    """(M,) how long after the row before each was done; of the first row its whole time."""
    after_s = took_s.copy()
    for row in range(1, int(rows.max()) + 1):
        after_s[rows == row] = np.maximum(0.0, done_s[rows == row] - middle_of(done_s[rows == row - 1]))
    return after_s


def handed_on(rows: Rows, took_s: Vector, lead: Vector, less_s: Vector) -> Vector:
    """(M,) by how much earlier each is done where each row waits for the one before.

    Args:
        took_s: (M,) from when it came to when it was done.
        lead: (M,) by how much earlier it comes.
        less_s: (M,) taken away of what it takes after the row before.
    """
    earlier, first_s = lead + less_s, middle_of(took_s[rows == 0])
    for row in range(1, int(rows.max()) + 1):
        here, before = rows == row, rows == row - 1
        by_itself = lead[here] + np.maximum(0.0, took_s[here] - first_s)
        earlier[here] = np.fmin(by_itself, float(earlier[before].min())) + less_s[here]
    return earlier


def _rows_in(ends_s: Matrix, step_s: float) -> Rows | None:
    """(M,) rows that these (steps, M) ends show; None: none."""
    order = np.argsort(middle_of(ends_s), kind="stable")
    ordered = ends_s[:, order]
    gaps = np.diff(ordered, axis=1)
    gap_s, varies_s = middle_of(gaps), _spread(gaps)
    begins = np.flatnonzero(gap_s > np.maximum(_DEVIATIONS * varies_s, _APART * step_s)) + 1
    sizes = np.diff([0, *begins, ends_s.shape[1]])
    if len(sizes) < _ROWS_LEAST or (sizes != sizes[0]).any():
        return None
    ends = np.stack([middle_of(part.T) for part in np.split(ordered, begins, axis=1)], axis=1)
    if np.median(_spread(np.diff(ends, axis=1)) / np.maximum(_spread(ends)[1:], 1e-12)) > _TIGHT:
        return None
    rows = np.empty(ends_s.shape[1], np.int64)
    rows[order] = np.repeat(np.arange(len(sizes)), sizes)
    return rows


def _spread(values: Matrix) -> Vector:
    return np.asarray(1.4826 * middle_of(np.abs(values - middle_of(values))))


def rows_of_places(places: Sequence[str]) -> Rows | None:
    """(M,) rows by the part of the model that each has ("pp2"); None where that is not known of all, or is one part."""
    parts = [_number(place) for place in places]
    if any(part is None for part in parts) or len(set(parts)) < 2:
        return None
    return np.unique(np.array(parts, np.int64), return_inverse=True)[1].astype(np.int64)


def _number(place: str) -> int | None:
    digits = "".join(letter for letter in place.partition("pp")[2].split("/")[0] if letter.isdigit())
    return int(digits) if digits else None
