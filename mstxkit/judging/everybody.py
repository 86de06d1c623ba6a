"""What has become slower for all members of a role, where nobody of them stands out: each piece against its own
history, for the work that there was. And what one or a few do alone.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Collection, Hashable, Iterable, Sequence

import numpy as np

from ..store.verdicts import ALL_SLOW, SERIAL
from ..triggers import slow_rank, slow_stage
from ..triggers.late_rank import middle_of
from ..triggers.serial import Serial
from .columns import COLUMNS, Regression, or_zero
from .cutting import BEFORE, IN, Piece, are_of
from .evidence import Matrix, Truths, Vector, Whole
from .feeds import CONTROLLER, Feeds
from .findings import EVERYTHING, Finding, Key, Surplus
from .losses import LossRatio, StepLoss
from .measuring import BEHIND, BEHIND_GAP, FEATURES, FED, FREE, INSIDE, UNKNOWN, MeasuredStep

# Another role waits for this one: if rings that were asked for tell nothing for so many steps, all of it is named.
_RINGS_COME_WITHIN = 12
_OUTLIER, _LEAST_NOISE = 4.0, 0.01
# How fast history follows: while nothing has changed, and while something seems to have.
_FOLLOWS, _FOLLOWS_CHANGED = 0.03, 0.002
_STEPS = 10  # so many make a history


class Levels:
    """What is usual for each piece: (C,) level, noise and work, and what has been added up against it."""

    def __init__(self, features: int) -> None:
        self.seen, self.level, self.variance, self._last = np.zeros((4, COLUMNS))
        self.work, self.change = np.zeros((COLUMNS, features)), slow_rank.empty_sums(COLUMNS)
        self._regression = Regression(features)

    def add(self, settings: slow_stage.SlowStage, now: MeasuredStep, is_judged: bool) -> None:
        """One step more; nothing is added up as long as there is no history, or where it is not to be judged."""
        at = now.at
        is_there = np.isfinite(now.level)
        # Against the work that is usual: a slope that is a little wrong counts little there.
        more_work = np.where(self.seen[at][:, None] > 0, now.work - self.work[at], 0.0)
        by_work = (more_work * (now.cost + self._regression.slopes(at))).sum(axis=1)
        off = np.where(is_there & (self.seen[at] > 0), now.level - self.level[at] - by_work, 0.0)
        noise = np.maximum(np.sqrt(self.variance[at]), _LEAST_NOISE)
        if is_judged:
            excess = np.where(is_there & (self.seen[at] >= _STEPS), off, np.nan)
            after = slow_rank.added(self.change.of(at), excess, noise, settings.slack, settings.clip, begins=0.0)
            self.change.put(at, after._replace(score=np.minimum(after.score, 6 * settings.threshold)))
        self._learn(settings, now, off, noise, more_work)

    def _learn(
        self, settings: slow_stage.SlowStage, now: MeasuredStep, off: Vector, noise: Vector, more_work: Matrix
    ) -> None:
        at, is_there = now.at, np.isfinite(now.level)
        seen = self.seen[at]
        has_changed = (self.change.score[at] > settings.asks_at) & (seen >= _STEPS)
        bounded = np.where(seen >= 3, np.minimum(np.maximum(off, -_OUTLIER * noise), _OUTLIER * noise), off)
        usable = (is_there & (seen > 0) & ~has_changed).astype(float)
        rest = np.where(usable > 0, now.level - self.level[at] - (more_work * now.cost).sum(axis=1), 0.0)
        self._regression.learn(at, more_work[None], rest[None], usable[None])
        # From one step to the next, so that a change that lasts is no noise.
        jump = (off - self._last[at]) ** 2 / 2
        jump = np.where(seen >= 4, np.minimum(jump, (_OUTLIER * noise) ** 2), jump)
        rate = np.where(is_there & (seen > 1), np.maximum(1 / np.maximum(1.0, seen - 1), _FOLLOWS), 0.0)
        self.variance[at] += rate * (jump - self.variance[at])
        follows = np.where(has_changed, _FOLLOWS_CHANGED, np.maximum(1 / (seen + 1), _FOLLOWS)) * is_there
        # Both move along the line of time by work, and what is far off it moves neither.
        more_work = more_work * np.divide(bounded, off, out=np.ones_like(off), where=off != 0)[:, None]
        by_work = (more_work * (now.cost + self._regression.slopes(at))).sum(axis=1)
        self.level[at] += follows * np.where(seen > 0, bounded + by_work, or_zero(now.level))
        self.work[at] += follows[:, None] * np.where(seen[:, None] > 0, more_work, now.work)
        self._last[at] = np.where(is_there, off, self._last[at])
        self.seen[at] = seen + is_there

    def rebase(self, before_s: float, now_s: float) -> None:
        """Times are compared as logarithms of so much more from now on: what is usual stays as long as it was."""
        if before_s == now_s:
            return
        moved = np.log(np.maximum(np.exp(self.level) - before_s, 0.0) + now_s)
        self.level = np.where(self.seen > 0, moved, self.level)

    def drop(self, columns: Whole | int) -> None:
        """What has been added up against their history was something else."""
        for part in self.change:
            part[columns] = 0.0

    def begin_anew(self, column: int) -> None:
        """What is measured there is something else from now on."""
        if column >= 0:
            for part in (self.seen, self.variance, *self.change):
                part[column] = 0.0

    def forget(self, column: int) -> None:
        """What has changed becomes what is usual."""
        self.level[column] += self.change.mean[column]
        self.drop(column)


class Everybody:
    """The history of a role as a whole. `feeds`: who hands over to whom."""

    def __init__(self, role: str, feeds: Feeds) -> None:
        self._role, self._feeds, self.levels = role, feeds, Levels(FEATURES)

    def learn(
        self, limits: slow_stage.SlowStage, measured: MeasuredStep, is_judged: bool, explained: Collection[str]
    ) -> Truths:
        """(K,): which pieces can be compared with their own history: not those of which it is known why they are slow,
        from which nothing is learned either.
        """
        waited = measured.came_s - np.fmax.reduce(measured.came_s, axis=0)
        with np.errstate(invalid="ignore"):
            is_sure = (measured.mode != UNKNOWN) | (-middle_of(waited) <= 0.1 * measured.usual_s)
        is_sure &= measured.is_comparable
        is_explained = np.array([kind.stage in explained for kind in measured.kinds], bool)
        self.levels.drop(measured.at[is_explained])
        is_sure &= ~is_explained
        level = np.where(is_sure, measured.level, np.nan)
        self.levels.add(limits, measured._replace(level=level), is_judged)
        return np.asarray(is_sure)

    def changed_stages(self, limits: slow_stage.SlowStage, columns: Iterable[Hashable]) -> set[str]:
        """Stages that may have become slower, by the steps so far."""
        scores = self.levels.change.score.tolist()
        pieces = [piece for piece in columns if isinstance(piece, Piece)]
        return {piece.stage for piece, score in zip(pieces, scores) if score > limits.asks_at}

    def find(
        self, limits: slow_stage.SlowStage, measured: MeasuredStep, explained: Collection[str], step_s: float,
        base_s: float, may_hide: Callable[[Piece, int, int], bool],
    ) -> tuple[list[Finding], list[str]]:  # fmt: skip
        """What has become slower for all; and stages whose inside is worth knowing. `explained`: stages of which it is
        known why they are slow. `may_hide`: may somebody be late in a piece, in this mode, unseen for so many steps?
        """
        at = measured.at
        is_sure = self.learn(limits, measured, True, explained)
        change = self.levels.change.of(at)
        lost_s = -np.expm1(-change.mean) * (measured.usual_s + base_s)
        fires = slow_stage.find_slower(limits, change) & is_sure
        # Gaps in which nobody does anything are all of whoever begins the stages: what they cost together counts.
        is_gap = are_of(measured.kinds, BEHIND_GAP)
        fires &= np.where(is_gap, lost_s[fires & is_gap].sum(), lost_s) >= limits.impact * step_s
        asks = slow_stage.find_suspected(limits, change) & is_sure & (measured.mode != FREE)
        asks &= lost_s >= 0.5 * limits.impact * step_s
        findings, asked = list[Finding](), list[str]()
        order = np.argsort(-change.score, kind="stable")
        for piece in order[(fires | asks)[order]].tolist():
            kind = measured.kinds[piece]
            if kind.stage in explained or kind.where == INSIDE:
                continue
            is_hidden = may_hide(kind, int(measured.mode[piece]), int(change.steps[piece]))
            if asks[piece] and is_hidden:
                asked.append(kind.stage)
            over_s, at_least_s = middle_of(measured.done_s[:, piece]), measured.usual_s[piece] - lost_s[piece] / 2
            gap = self._role, kind.stage, float(over_s), float(at_least_s)
            is_open = kind.where in (BEFORE, BEHIND_GAP) and self._feeds.may_end_with_another(*gap)
            if fires[piece] and not is_open:
                findings.append(self._finding(limits, measured, piece, change, lost_s, is_hidden))
        return findings, asked

    def _finding(
        self, limits: slow_stage.SlowStage, measured: MeasuredStep, piece: int, change: slow_rank.AddedUp,
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
            math.expm1(change.mean[piece]), float(lost_s[piece]),
            float(change.score[piece] / limits.threshold), (), evidence, owner=measured.owners[piece],
            is_hidden=is_hidden, role=self._role if kind.where == BEHIND_GAP else "",
        )  # fmt: skip


class AloneInStages:
    """Remembers what steps lose by what a few of a role do in a stage while all wait: it is compared with nobody."""

    def __init__(self) -> None:
        self._losses: dict[Key, LossRatio] = {}

    def find(
        self, limits: Serial, measured: MeasuredStep, keys: Sequence[str], step_s: float,
        lost: Callable[[Sequence[Surplus]], StepLoss | None],
    ) -> list[Finding]:  # fmt: skip
        """Those of this step that have cost enough for long enough. `keys`: of its members. `lost`: what the step loses
        by time that is taken away.
        """
        here = np.isfinite(measured.took_s) & are_of(measured.kinds, IN)
        is_few = here.any(axis=0) & (here.sum(axis=0) <= max(1, limits.alone * len(keys))) & (len(keys) > 1)
        findings = []
        for piece in np.flatnonzero(is_few & (measured.mode != FED)).tolist():
            places = np.flatnonzero(here[:, piece])
            key = Key(SERIAL, IN, measured.kinds[piece].stage, keys[places[0]])
            loss = self._losses.setdefault(key, LossRatio())
            loss.add(lost([Surplus(IN, key.stage, tuple(keys[at] for at in places.tolist()), EVERYTHING)]))
            if loss.times >= limits.steps and loss.ratio >= limits.impact:
                took_s = float(np.fmax.reduce(measured.took_s[places, piece]))
                evidence = {"usual_s": took_s}
                findings.append(Finding(key, int(places[0]), loss.times, took_s / step_s, took_s, 1.2, (), evidence))
        return findings
