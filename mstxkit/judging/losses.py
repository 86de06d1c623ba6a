"""What a step loses by something that was found: by how much shorter it would be without, all else being as it is."""

from __future__ import annotations

from collections import deque
from typing import Iterator, NamedTuple

import numpy as np
import numpy.typing as npt

from . import cutting, replay
from .evidence import Peer, RoleStep
from .findings import Finding
from .inside import entries_of, inside
from .links import LINK
from .measuring import INSIDE, WAITS, Norms
from .meeting import last_of
from .replay import Course, Less
from .shaping import key_of

Vector = npt.NDArray[np.float64]
# The last steps are kept, so that a new verdict rests on more than one.
_STEPS, _BYTES_AT_MOST = 8, 64 << 20


class Lead(NamedTuple):
    """By how much earlier each member would be done with a step.

    Args:
        step, members: The step.
        seconds: (M,) beyond what all would be.
    """

    step: int
    members: tuple[Peer, ...]
    seconds: Vector


class StepLoss(NamedTuple):
    """What one step loses.

    Args:
        seconds: By how much shorter it would be; below 0 where it makes up for what was lost before.
        length_s: How long it is: from when the last was done with the step before; in the mean where nobody waits.
        lead: For the next step.
    """

    seconds: float
    length_s: float
    lead: Lead


class _Past(NamedTuple):
    step: RoleStep
    before_s: Vector | None


class Losses:
    """Keeps the last steps of a role.

    Args:
        norms: Who waits where.
    """

    def __init__(self, norms: Norms) -> None:
        self._norms = norms
        self._steps, self._with_rings = deque[_Past](maxlen=_STEPS), deque[_Past](maxlen=_STEPS)
        self._course: tuple[RoleStep, Course] | None = None

    def closed(self, step: RoleStep, before_s: Vector | None = None) -> None:
        """A step more.

        Args:
            before_s: (M,) when each member was done with the step before; None: not known.
        """
        for steps in (self._steps, self._with_rings) if step.collectives is not None else (self._steps,):
            _kept(steps, _Past(step, before_s))

    def rings_of(self, step: RoleStep) -> None:
        """The collectives of a step that was closed before."""
        before_s = next((past.before_s for past in self._steps if past.step.step == step.step), None)
        _kept(self._with_rings, _Past(step, before_s))

    def now(self, finding: Finding, excess: float, base_s: float, lead: Lead | None) -> StepLoss | None:
        """What the newest step of those that tell of a finding loses by it; None where it does not show.

        Args:
            excess: Logarithm of time over expected time.
            base_s: Times are compared as logarithms of so much more.
            lead: Of the step before.
        """
        steps = self._of(finding)
        return self._lost(steps[-1], finding, excess, base_s, lead) if steps else None

    def lately(self, finding: Finding, excess: float, base_s: float) -> Iterator[StepLoss]:
        """The same of each of the last steps since it is there."""
        lead: Lead | None = None
        for past in list(self._of(finding))[-max(1, finding.steps) :]:
            lost = self._lost(past, finding, excess, base_s, lead)
            lead = None if lost is None else lost.lead
            if lost is not None:
                yield lost

    def of_stall(self, where: str, stage: str, place: int, seconds: float) -> float:
        """What the newest step loses by so many seconds of one member in one piece."""
        steps = self._with_rings if where == INSIDE else self._steps
        course = self._course_of(steps[-1]) if steps else None
        piece = -1 if course is None else course.piece(where, stage)
        if course is None or piece < 0:
            return seconds
        less = Less(piece, _of_one(place, seconds, len(course.ended_s)), where == INSIDE)
        won = replay.earlier(course, less, np.zeros(len(course.ended_s)))
        return max(0.0, _won(course, won, replay.near(course, place)))

    def _of(self, finding: Finding) -> deque[_Past]:
        return self._with_rings if finding.key.where in (INSIDE, LINK) else self._steps

    def _lost(self, past: _Past, finding: Finding, excess: float, base_s: float, lead: Lead | None) -> StepLoss | None:
        course = self._course_of(past)
        piece = course.piece(finding.key.where, finding.key.stage)
        place = _place_in(past.step, finding)
        if piece < 0 or (place is None and finding.key.member):
            return None
        less = _less(course, piece, finding, excess, base_s, place)
        goes_on = lead is not None and lead.step == past.step.step - 1 and lead.members == past.step.members
        begin = lead.seconds if goes_on and lead is not None else np.zeros(len(course.ended_s))
        won = replay.earlier(course, less, begin)
        those = replay.near(course, -1 if place is None else place)
        length_s = course.over_s(course.ended_s, those) - course.over_s(course.began_s, those)
        lost_s = _won(course, won, those)
        if not (np.isfinite(lost_s) and length_s > 0):
            return None
        beyond_s = np.where(np.isfinite(course.ended_s), won - lost_s, 0.0)  # who does nothing in it goes with the rest
        return StepLoss(min(lost_s, length_s), length_s, Lead(past.step.step, past.step.members, beyond_s))

    def _course_of(self, past: _Past) -> Course:
        if self._course is None or self._course[0] is not past.step:
            self._course = past.step, _course(self._norms, past.step, past.before_s)
        return self._course[1]


def _kept(steps: deque[_Past], past: _Past) -> None:
    steps.append(past)
    held = 9 * past.step.entered_s.nbytes
    while len(steps) > max(1, _BYTES_AT_MOST // max(1, held)):
        steps.popleft()


def _course(norms: Norms, step: RoleStep, before_s: Vector | None) -> Course:
    pieces = cutting.in_pieces(step, before_s)
    mode, meets = norms.modes(pieces.kinds), norms.meets(pieces.kinds)
    waits, took_s = mode == WAITS, pieces.took_s.copy()
    for at in np.flatnonzero(waits).tolist():
        last_came = last_of(pieces.came_s[:, [at]], meets[at])[:, 0]
        took_s[:, at] = np.maximum(0.0, pieces.done_s[:, at] - last_came)
    ended_s = np.fmax.reduce(step.left_s, axis=1)
    began_s = np.fmin.reduce(step.entered_s, axis=1)
    began_s = began_s if before_s is None else np.where(np.isfinite(before_s), before_s, began_s)
    rings = step.collectives
    entered = None if rings is None else entries_of(step, rings)
    inside_s = np.full(step.left_s.shape, np.nan) if rings is None else inside(step, rings).own_s
    return Course(
        pieces.kinds, pieces.stages, mode, pieces.came_s, took_s, tuple(meets), began_s, ended_s, entered, inside_s
    )


def _place_in(step: RoleStep, finding: Finding) -> int | None:
    keys = [key_of(peer) for peer in step.members] if finding.key.member else []
    return keys.index(finding.key.member) if finding.key.member in keys else None


def _less(course: Course, piece: int, finding: Finding, excess: float, base_s: float, place: int | None) -> Less:
    where = finding.key.where
    if where == LINK:
        return Less(piece, np.zeros(len(course.ended_s)), of_groups=finding.slow)
    own_s = course.own_s(where, piece)
    seconds = np.nan_to_num(np.clip((own_s + base_s) * -np.expm1(-max(0.0, excess)), 0.0, own_s))
    if place is not None:
        seconds = _of_one(place, float(seconds[place]), len(seconds))
    return Less(piece, seconds, where == INSIDE)


def _of_one(place: int, seconds: float, count: int) -> Vector:
    less_s = np.zeros(count)
    less_s[place] = seconds
    return less_s


def _won(course: Course, lead: Vector, those: npt.NDArray[np.bool_]) -> float:
    """By how much earlier those are done."""
    return course.over_s(course.ended_s, those) - course.over_s(course.ended_s - lead, those)
