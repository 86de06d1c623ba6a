"""What the steps of a role teach: how long they are, who hands over to whom, who meets, and what is usual.

Who judges a job learns so step by step, and who reads a run from all of its steps.
"""

from __future__ import annotations

import math

import numpy as np

from . import cutting
from .columns import Ranks
from .cutting import BEFORE, Piece, StepPieces
from .evidence import Peer, RoleStep, Vector
from .feeds import Feeds
from .inside import Inside
from .measuring import BASE_RATIO, BEHIND_GAP, MeasuredStep, Norms
from .shaping import key_of, length_s, with_inside

# The usual length of a step follows each new one by this share of the difference, counted up to so many lengths: one
# that is far longer than the others, as a clock was set or all stood still, says little of them.
_FOLLOWS, _AT_MOST = 0.1, 3.0


class StepCutter:
    """Cuts a role's steps, one after the other: the gap before a step began when each was done with the one before."""

    def __init__(self) -> None:
        self.last_step, self._counts_by = -1, 0
        self._members, self._ended_s = tuple[Peer, ...](), np.zeros(0)

    def cut(self, step: RoleStep) -> tuple[StepPieces, Vector]:
        """Its pieces; and (M,) when each member was done with the step before, NaN: that is not known."""
        before, self._counts_by = self._counts_by, step.step - self.last_step
        is_next = self._counts_by in (1, before)  # some count by tens
        ended_s = self._ended_s if is_next else np.full(len(self._members), np.nan)
        if step.members != self._members:
            before_s = dict(zip(map(key_of, self._members), ended_s.tolist()))
            ended_s = np.array([before_s.get(key_of(peer), math.nan) for peer in step.members])
        self.last_step, self._members = step.step, step.members
        self._ended_s = step.ended_s
        return cutting.in_pieces(step, ended_s), ended_s


class RoleLessons:
    """Those of one role, as long as its members are the same. `members`: how many.

    Attributes:
        norms: Who waits where, and what the work costs.
        ranks: How each member usually is.
        step_s: How long a step takes, as of late.
        base_s: Times are compared as logarithms of so much more. It does not move with every step, or all levels would.
    """

    def __init__(self, role: str, feeds: Feeds, members: int = 0) -> None:
        self._role, self._feeds = role, feeds
        self.norms, self.ranks = Norms(), Ranks(members)
        self.step_s, self.base_s = 0.0, 0.0

    def follow(self, step: RoleStep, pieces: StepPieces) -> bool:
        """One step more: how long it is, who hands over to whom, who meets. False: it tells nothing."""
        took_s = length_s(pieces, step)
        if not math.isfinite(took_s) or took_s <= 0:
            return False
        before_s = self.step_s or took_s
        self.step_s = before_s + _FOLLOWS * (min(took_s, _AT_MOST * before_s) - before_s)
        if not 0.5 < self.base_s / (BASE_RATIO * self.step_s) < 2:
            self.base_s = BASE_RATIO * self.step_s
        self._feeds.learn(step, pieces, self.step_s)
        before, self.norms.fed = self.norms.fed, self._feeds.roles_of(self._role, step.waits_for)
        self.norms.learn_groups(step)
        new = (kind for kind, side in self.norms.fed.items() if before.get(kind) != side)
        self.norms.regrouped |= {Piece(BEHIND_GAP, kind.stage) for kind in new if kind.where == BEFORE}
        return True

    def measure(self, step: RoleStep, pieces: StepPieces, tells: Inside | None) -> MeasuredStep:
        """A step, measured by what those before it taught; it teaches what the work costs and who waits where."""
        pieces = self._feeds.after_source(self._role, step.step, pieces, self.norms.fed)
        pieces = pieces if tells is None else with_inside(pieces, step, tells)
        return self.norms.measure(step, pieces, self.step_s, self.base_s, self.ranks)
