"""Who waits where in a run, and for whom, by all of its steps: what the judge learns from them, told at the end.

What is known in the end holds for all steps of the run, those too from which it was learned.
"""

from __future__ import annotations

import math
from typing import Iterable, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from ..store.verdicts import Verdict
from . import cutting
from .columns import Ranks
from .cutting import BEFORE, IN, Piece, StepPieces
from .evidence import Peer, RoleStep
from .feeds import Feeds
from .in_a_row import Rows
from .inside import Inside, inside
from .judge import JobJudge
from .judged import Want
from .measuring import BASE_RATIO, BEHIND, BEHIND_GAP, FED, INSIDE, UNKNOWN, WAITS, MeasuredStep, Norms
from .meeting import left_together
from .replay import Feed
from .shaping import compared, follow_length, key_of, length_s, with_inside

Matrix = npt.NDArray[np.float64]
# A judge that has seen so many steps has seen enough of a long run: its last ones.
STEPS_AT_MOST = 2000
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


def judged(steps: Sequence[RoleStep], path: str = "RUN") -> JudgedSteps:
    """Judge the steps of a run, in their order; of a long one the last.
    `path`: the run's folder, for the commands that are advised.
    """
    judge, counts = JobJudge(run=path), dict[str, tuple[int, int]]()
    wants: list[Want] = []
    withdrawn: list[Verdict] = []
    for step in steps[-STEPS_AT_MOST:]:
        judge = judge.of_next_attempt() if judge.is_of_next_attempt(step) else judge
        of_step = judge.close(step)
        counts.update(judge.judged_steps())
        wants += of_step.wants
        withdrawn += (verdict for verdict in of_step.verdicts if verdict.withdrawn)
    return JudgedSteps(tuple(judge.standing()), tuple(withdrawn), tuple(wants[-1:]), counts)


class CutStep(NamedTuple):
    """A step without controllers, in pieces.

    Args:
        step, pieces: The step, and its pieces.
        tells: What collectives tell of the inside of its stages; None: it has none.
        feeds: Of each piece that another side decides by whom it was over; None: it does not, or nobody is known.
        excess: (M, K) logarithm of time over what is expected for its work; NaN: not known.
        excess_inside: (M, S) the same of the inside of its stages.
    """

    step: RoleStep
    pieces: StepPieces
    tells: Inside | None = None
    feeds: tuple[Feed | None, ...] = ()
    excess: Matrix = np.zeros((0, 0))
    excess_inside: Matrix = np.zeros((0, 0))


class WholeRun:
    """What all steps teach.

    Args:
        steps: Of all roles, of controllers too; each role's in their order.

    Attributes:
        every: The same, in the order in which they were over.
        steps: These in pieces.
    """

    def __init__(self, steps: Iterable[RoleStep]) -> None:
        self.every = _in_order(steps)
        self._feeds = Feeds()
        self._roles: dict[str, _RoleLessons] = {}
        cut = [self._learn(step) for step in self.every]
        self._modes = {
            role: of_role.modes(self._feeds.roles_of(role, of_role.waits_for)) for role, of_role in self._roles.items()
        }
        for role, stage in left_together(each.step for each in cut):
            self._modes[role].setdefault(Piece(IN, stage), WAITS)
        self.steps = [self._with_feeds(step, of_step) for step, of_step in zip(self.every, cut)]

    def modes(self, role: str, kinds: Sequence[Piece]) -> npt.NDArray[np.int64]:
        """(K,) WAITS, FREE, FED, IN_A_ROW, HANDED or UNKNOWN."""
        return np.array([self._modes[role].get(kind, UNKNOWN) for kind in kinds], np.int64)

    def rows(self, role: str, kind: Piece, members: Sequence[Peer]) -> Rows | None:
        """Of a piece that is IN_A_ROW the row of each of these members; None: it is not known of all."""
        rows_of = self._roles[role].rows(kind)
        rows = np.array([rows_of.get(key_of(peer), -1) for peer in members], np.int64)
        is_whole = (rows >= 0).all() and len(set(np.bincount(rows).tolist())) == 1
        return rows if is_whole else None

    def _learn(self, step: RoleStep) -> CutStep:
        self._feeds.closed(step)
        step = compared(step)
        tells = None if step.collectives is None else inside(step, step.collectives)._replace(entered=None)
        return self._roles.setdefault(step.role, _RoleLessons()).learn(step, tells, self._feeds)

    def _with_feeds(self, step: RoleStep, cut: CutStep) -> CutStep:
        self._feeds.closed(step)
        pieces, modes = cut.pieces, self._modes[step.role]
        is_fed = [modes.get(kind) == FED for kind in pieces.kinds]
        which = step.role, step.step, pieces.kinds
        cut = self._roles[step.role].with_excess(cut)
        return cut._replace(feeds=self._feeds.of_step(which, is_fed, pieces.came_s, pieces.done_s))


class _RoleLessons:
    """What one role's steps teach; of each set of members by itself, as who is who changes with it."""

    def __init__(self) -> None:
        self.waits_for: dict[str, str] = {}
        self._of_members: dict[tuple[Peer, ...], tuple[Norms, Ranks]] = {}
        self._step_s, self._ended_s, self._number = 0.0, dict[str, float](), -2

    def learn(self, step: RoleStep, tells: Inside | None, feeds: Feeds) -> CutStep:
        """One step more, in its order."""
        if not step.stages or not step.members:
            return CutStep(step, cutting.nothing(len(step.members)))
        keys = [key_of(peer) for peer in step.members]
        before_s = np.array([self._ended_s.get(key, math.nan) for key in keys])
        pieces = cutting.in_pieces(step, before_s if step.step == self._number + 1 else None)
        ended_s = np.fmax.reduce(step.left_s, axis=1)
        self._ended_s, self._number = dict(zip(keys, ended_s.tolist())), step.step
        self.waits_for.update(step.waits_for)
        took_s = length_s(pieces, step)
        if pieces.kinds and math.isfinite(took_s) and took_s > 0:
            self._step_s = follow_length(self._step_s, took_s)
            feeds.learn(step, pieces, self._step_s)
            norms, ranks = self._of_members.setdefault(step.members, (Norms(), Ranks(len(keys))))
            norms.fed = feeds.roles_of(step.role, step.waits_for)
            if step.collectives is not None:
                norms.learn_groups(step, step.collectives)
            measured = self._measure(step, pieces, tells)
            ranks.learn(measured.at, measured.learned, measured.noise)
        return CutStep(step, pieces, tells)

    def _measure(self, step: RoleStep, pieces: StepPieces, tells: Inside | None) -> MeasuredStep:
        norms, ranks = self._of_members[step.members]
        whole = pieces if tells is None else with_inside(pieces, step, tells)
        return norms.measure(step, whole, self._step_s, BASE_RATIO * self._step_s, ranks)

    def with_excess(self, cut: CutStep) -> CutStep:
        """A step, measured anew by all that was learned."""
        step, pieces = cut.step, cut.pieces
        excess, of_inside = np.full(pieces.took_s.shape, np.nan), np.full(step.entered_s.shape, np.nan)
        if pieces.kinds and step.members in self._of_members:
            measured = self._measure(step, pieces, cut.tells)
            # Who is named has not waited: what may have been waiting, of who has hardly waited, is its own time.
            values = np.where(np.isfinite(measured.learned), measured.learned, measured.excess)
            for at, (where, stage) in enumerate(measured.kinds):
                if where == INSIDE:
                    of_inside[:, step.stages.index(stage)] = values[:, at]
                else:
                    excess[:, pieces.kinds.index(Piece(PLAIN.get(where, where), stage))] = values[:, at]
        return cut._replace(excess=excess, excess_inside=of_inside)

    def modes(self, fed: Iterable[Piece]) -> dict[Piece, int]:
        """Of each piece that was seen: where it is not known of the last members, by those before them."""
        modes: dict[Piece, int] = {}
        for norms, _ in self._of_members.values():
            norms.fed = {}
            modes.update((kind, mode) for kind, mode in norms.learned_modes().items() if mode != UNKNOWN)
        return {**modes, **dict.fromkeys(fed, FED)}

    def rows(self, kind: Piece) -> dict[str, int]:
        """The row of each member, by its key."""
        every: dict[str, int] = {}
        for members, (norms, _) in self._of_members.items():
            rows: Rows | None = norms.rows_of(kind)
            if rows is not None:
                every.update(zip(map(key_of, members), rows.tolist()))
        return every


def _in_order(steps: Iterable[RoleStep]) -> list[RoleStep]:
    """By when they were over in the middle of their members; each role's in their order."""
    over_s: dict[str, float] = {}
    placed: list[tuple[float, RoleStep]] = []
    for step in steps:
        ended_s = step.left_s[np.isfinite(step.left_s)]
        last_s = over_s.get(step.role, -math.inf)
        over_s[step.role] = max(last_s, float(np.median(ended_s))) if len(ended_s) else last_s
        placed.append((over_s[step.role], step))
    return [step for _, step in sorted(placed, key=lambda pair: pair[0])]
