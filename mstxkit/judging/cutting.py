"""A step of a role cut into pieces, one after the other: each stage, and the gap before each stage.

A piece has a time when each member came to it and a time when it was done with it, both on that member's clock. A stage
around others is cut where they lie: its own time is what it does before, between and behind them.
"""

from __future__ import annotations

from itertools import compress
from typing import Any, NamedTuple, Sequence

import numpy as np

from .columns import or_zero
from .evidence import Matrix, RoleStep, Truths, Vector, Whole

IN, BEFORE, REST = "in", "before", "rest"
# Which stage encloses which is looked at on so many members.
_LOOKED_AT = 64


class Piece(NamedTuple):
    """What a piece is: time IN a stage, in the gap BEFORE it, or in the REST of a stage behind the last one in it."""

    where: str
    stage: str


def are_of(kinds: Sequence[Piece], *wheres: str) -> Truths:
    """(K,): are the pieces any of these?"""
    return np.array([kind.where in wheres for kind in kinds], bool)


class StepPieces(NamedTuple):
    """One step in pieces, K of them, in their order.

    Args:
        kinds: What each is.
        stages: (K,) index of its stage in the step.
        came_s, done_s: (M, K) when each member came to it, and was done.
        took_s: (M, K) its time in it; less than the difference where a stage was entered several times.
        owners: Of each the stage that its time is of: of a gap the stage that lies around it; "": none.
        is_first: (K,) is it the gap before the step's first stage?
        error_s: (M, K) by how much a time may be wrong that is measured against another member's clock.
    """

    kinds: tuple[Piece, ...]
    stages: Whole
    came_s: Matrix
    done_s: Matrix
    took_s: Matrix
    owners: tuple[str, ...]
    is_first: Truths
    error_s: Matrix

    def only(self, kept: Truths) -> StepPieces:
        """Those alone."""
        parts: Any = (tuple(compress(part, kept)) if isinstance(part, tuple) else part[..., kept] for part in self)
        return self if kept.all() else StepPieces(*parts)


def no_pieces(members: int) -> StepPieces:
    """No pieces."""
    empty = np.zeros((members, 0))
    return StepPieces((), np.zeros(0, np.int64), empty, empty, empty, (), np.zeros(0, bool), empty)


def in_pieces(step: RoleStep, ended_s: Vector | None) -> StepPieces:
    """The pieces of a step. `ended_s`: (M,) when each member's step before this ended; None: there was none."""
    order, around = _order_stages(step)
    step = _lay_out_turns(step, order, around)
    cut = _Cut(step, np.full(len(step.members), np.nan) if ended_s is None else ended_s)
    for stage, outer in zip(order.tolist(), around.tolist()):
        cut.leave_until(outer)
        cut.enter(stage, order[around == stage])
    cut.leave_until(-1)
    count, nothing_s = len(cut.kinds), np.zeros((len(step.members), 0))
    came_s, done_s, took_s = (np.stack(part, axis=1) if count else nothing_s for part in cut.times)
    is_first = np.zeros(count, bool)
    is_first[:1] = True
    return StepPieces(
        tuple(cut.kinds), np.array(cut.stages, np.int64), came_s, done_s, took_s, tuple(cut.owners), is_first,
        np.repeat(step.error_s[:, None], count, axis=1),
    )  # fmt: skip


class _Cut:
    """Goes through the stages of a step in their order, and remembers when each member was done with what lies behind.

    Attributes:
        kinds, stages, owners: Of the pieces so far.
        times: Of each when members came, were done, and how long it took.
    """

    def __init__(self, step: RoleStep, ended_s: Vector) -> None:
        self.kinds: list[Piece] = []
        self.stages: list[int] = []
        self.owners: list[str] = []
        self.times: tuple[list[Vector], list[Vector], list[Vector]] = [], [], []
        self._step, self._done_s = step, ended_s
        self._own_s = step.total_s if step.waited_s is None else step.total_s - step.waited_s
        self._open: list[tuple[int, Whole, int]] = []  # stages around what comes, and their first piece

    def enter(self, stage: int, inner: Whole) -> None:
        """The next stage, and those right in it, whose begin ends its first piece."""
        step = self._step
        entered_s, left_s = step.entered_s[:, stage], step.left_s[:, stage]
        around = step.stages[self._open[-1][0]] if self._open else ""
        self._add(BEFORE, stage, self._done_s, entered_s, around)
        if not len(inner):
            self._add(IN, stage, entered_s, left_s, step.stages[stage], self._own_s[:, stage])
            return
        self._open.append((stage, inner, len(self.kinds)))
        begun_s = np.fmin.reduce(step.entered_s[:, inner], axis=1)
        self._add(
            IN, stage, entered_s, np.where(np.isfinite(left_s), np.fmin(begun_s, left_s), np.nan), step.stages[stage]
        )

    def leave_until(self, outer: int) -> None:
        """End the stages that do not lie around what comes: what is left of each is its rest."""
        while self._open and self._open[-1][0] != outer:
            stage, inner, first = self._open.pop()
            name, left_s = self._step.stages[stage], self._step.left_s[:, stage]
            came_s = np.where(np.isfinite(left_s), np.fmin(self._done_s, left_s), np.nan)
            self._add(REST, stage, came_s, left_s, name)
            own = [at for at in range(first, len(self.kinds)) if self.owners[at] == name]
            total_s = self._own_s[:, stage] - or_zero(self._step.total_s[:, inner]).sum(axis=1)
            span_s = or_zero(np.stack([self.times[2][at] for at in own])).sum(axis=0)
            share = np.clip(total_s / np.maximum(span_s, 1e-12), 0.0, 1.0)  # less where it was entered several times
            for at in own:
                self.times[2][at] = self.times[2][at] * share

    def _add(
        self, where: str, stage: int, came_s: Vector, done_s: Vector, owner: str, took_s: Vector | None = None
    ) -> None:
        self.kinds.append(Piece(where, self._step.stages[stage]))
        self.stages.append(stage)
        self.owners.append(owner)
        took_s = np.maximum(0.0, done_s - came_s) if took_s is None else took_s
        for part, values in zip(self.times, (came_s, done_s, took_s)):
            part.append(values)
        self._done_s = np.fmax(self._done_s, done_s)


def _order_stages(step: RoleStep) -> tuple[Whole, Whole]:
    """Indices of the stages in the order in which most members enter them; and of each the one around it, or -1."""
    every = max(1, len(step.members) // _LOOKED_AT)
    entered, left = step.entered_s[::every], step.left_s[::every]
    present = np.flatnonzero(np.isfinite(step.entered_s).any(axis=0))
    if not np.isfinite(entered[:, present]).any(axis=0).all():  # of a few that are looked at all are not
        entered, left = step.entered_s, step.left_s
    first = np.fmin.reduce(entered, axis=1)[:, None] if entered.shape[1] else np.zeros((len(entered), 1))
    entered, left = entered[:, present] - first, left[:, present] - first
    middle = or_zero(entered).sum(axis=0) / np.maximum(1, np.isfinite(entered).sum(axis=0))
    encloses = _find_enclosing(entered, left)
    order = np.lexsort((-encloses.sum(axis=1), middle))  # of two that begin together the one around comes first
    around = np.full(len(present), -1)
    for at in order.tolist():  # of several the one that begins last
        around[encloses[at]] = present[at]
    return present[order], around[order]


def _lay_out_turns(step: RoleStep, order: Whole, around: Whole) -> RoleStep:
    """The step with stages that take turns one after the other, each as long as all of its turns together."""
    entered, left = step.entered_s.copy(), step.left_s.copy()
    for outer in np.unique(around).tolist():
        inner = [stage for stage in order[around == outer].tolist() if not (around == stage).any()]
        for before, stage in zip(inner, inner[1:]) if (step.occurrences > 1).any() else ():
            takes_turns = (step.entered_s[:, stage] < step.left_s[:, before]) & (step.occurrences[:, stage] > 1)
            takes_turns &= 2 * takes_turns.sum() > np.isfinite(step.entered_s[:, stage]).sum()
            left[:, before] = np.where(takes_turns, entered[:, before] + step.total_s[:, before], left[:, before])
            entered[:, stage] = np.where(takes_turns, left[:, before], entered[:, stage])
            left[:, stage] = np.where(takes_turns, entered[:, stage] + step.total_s[:, stage], left[:, stage])
    return step._replace(entered_s=entered, left_s=left)


def _find_enclosing(entered: Matrix, left: Matrix) -> Truths:
    """(S, S): does this stage lie around that one, of most members that are in both?"""
    with np.errstate(invalid="ignore"):
        begins = entered[:, :, None] <= entered[:, None, :]
        ends = left[:, :, None] >= left[:, None, :]
        longer = (left - entered)[:, :, None] > (left - entered)[:, None, :]
    both = (np.isfinite(entered)[:, :, None] & np.isfinite(entered)[:, None, :]).sum(axis=0)
    return np.asarray(((begins & ends & longer).sum(axis=0) > 0.5 * both) & (both > 0))
