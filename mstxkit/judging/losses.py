"""What a step loses by something that was found: by how much shorter it would be without, all else being as it is."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from . import cutting, replay
from .columns import or_zero
from .cutting import IN, Piece, StepPieces, are_of
from .evidence import Matrix, RoleStep, Truths, Vector, Whole
from .feeds import Feeds, places_of
from .findings import Surplus
from .inside import Inside
from .links import LINK
from .measuring import FREE, HANDED, IN_A_ROW, INSIDE, UNKNOWN, WAITS, Norms
from .replay import Course, Less, Place
from .shaping import key_of

# The last steps are kept, so that a new verdict rests on more than one; so many are gone through for what one loses;
# in so many it must have lasted where one role hands over to another. An impact is the mean of so many.
STEPS, _BYTES_AT_MOST = 12, 64 << 20
_WINDOW, _WINDOW_OF_RINGS, _FEW, _OF_IMPACT = 8, 2, 2, 24


class StepLoss(NamedTuple):
    """What one step loses.

    Args:
        seconds: By how much shorter it would be; below 0 where it makes up for what was lost before; NaN: not known.
        length_s: How long it is: from when the last was done with the step before; in the mean where nobody waits.
    """

    seconds: float
    length_s: float


@dataclass
class LossRatio:
    """Share of the last steps that is lost by something: by how much shorter they would be without it.

    Attributes:
        times: In so many steps it has shown.
        is_open: Was there one of which it is not known?
    """

    times: int = 0
    is_open: bool = False
    _last: deque[StepLoss] = field(default_factory=lambda: deque(maxlen=_OF_IMPACT))

    @property
    def ratio(self) -> float:
        """Share of the step that is lost."""
        lost_s, length_s = map(sum, zip(*self._last)) if self._last else (0.0, 0.0)
        return min(1.0, max(0.0, lost_s / length_s)) if length_s > 0 else 0.0

    def add(self, lost: StepLoss | None) -> None:
        """One step more; None: it does not show."""
        self.is_open |= lost is not None and bool(np.isnan(lost.seconds))
        if lost is not None and not np.isnan(lost.seconds):
            self.times += 1
            self._last.append(lost)


class JobLosses:
    """Keeps the last steps of all roles of a job, and who hands over to whom."""

    def __init__(self) -> None:
        self.feeds = Feeds()
        self.roles: dict[str, Losses] = {}

    def courses(self, those: Sequence[Course]) -> list[Course]:
        """The steps that have to do with these, in the order in which they were over."""
        by_place = {course.place: course for losses in self.roles.values() for course in losses.steps}
        by_place.update((course.place, course) for course in those)
        by_place = {place: self.feeds.told_of(course) for place, course in by_place.items()}
        wanted, new = dict[Place, Course](), {course.place for course in those}
        while new:
            wanted.update((place, by_place[place]) for place in new)
            roles = {place[0] for course in (by_place[place] for place in new) for place in places_of(course.feeds)}
            new = {place for place in by_place if place[0] in roles and place not in wanted}
        return sorted(wanted.values(), key=lambda course: float(np.nanmedian(course.ended_s)))


class Losses:
    """Keeps the last steps of a role, of a job. `norms`: who waits where."""

    def __init__(self, job: JobLosses, norms: Norms) -> None:
        self._job, self._norms = job, norms
        self.steps, self._with_rings = deque[Course](maxlen=STEPS), deque[Course](maxlen=STEPS)

    def closed(self, step: RoleStep, pieces: StepPieces, tells: Inside | None, before_s: Vector | None) -> None:
        """A step more, without controllers. `pieces`: without those inside of stages. `before_s`: (M,) when each member
        was done with the step before; None: not known.
        """
        course = self._course(step, pieces, tells, before_s)
        for steps in (self.steps,) if tells is None else (self.steps, self._with_rings):
            _keep_course(steps, course)

    def rings_of(self, step: RoleStep, tells: Inside) -> None:
        """What the collectives tell of a step that was closed before."""
        began_s = next((course.began_s for course in self.steps if course.step == step.step), None)
        _keep_course(self._with_rings, self._course(step, cutting.in_pieces(step, began_s), tells, began_s))

    def lately(self, parts: Sequence[Surplus], base_s: float, steps: int) -> Iterator[StepLoss]:
        """What each of so many of the last steps that tell of it loses by some causes together, where it shows."""
        by_rings = any(part.where in (INSIDE, LINK) for part in parts)
        every = [*map(self._job.feeds.told_of, self.steps)]
        of = [*map(self._job.feeds.told_of, self._with_rings)] if by_rings else every
        fed = set[Piece]().union(*map(_stages_fed, every[-_WINDOW:]))
        count = _WINDOW_OF_RINGS if by_rings else _WINDOW
        for end in range(max(1, len(of) + 1 - max(1, steps)), len(of) + 1):
            window = _window_of(of[:end], every, fed) if fed else of[:end][-count:]
            if (lost := self._lost(window, parts, base_s, fed)) is not None:
                yield lost

    def wait_ratio(self, step: RoleStep) -> float:
        """Share of the newest step that a member waits for others in it, in the mean. In a stage of which nobody knows
        it is as if all waited; what lies within the errors of clocks is nothing.
        """
        course = self.steps[-1] if self.steps and self.steps[-1].step == step.step else None
        began_s = np.full(len(step.members), np.fmin.reduce(step.entered_s, axis=None, initial=np.nan))
        course = course or self._course(step, cutting.in_pieces(step, None), None, began_s)
        course, error_s = self._job.feeds.told_of(course), step.error_s[:, None]
        is_stage = are_of(course.kinds, IN)
        in_doubt, waits = is_stage & (course.mode == UNKNOWN), course.mode == WAITS
        waits_s = np.where(waits, np.maximum(0.0, course.wait_s - error_s), course.wait_s)
        late_s = np.fmax.reduce(course.came_s, axis=0) - course.came_s - error_s
        inside_s = np.where(course.inside_wait_s > 0, course.wait_s + course.inside_wait_s, 0.0)
        waits_s = np.where(in_doubt, np.clip(late_s, 0.0, course.took_s), waits_s)
        waits_s = or_zero(np.fmax(waits_s, inside_s)).sum(axis=1)
        there = np.isfinite(course.ended_s)
        length_s = replay.length_s(course, there) if there.any() else 0.0
        return min(1.0, float(waits_s[there].mean()) / length_s) if length_s > 0 else 0.0

    def of_stall(self, where: str, stage: str, place: int, seconds: float) -> float:
        """What the newest step loses by so many seconds of one member in one piece."""
        steps = self._with_rings if where == INSIDE else self.steps
        course = steps[-1] if steps else None
        piece = -1 if course is None else course.piece(where, stage)
        if course is None or piece < 0:
            return seconds
        is_it = np.arange(len(course.ended_s)) == place
        lead = replay.leads_of([course], {course.place: [Less(piece, np.where(is_it, seconds, 0.0), where == INSIDE)]})
        return max(0.0, replay.won_s(course, lead[course.place], replay.near_to(course, is_it)))

    def _lost(self, window: list[Course], parts: Sequence[Surplus], base_s: float, fed: set[Piece]) -> StepLoss | None:
        """What the last of these steps loses, what was won in those before it being won already."""
        last = window[-1]
        # What one is earlier comes round in some steps: the last together, but the newest, of which others tell late.
        is_fed = any(feed is not None for of in window for feed in of.feeds)
        counted = [of for of in window[len(window) // 2 : -1] if is_fed and of.members == last.members] or [last]
        if fed and (counted[0] is last or len(window) <= _WINDOW // 2):
            return StepLoss(np.nan, np.nan)
        courses = self._job.courses(window)
        less = {of.place: list(_find_less(of, parts, base_s, last.role)) for of in courses if of.step >= window[0].step}
        if not less[last.place]:
            return None
        # None of them where a cause is of no single member.
        keys = {key for part in parts for key in part.members}
        those = replay.near_to(last, np.array([key_of(peer) in keys for peer in last.members], bool))
        leads = replay.leads_of(courses, less)
        won_s = _won_s(counted, leads, those, fed)
        length_s = float(np.mean([replay.length_s(of, those) for of in counted]))
        return StepLoss(min(won_s, length_s), length_s) if np.isfinite(won_s) and length_s > 0 else None

    def _course(self, step: RoleStep, pieces: StepPieces, tells: Inside | None, before_s: Vector | None) -> Course:
        return course_of(step, pieces, self._norms, self._norms.modes(pieces.kinds), tells, before_s)


def course_of(
    step: RoleStep, pieces: StepPieces, norms: Norms, mode: Whole, tells: Inside | None, before_s: Vector | None = None
) -> Course:
    """How the members of a step have gone through it, by what is known of their role; not yet by whom they were fed.
    `mode`: (K,) how each piece is over. `before_s`: as of `Losses.closed`.
    """
    took_s = norms.own_s(pieces, mode, norms.last_came(pieces))
    handed = np.flatnonzero(mode == HANDED)
    if tells is not None:
        took_s[:, handed] = np.fmin(pieces.took_s[:, handed], tells.between_s[:, pieces.stages[handed]])
    rows = (norms.rows_of(kind) if mode[at] == IN_A_ROW else None for at, kind in enumerate(pieces.kinds))
    began_s = np.fmin.reduce(step.entered_s, axis=1, initial=np.nan)
    began_s = began_s if before_s is None else np.where(np.isfinite(before_s), before_s, began_s)
    entered = None if tells is None else tells.entered
    inside_s = np.full(step.left_s.shape, np.nan) if tells is None else tells.own_s
    wait_s, inside_wait_s, uneven_s = np.maximum(0.0, pieces.took_s - took_s), *np.zeros((2, *took_s.shape))
    if tells is not None:
        may_wait = np.isin(mode, (WAITS, FREE, UNKNOWN)) & are_of(pieces.kinds, IN)
        waits_s, uneven_s = (of[:, pieces.stages] * may_wait for of in (tells.waits_s, tells.uneven_s))
        inside_wait_s = np.clip(waits_s - or_zero(wait_s), 0.0, or_zero(took_s))
    return Course(
        step.role, step.step, step.members, pieces.kinds, pieces.stages, mode, pieces.came_s, pieces.done_s,
        took_s, wait_s, tuple(norms.meets(pieces.kinds)), (None,) * len(mode),
        tuple(rows), began_s, step.ended_s, entered, inside_s, inside_wait_s, uneven_s,
    )  # fmt: skip


def _window_of(steps: list[Course], every: list[Course], fed: set[Piece]) -> list[Course]:
    """The last of these steps after those of `every` that lie right before it, as far back as it is known for whom the
    stages that are `fed` waited: before that nobody sees that what was won is lost again in waiting.
    """
    with_rings = {of.step: of for of in steps}
    before = [with_rings.get(of.step, of) for of in every if of.step < steps[-1].step]
    window = [*before[1 - _WINDOW :], steps[-1]]
    unknown = [at for at, of in enumerate(window[:-1], 1) if fed.intersection(of.kinds) - _stages_fed(of)]
    return window[max(unknown, default=0) :]


def _stages_fed(course: Course) -> set[Piece]:
    """The stages that wait for another role, where it is known for which of its steps."""
    of = zip(course.kinds, course.feeds)
    return {kind for kind, feed in of if kind.where == IN and feed is not None and (feed.course >= 0).any()}


def _won_s(counted: Sequence[Course], leads: Mapping[Place, Matrix], those: Truths, fed: set[Piece]) -> float:
    """By how much shorter these steps are, in the mean. Where stages wait for another role: no more than what members
    are still ahead by, in the last few of these steps, once they have been handed what they wait for.
    """
    last = [(of, kind) for of in counted[-_FEW:] for kind in fed if kind in of.kinds]
    ahead_s = np.fmin.reduce([replay.sooner_s(of, kind, leads[of.place], those) for of, kind in last], initial=np.inf)
    won_s = np.mean([replay.won_s(of, leads[of.place], those) for of in counted])
    return float(min(won_s, max(0.0, ahead_s)))


def _keep_course(steps: deque[Course], course: Course) -> None:
    steps.append(course)
    while len(steps) > max(1, _BYTES_AT_MOST // max(1, 12 * course.came_s.nbytes)):
        steps.popleft()


def _find_less(course: Course, parts: Iterable[Surplus], base_s: float, role: str) -> Iterator[Less]:
    places = {key_of(peer): at for at, peer in enumerate(course.members)}
    for part in parts:
        piece = course.piece(part.where, part.stage)
        if piece < 0 or (part.role or role) != course.role:
            continue
        if part.where == LINK:
            yield Less(piece, np.zeros(len(course.ended_s)), of_groups=part.slow)
            continue
        excess = 0.0 if course.step in part.absent else max(0.0, part.excess)
        is_told = part.where == INSIDE and course.entered is not None
        own_s = course.inside_s[:, course.stages[piece]] if is_told else course.took_s[:, piece]
        seconds = np.nan_to_num(np.clip((own_s + base_s) * -np.expm1(-excess), 0.0, own_s))
        if part.members:
            of_these = [places[key] for key in part.members if key in places]
            if not of_these:
                continue
            seconds = np.where(np.isin(np.arange(len(seconds)), of_these), seconds, 0.0)
        yield Less(piece, seconds, part.where == INSIDE)
