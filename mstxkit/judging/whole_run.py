"""Who waits where in a run, and for whom, by all of its steps: what the judge learns from them, told at the end.

What is known in the end holds for all steps of the run, those too from which it was learned.
"""

from __future__ import annotations

import math
from itertools import starmap
from typing import Iterable, NamedTuple, Sequence

import numpy as np

from ..store.verdicts import Verdict
from .cutting import BEFORE, IN, Piece, StepPieces
from .evidence import Matrix, Peer, RoleStep
from .feeds import Feeds
from .inside import Inside, entries_of, measure_inside
from .judge import JobJudge
from .judged import COUNTS, Want
from .lessons import RoleLessons, StepCutter
from .losses import course_of
from .measuring import BASE_RATIO, BEHIND, BEHIND_GAP, FED, HANDED, INSIDE, UNKNOWN, WAITS, Norms
from .meeting import left_together
from .replay import Course
from .shaping import StepCounts, TakingStages, pick_compared

# A judge that has seen so many steps has seen enough of a long run: its last ones.
STEPS_AT_MOST = 2000
# Who was handed something in a step, is told so many steps of all roles later.
_AHEAD = 6
# What a piece is called before it is known that all wait in it.
PLAIN = {BEHIND: IN, BEHIND_GAP: BEFORE}


class JudgedSteps(NamedTuple):
    """What the judge says of steps that are over.

    Args:
        standing: Verdicts that hold in the end.
        withdrawn: Those that held for a time, as they were said last.
        wants: What would tell more, as it was asked for last.
        counts: Role to how many of its steps were closed, and how many of these could lead to a verdict.
    """

    standing: tuple[Verdict, ...]
    withdrawn: tuple[Verdict, ...]
    wants: tuple[Want, ...]
    counts: dict[str, tuple[int, int]]


def judge_steps(steps: Sequence[RoleStep], path: str = "RUN") -> JudgedSteps:
    """Judge the steps of a run, in their order; of a long one the last. `path`: its folder, for what is advised."""
    judge, counts = JobJudge(run=path), dict[str, tuple[int, int]]()
    wants: list[Want] = []
    withdrawn: list[Verdict] = []
    for step in steps[-STEPS_AT_MOST:]:
        judge = judge.of_next_attempt() if judge.is_of_next_attempt(step) else judge
        of_step = judge.close(step)
        counts.update(judge.judged_steps())
        wants += of_step.wants
        withdrawn += (verdict for verdict in of_step.verdicts if verdict.withdrawn)
    for role, named in judge.counts.off.items():
        others = f" and {len(named) - 1} more" if len(named) > 1 else ""
        why = f"{next(iter(named.values()), '')}{others} counted steps one off, compared with nobody"
        wants += [Want(COUNTS, role, (), None, 0, 0, why)] if named else []
    return JudgedSteps(tuple(judge.standing()), tuple(withdrawn), tuple(wants[-1:]), counts)


class SeenStep(NamedTuple):
    """A step by all that was learned of its role.

    Args:
        step, pieces, tells: The step without controllers, its pieces, and what collectives tell of their inside.
        course: How its members have gone through it.
        excess: (M, K) logarithm of time over what is expected for its work; NaN: not known.
        inside_s, excess_inside: (M, K) own time between the collectives of a stage, and the same of that.
    """

    step: RoleStep
    pieces: StepPieces
    tells: Inside | None
    course: Course
    excess: Matrix
    inside_s: Matrix
    excess_inside: Matrix


class WholeRun:
    """What all steps teach, of all roles and controllers, each role's in their order: as they teach it to a judge, but
    known of all of them in the end.

    Attributes:
        steps: The same, in the order in which they were over, as all of them teach.
    """

    def __init__(self, steps: Iterable[RoleStep]) -> None:
        every = [*map(TakingStages().tell_waits, _in_order(steps))]
        self._feeds, self._waits_for, self._counts = Feeds(), dict[str, dict[str, str]](), StepCounts()
        self._cutters = dict[str, StepCutter]()
        self._lessons = dict[tuple[str, tuple[Peer, ...]], RoleLessons]()  # who is who changes with the members
        for step in every:
            self._counts.learn(step)
        cut = [self._learn(step) for step in every]
        self._modes = {role: self._modes_of(role) for role in self._cutters}
        for role, stage in left_together(step for step, *_ in cut):
            self._modes[role].setdefault(Piece(IN, stage), WAITS)
        self.steps = [*starmap(self._seen, cut)]
        for at in range(len(every) + _AHEAD):
            if at < len(every):
                self._feeds.closed(cut[at][0] if cut[at][0].members else every[at])
            if at >= _AHEAD:  # what was handed over in it, the others have told by now
                seen = self.steps[at - _AHEAD]
                self.steps[at - _AHEAD] = seen._replace(course=self._feeds.told_of(seen.course))

    def _learn(self, step: RoleStep) -> tuple[RoleStep, StepPieces, Inside | None]:
        """The step without controllers, its pieces, and what collectives tell of the inside of its stages."""
        as_told, step = step, pick_compared(step, self._counts.off[step.role])
        self._feeds.closed(step if step.members else as_told)
        tells = None if step.collectives is None else measure_inside(step, step.collectives)._replace(entered=None)
        pieces, _ = self._cutters.setdefault(step.role, StepCutter()).cut(step)
        self._waits_for.setdefault(step.role, {}).update(step.waits_for)
        key = step.role, step.members
        lessons = self._lessons.get(key) or RoleLessons(step.role, self._feeds, len(step.members))
        if lessons.follow(step, pieces):
            self._lessons[key] = lessons
            measured = lessons.measure(step, pieces, tells)
            lessons.ranks.learn(measured.at, measured.learned, measured.noise)
        return step, pieces, tells

    def _modes_of(self, role: str) -> dict[Piece, int]:
        """Of each piece that was seen: where it is not known of the last members, by those before them."""
        modes: dict[Piece, int] = {}
        for lessons in [lessons for (of, _), lessons in self._lessons.items() if of == role]:
            lessons.norms.fed, lessons.base_s = {}, BASE_RATIO * lessons.step_s  # a step lasts as it does in the end
            modes.update((kind, mode) for kind, mode in lessons.norms.learned_modes().items() if mode != UNKNOWN)
        return {**modes, **dict.fromkeys(self._feeds.roles_of(role, self._waits_for[role]), FED)}

    def _seen(self, step: RoleStep, pieces: StepPieces, tells: Inside | None) -> SeenStep:
        """A step, measured anew by all that was learned."""
        lessons = self._lessons.get((step.role, step.members))
        excess, inside_s, excess_inside = (np.full(pieces.took_s.shape, np.nan) for _ in range(3))
        if pieces.kinds and lessons is not None:
            measured = lessons.measure(step, pieces, tells)
            # Who is named has not waited: what may have been waiting, of who has hardly waited, is its own time.
            values = np.where(np.isfinite(measured.learned), measured.learned, measured.excess)
            for at, (where, stage) in enumerate(measured.kinds):
                place = pieces.kinds.index(Piece(IN if where == INSIDE else PLAIN.get(where, where), stage))
                (excess_inside if where == INSIDE else excess)[:, place] = values[:, at]
                if where == INSIDE:
                    inside_s[:, place] = measured.took_s[:, at]
        mode = np.array([self._modes[step.role].get(kind, UNKNOWN) for kind in pieces.kinds], np.int64)
        through = tells
        if (mode == HANDED).any() and tells is not None and step.collectives is not None:
            through = tells._replace(entered=entries_of(step, step.collectives))
        norms, begun_s = Norms() if lessons is None else lessons.norms, pieces.came_s[:, 0] if pieces.kinds else None
        course = course_of(step, pieces, norms, mode, through, begun_s)
        return SeenStep(step, pieces, tells, course, excess, inside_s, excess_inside)


def _in_order(steps: Iterable[RoleStep]) -> list[RoleStep]:
    """By when they were over in the middle of their members; each role's in their order."""
    over_s: dict[str, float] = {}
    placed: list[tuple[float, RoleStep]] = []
    for step in steps:
        ended_s, last_s = step.ended_s[np.isfinite(step.ended_s)], over_s.get(step.role, -math.inf)
        over_s[step.role] = max(last_s, float(np.median(ended_s))) if len(ended_s) else last_s
        placed.append((over_s[step.role], step))
    return [step for _, step in sorted(placed, key=lambda pair: pair[0])]
