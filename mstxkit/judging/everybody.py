"""What has become slower for all members of a role, against its own history: nobody of them stands out."""

from __future__ import annotations

import math
from typing import Any, Callable, Collection, Hashable, Iterable, NamedTuple

import numpy as np
import numpy.typing as npt

from ..store.verdicts import ALL_SLOW
from ..triggers import slow_stage
from ..triggers.late_rank import middle_of
from .columns import Vector
from .cutting import BEFORE, IN, Piece
from .feeds import CONTROLLER, Feeds
from .findings import Finding, Key
from .levels import Levels, LevelsNow
from .measuring import BEHIND, BEHIND_GAP, FEATURES, FREE, INSIDE, UNKNOWN, MeasuredStep

# Another role waits for this one: if rings that were asked for tell nothing for so many steps, all of it is named.
_RINGS_COME_WITHIN = 12


class SlowerForAll(NamedTuple):
    """Args: findings: What has become slower. asks: Stages whose inside is worth knowing."""

    findings: list[Finding]
    asks: list[str]


class Everybody:
    """The history of a role as a whole.

    Args:
        role: Its name.
        feeds: Who hands over to whom.
    """

    def __init__(self, role: str, feeds: Feeds) -> None:
        self._role, self._feeds, self.levels = role, feeds, Levels(FEATURES)

    def learn(
        self, limits: slow_stage.SlowStage, measured: MeasuredStep, is_judged: bool, explained: Collection[str]
    ) -> npt.NDArray[np.bool_]:
        """(K,): which pieces can be compared with their own history: not those of which it is known why they are slow,
        from which nothing is learned either.
        """
        waited = measured.came_s - np.fmax.reduce(measured.came_s, axis=0)
        with np.errstate(invalid="ignore"):
            is_sure = (measured.mode != UNKNOWN) | (-middle_of(waited) < 0.1 * measured.usual_s)
        is_sure &= measured.is_comparable
        is_explained = np.array([kind.stage in explained for kind in measured.kinds], bool)
        self.levels.drop(measured.at[is_explained])
        is_sure &= ~is_explained
        now = LevelsNow(measured.at, np.where(is_sure, measured.level, np.nan), measured.work, measured.cost)
        self.levels.add(limits, now, is_judged)
        return np.asarray(is_sure)

    def changed_stages(self, limits: slow_stage.SlowStage, columns: Iterable[Hashable]) -> set[str]:
        """Stages that may have become slower, by the steps so far."""
        scores = self.levels.change.score.tolist()
        pieces = [piece for piece in columns if isinstance(piece, Piece)]
        return {piece.stage for piece, score in zip(pieces, scores) if score > limits.asks_at}

    def find(
        self, limits: slow_stage.SlowStage, measured: MeasuredStep, explained: Collection[str], step_s: float,
        base_s: float, may_hide: Callable[[Piece, int, int], bool],
    ) -> SlowerForAll:  # fmt: skip
        """What has become slower for all.

        Args:
            limits: Settings.
            measured: The step.
            explained: Stages of which it is known why they are slow.
            step_s, base_s: How long a step takes; times are compared as logarithms of so much more.
            may_hide: May somebody be late inside of a piece, in this mode, unseen for so many steps?
        """
        at = measured.at
        is_sure = self.learn(limits, measured, True, explained)
        change = slow_stage.Change(*(values[at] for values in self.levels.change))
        lost_s = -np.expm1(-slow_stage.mean_excess(change)) * (measured.usual_s + base_s)
        fires = slow_stage.fires(limits, change) & is_sure
        # Gaps in which nobody does anything are all of whoever begins the stages: what they cost together counts.
        is_gap = np.array([kind.where == BEHIND_GAP for kind in measured.kinds], bool)
        fires &= np.where(is_gap, lost_s[fires & is_gap].sum(), lost_s) >= limits.impact * step_s
        asks = slow_stage.asks(limits, change) & is_sure & (measured.mode != FREE)
        asks &= lost_s >= 0.5 * limits.impact * step_s
        slower = SlowerForAll([], [])
        order = np.argsort(-change.score, kind="stable")
        for piece in order[(fires | asks)[order]].tolist():
            kind = measured.kinds[piece]
            if kind.stage in explained or kind.where == INSIDE:
                continue
            is_hidden = may_hide(kind, int(measured.mode[piece]), int(change.steps[piece]))
            if asks[piece] and is_hidden:
                slower.asks.append(kind.stage)
            if fires[piece]:
                slower.findings.append(self._finding(limits, measured, piece, change, lost_s, is_hidden))
        return slower

    def _finding(
        self, limits: slow_stage.SlowStage, measured: MeasuredStep, piece: int, change: slow_stage.Change,
        lost_s: Vector, is_hidden: bool,
    ) -> Finding:  # fmt: skip
        kind = measured.kinds[piece]
        waiting = self._feeds.roles_waiting_for(self._role, kind.stage) if kind.where in (IN, BEHIND) else []
        evidence: dict[str, Any] = {"usual_s": float(measured.usual_s[piece])}
        if kind.where == BEHIND_GAP:  # nobody of the role does anything in it
            stage = self._feeds.controller_stage(self._role, Piece(BEFORE, kind.stage))
            evidence |= {"of_role": CONTROLLER, **({"of_stage": stage} if stage else {})}
        elif waiting:
            evidence["waited_for_by"] = ", ".join(waiting)
            is_hidden = is_hidden and change.steps[piece] <= _RINGS_COME_WITHIN
        return Finding(
            Key(ALL_SLOW, kind.where, kind.stage), -1, int(change.steps[piece]),
            math.expm1(slow_stage.mean_excess(change)[piece]), float(lost_s[piece]),
            float(change.score[piece] / limits.threshold), (), evidence, owner=measured.owners[piece],
            is_hidden=is_hidden,
        )  # fmt: skip
