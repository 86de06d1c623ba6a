"""By how much earlier each member would be done with a step without some of its time: the step gone through again.

Who waits for whom stays as it was. What one member loses the others lose only as far as they wait for it: where
another one is nearly as late, little is won.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple

import numpy as np
import numpy.typing as npt

from .calls import inside_of
from .cutting import BEFORE, IN, Piece
from .inside import Entered
from .measuring import BEHIND_GAP, FREE, INSIDE, WAITS
from .meeting import Labels

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
# Members that begin so far apart, as a share of a step, do not go through it together.
_APART = 0.5


class Course(NamedTuple):
    """How M members of a role have gone through a step.

    Args:
        kinds: K pieces in their order: stages, and the gaps before them.
        stages: (K,) index of the stage of each.
        mode: (K,) WAITS where it is over for all together.
        came_s: (M, K) when each came to it.
        took_s: (M, K) its own time in it: where it waits, from when the last had come.
        meets: Of each piece, who meets there; None: all.
        began_s, ended_s: (M,) when each was done with the step before, else came to this one; and with this one.
        entered: Into collectives; None where nobody tells of them.
        inside_s: (M, S) own time inside of the stages, as collectives tell; NaN where they do not.
    """

    kinds: tuple[Piece, ...]
    stages: Whole
    mode: Whole
    came_s: Matrix
    took_s: Matrix
    meets: tuple[Labels | None, ...]
    began_s: Vector
    ended_s: Vector
    entered: Entered | None
    inside_s: Matrix

    def piece(self, where: str, stage: str) -> int:
        """The place of a piece, by what it is called where it is judged; -1: it is not there."""
        wanted = Piece(BEFORE if where in (BEFORE, BEHIND_GAP) else IN, stage)
        return self.kinds.index(wanted) if wanted in self.kinds else -1

    @property
    def is_free(self) -> bool:
        """Does nobody wait for anybody here, as among the rollouts of async RL? Then a step lasts as it does in the
        mean: what one member loses the others do not.
        """
        is_stage = np.array([kind.where == IN for kind in self.kinds], bool)
        return not (self.mode == WAITS).any() and bool((self.mode[is_stage] == FREE).all() or self._is_apart)

    @property
    def _is_apart(self) -> bool:
        """Are members not even in the same step at the same time?"""
        apart_s = np.nanmax(self.began_s, initial=-np.inf) - np.nanmin(self.began_s, initial=np.inf)
        return bool(apart_s > _APART * np.nanmean(self.ended_s - self.began_s))

    def over_s(self, at_s: Vector, those: npt.NDArray[np.bool_]) -> float:
        """When a step begins or is over for all of those."""
        return float(np.nanmean(at_s[those]) if self.is_free else np.fmax.reduce(at_s[those]))

    def own_s(self, where: str, piece: int) -> Vector:
        """(M,) own time in a piece, or inside of it."""
        return self.inside_s[:, self.stages[piece]] if where == INSIDE else self.took_s[:, piece]


class Less(NamedTuple):
    """What is taken away of a step.

    Args:
        piece: In which piece.
        seconds: (M,) of each member's own time.
        is_inside: Between the collectives of that stage.
        of_groups: Of the collectives of groups in that stage.
    """

    piece: int
    seconds: Vector
    is_inside: bool = False
    of_groups: Mapping[int, float] = {}


def earlier(course: Course, less: Less, begin: Vector) -> Vector:
    """(M,) by how much earlier each would be done with the step.

    Args:
        course: The step.
        less: What is taken away of it.
        begin: (M,) by how much earlier each would have begun with it.
    """
    lead = begin
    for at, mode in enumerate(course.mode.tolist()):
        is_here = at == less.piece
        if is_here and course.entered is not None and (less.is_inside or less.of_groups):
            lead = inside_of(course.entered, int(course.stages[at]), less.seconds, less.of_groups, lead)
            continue
        if mode == WAITS:
            lead = _met(course.came_s[:, at], lead, course.meets[at])
        if is_here:
            lead = lead + less.seconds
    return lead


def near(course: Course, member: int) -> npt.NDArray[np.bool_]:
    """(M,) who waits in this step for that member, or it for them; all where none is meant (-1), or nobody waits."""
    count = len(course.ended_s)
    waits = [labels for labels, mode in zip(course.meets, course.mode.tolist()) if mode == WAITS]
    if member < 0 or course.is_free or any(labels is None for labels in waits):
        return np.ones(count, bool)
    those: npt.NDArray[np.bool_] = np.arange(count) == member
    for labels in waits:
        assert labels is not None
        those |= np.isin(labels, labels[those])
    return those


def _met(came_s: Vector, lead: Vector, labels: Labels | None) -> Vector:
    """All who meet go on together, by so much earlier."""
    there = np.isfinite(came_s)
    group = np.zeros(len(came_s), np.int64) if labels is None else np.unique(labels, return_inverse=True)[1]
    last, sooner = (np.full(int(group.max(initial=0)) + 1, -np.inf) for _ in range(2))
    np.maximum.at(last, group[there], came_s[there])
    np.maximum.at(sooner, group[there], (came_s - lead)[there])
    with np.errstate(invalid="ignore"):
        return np.where(there, (last - sooner)[group], lead)
