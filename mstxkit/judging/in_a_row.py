"""Stages in which members hand work on from one to the next, as in a pipeline: who is done right after whom.

Where members tell which part of the model they have, or what they send, that says it. Else it shows in when they are
done: in rows of as many members each, always in the same order, each row at nearly the same distance from the one
before, though when all are done varies far more.
"""

from __future__ import annotations

import numpy as np

from ..triggers.late_rank import middle_of
from .evidence import Matrix, Vector, Whole

Rows = Whole
# Looked at in so many steps, so often, of no more members than this; rows there must be.
_STEPS, _LOOKS, _MEMBERS_AT_MOST, _ROWS_LEAST = 8, 24, 1024, 3
# Rows lie apart by so many deviations and by this share of a step, and distances vary by so much less than the ends,
# and from step to step by so much of what they vary at all: those of members that never meet wander.
_DEVIATIONS, _APART, _TIGHT, _STEADY = 4.0, 0.01, 0.75, 0.8


class RowOrder:
    """What is known of one role: of each piece the row of each member, and how long each is after the row before."""

    def __init__(self) -> None:
        self._seen: dict[int, list[Matrix]] = {}
        self._apart: set[int] = set()
        self._known: dict[int, Rows] = {}

    def of(self, column: int) -> Rows | None:
        """(M,) the row of each member in a piece, from 0 on; None: they are in none, as far as is known."""
        return self._known.get(column)

    def of_any(self) -> Rows | None:
        """(M,) the row of each member in whatever piece they are in rows first."""
        return next(iter(self._known.values()), None)

    def may_be(self, column: int, is_inside: bool) -> bool:
        """Are members done one after another, in too few steps to say whether each waits for the one before? Between
        collectives also in the first steps, whatever they show.
        """
        is_new = is_inside and 0 < len(self._seen.get(column, ())) < _STEPS
        return column not in self._known and (column in self._apart or is_new)

    def learn(self, column: int, came_s: Vector, done_s: Vector, step_s: float) -> bool:
        """One step more of a piece. Is it known by this one that its members are in rows?"""
        if column in self._known or not _ROWS_LEAST <= len(done_s) <= _MEMBERS_AT_MOST:
            return False
        seen = self._seen.setdefault(column, [])
        if not np.isfinite(done_s).all() or len(seen) >= _LOOKS:  # who looks for ever finds some by chance
            return False
        first_s = np.nanmin(came_s) if np.isfinite(came_s).any() else done_s.min()
        seen.append(np.stack([done_s - first_s, done_s - np.where(np.isfinite(came_s), came_s, first_s)]))
        self._apart.discard(column)
        for ends, took in (np.stack(seen[-_STEPS:], 1), np.stack(seen, 1)) if len(seen) >= _STEPS else ():
            rows, are_handed_on = _rows_in(ends, took, step_s)
            if rows is not None and are_handed_on:
                self._known[column] = rows
            elif rows is not None and len(seen) < _LOOKS:
                self._apart.add(column)
        return column in self._known


def after_the_row_before(rows: Rows, took_s: Vector, done_s: Vector) -> Vector:
    """(M,) how long after the row before each was done; of the first row its whole time. Members are handed something
    by who has the same place in its row: ranks of one part of the model are in order.
    """
    after_s: Vector = took_s.copy()
    for row in range(1, int(rows.max()) + 1):
        after_s[rows == row] = np.maximum(0.0, done_s[rows == row] - done_s[rows == row - 1])
    return after_s


def waited_for_rows_behind(rows: Rows, more_s: Vector) -> Vector:
    """(M,) how long each may have waited for the rows behind it, which hand something back; of rows that are counted
    the other way round, for those before it. `more_s`: (M,) by how much longer each takes than usual.
    """
    waited_s, most_s = np.zeros(len(rows)), np.zeros(1)
    for row in range(int(rows.max()), -1, -1):
        waited_s[rows == row] = most_s
        most_s = np.fmax(most_s, more_s[rows == row])
    return waited_s


def handed_on(rows: Rows, took_s: Vector, lead: Vector, less_s: Vector) -> Vector:
    """(M,) by how much earlier each is done where each row waits for the one before: who took so long since it came,
    comes earlier by its lead, and takes so much less after the row before.
    """
    earlier: Vector = lead + less_s
    first_s = middle_of(took_s[rows == 0])
    for row in range(1, int(rows.max()) + 1):
        here, before = rows == row, rows == row - 1
        by_itself = lead[here] + np.maximum(0.0, took_s[here] - first_s)
        earlier[here] = np.fmin(by_itself, earlier[before]) + less_s[here]
    return earlier


def _rows_in(ends_s: Matrix, took_s: Matrix, step_s: float) -> tuple[Rows | None, bool]:
    """(M,) rows of as many members each that lie apart, as these (steps, M) ends show; None: there are none. And
    whether each distance varies far less than when they are done, no more than how long they take, and does not wander.
    """
    order = np.argsort(middle_of(ends_s), kind="stable")
    gaps = np.diff(ends_s[:, order], axis=1)
    gap_s, varies_s = middle_of(gaps), _measure_spread(gaps)
    begins = np.flatnonzero(gap_s > np.maximum(_DEVIATIONS * varies_s, _APART * step_s)) + 1
    sizes = np.diff([0, *begins, ends_s.shape[1]])
    if len(sizes) < _ROWS_LEAST or (sizes != sizes[0]).any():
        return None, False
    by_row = (times[:, order].reshape(len(times), len(sizes), -1) for times in (ends_s, took_s))
    ends, took = (middle_of(times.transpose(2, 0, 1)) for times in by_row)
    apart = np.diff(ends, axis=1)
    varies = _measure_spread(apart)
    of_ends, of_times = (np.median(varies / np.maximum(_measure_spread(of)[1:], 1e-12)) for of in (ends, took))
    steady = np.min(np.mean(np.diff(apart, axis=0) ** 2, axis=0) / np.maximum(np.var(apart, axis=0), 1e-24))
    rows = np.argsort(order) // sizes[0]
    return rows, bool(of_ends <= _TIGHT and of_times <= 1 and steady >= _STEADY)


def _measure_spread(values: Matrix) -> Vector:
    return np.asarray(1.4826 * middle_of(np.abs(values - middle_of(values))))
