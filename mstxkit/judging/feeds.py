"""Who hands over to whom between roles: a piece of one role is over when another role has ended a stage.

A trainer's wait for samples is over when a rollout has made them, a gap when the reward servers or the controller are
through. Where a step says whom a stage waits for, that is asked first. The rest is learned: time after time the end of
the piece comes right after the end of the other's stage, by far more often than chance has it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Container, Mapping, NamedTuple

import numpy as np

from .cutting import BEFORE, IN, Piece, StepPieces
from .evidence import RoleStep, Vector, Whole
from .measuring import FED
from .replay import Course, Feed, Place

# What is known of a role that is named nowhere, as its members only wait and begin stages of others.
CONTROLLER = "controller"
# Steps of each other role that are remembered, members that are looked at, and pairs of pieces and sources.
_STEPS, _LOOKED_AT, _PAIRS_AT_MOST = 12, 64, 4096
# "Right after" is within this share of a step.
_RIGHT_AFTER, _LEAST_S = 0.02, 2e-4
# Of so many log odds it is known, of so few no more; what never was so may become so.
_KNOWN, _PROMISING, _UNKNOWN, _AT_LEAST, _AT_MOST = 7.0, 2.0, -4.0, -6.0, 20.0
# Of a gap it may be twice as much as the gap takes when nobody is waited for, up to so many times that share.
_RIGHT_AFTER_GAP, _FORGETS = 4.0, 1.02
# How often it is so where it is so, and how often at least chance has it.
_USUALLY, _CHANCE_LEAST, _CHANCE_MOST = 0.9, 0.03, 0.6
# Where nobody says that a stage waits, its time must vary by so much more than the time after the other's end.
_VARIES = 3.0
_FOLLOWS = 0.1
# So little is the number of steps that the source is behind spread where it is always the same.
_STEADY = 0.25

Source = tuple[str, str]  # a role, and its stage


class _Events(NamedTuple):
    """Ends of a stage in the last steps of a role, in their order: when, how long it was, in which step, of whom."""

    at_s: Vector
    took_s: Vector
    step: Whole
    member: Whole


class _Tie(NamedTuple):
    """What is known of a piece and a source: log odds; how the time after, the time in the piece, and how many steps
    the source was behind whoever waited, have varied.
    """

    odds: float = 0.0
    lag_s: float = math.nan
    lag_spread_s: float = 0.0
    took_s: float = math.nan
    took_spread_s: float = 0.0
    behind: float = math.nan
    behind_spread: float = 0.0

    @property
    def steps_behind(self) -> int | None:
        """As many steps as the source is behind, time after time; None: now so many, now others."""
        return round(self.behind) if math.isfinite(self.behind) and self.behind_spread < _STEADY else None


class _Ended(NamedTuple):
    """When each member began and ended each stage of a step, and whom its stages wait for."""

    step: int
    stages: tuple[str, ...]
    entered_s: Vector
    left_s: Vector
    waits_for: Mapping[str, str]


class _Pending(NamedTuple):
    """Pieces of a step that others may decide: looked at, in some members, once the others have come as far."""

    role: str
    step: int
    waits_for: Mapping[str, str]
    pieces: tuple[tuple[Piece, Vector, Vector], ...]  # each with when members were done, and how long it took them
    ended_s: float
    seen_by: set[str]


class Feeds:
    """What is known of a job's roles. One thread at a time."""

    def __init__(self) -> None:
        self._pending: dict[str, deque[_Pending]] = {}
        self._ended_s, self._near_s = dict[str, float](), dict[str, float]()
        self._steps: dict[str, deque[_Ended]] = {}
        self._ties: dict[tuple[str, Piece, Source], _Tie] = {}
        self._fed: dict[tuple[str, Piece], Source] = {}
        self._least_s: dict[tuple[str, Piece], float] = {}
        self._events: dict[Source, _Events] = {}
        self._controllers: set[str] = set()

    def closed(self, step: RoleStep) -> None:
        """A step of any role, its controllers too."""
        role = step.role or (CONTROLLER if all(peer.is_controller for peer in step.members) else "")
        if all(peer.is_controller for peer in step.members):
            self._controllers.add(role)
        of_role = self._steps.setdefault(role, deque(maxlen=_STEPS))
        of_role.append(_Ended(step.step, step.stages, step.entered_s, step.left_s, step.waits_for))
        self._ended_s[role] = max(self._ended_s.get(role, -math.inf), float(np.nanmax(step.left_s, initial=-math.inf)))
        self._events = {source: events for source, events in self._events.items() if source[0] != role}

    def roles_of(self, role: str, waits_for: Mapping[str, str]) -> Mapping[Piece, str]:
        """The pieces of a role that another side decides, and which that is; "": nobody says.

        Not the gaps that end when a controller begins the next stage: nobody else judges what that takes.
        """
        declared = {Piece(IN, stage): side for stage, side in waits_for.items()}
        learned = {kind: source[0] for (of, kind), source in self._fed.items() if of == role}
        learned = {kind: side for kind, side in learned.items() if kind.where == IN or side not in self._controllers}
        return {**declared, **learned}

    def controller_stage(self, role: str, kind: Piece) -> str:
        """The stage of a controller at whose end a gap is over; "" where none is known."""
        source = self._fed.get((role, kind))
        return source[1] if source is not None and source[0] in self._controllers else ""

    def roles_waiting_for(self, role: str, stage: str) -> list[str]:
        """The roles that go on when this one has ended that stage."""
        return sorted({of for (of, _), source in self._fed.items() if source == (role, stage)})

    def learn(self, step: RoleStep, pieces: StepPieces, step_s: float) -> None:
        """One step more of a role that other roles may hand over to: looked at once these have come as far."""
        ended_s = float(np.nanmax(pieces.done_s, initial=-math.inf))
        waiting = self._pending.setdefault(step.role, deque(maxlen=_STEPS))
        self._near_s[step.role] = max(_RIGHT_AFTER * step_s, _LEAST_S)
        # The pieces that others may decide, of each so many-th member; copied, so that nothing holds the rest.
        every = max(1, len(step.members) // _LOOKED_AT)
        looked_at = tuple(
            (kind, pieces.done_s[::every, at].copy(), pieces.took_s[::every, at].copy())
            for at, kind in enumerate(pieces.kinds)
            if kind.where in (IN, BEFORE) and pieces.owners[at] in ("", kind.stage)
        )
        for kind, _, took_s in (piece for piece in looked_at if piece[0].where == BEFORE):
            least_s = _FORGETS * self._least_s.get((step.role, kind), np.inf)
            self._least_s[step.role, kind] = min(least_s, float(np.nanmin(took_s, initial=np.inf)))
        waiting.append(_Pending(step.role, step.step, step.waits_for, looked_at, ended_s, {step.role}))
        for of_role in self._pending.values() if len(self._steps) > 1 else ():
            for pending in of_role:
                ready = {role for role, until_s in self._ended_s.items() if until_s >= pending.ended_s}
                if new := ready - pending.seen_by:
                    self._look(pending, sorted(new))
                    pending.seen_by.update(new)

    def _look(self, pending: _Pending, others: list[str]) -> None:
        for kind, done_s, took_s in pending.pieces:
            is_declared = kind.where == BEFORE or kind.stage in pending.waits_for
            named = pending.waits_for.get(kind.stage, "")
            for role in others if named not in self._steps else {named}.intersection(others):
                for stage in self._steps[role][-1].stages if self._steps[role] else ():
                    self._learn(pending, kind, (role, stage), done_s, took_s, is_declared)

    def _learn(
        self, pending: _Pending, kind: Piece, source: Source, done_s: Vector, took_s: Vector, is_declared: bool
    ) -> None:  # fmt: skip
        key = pending.role, kind, source
        before = self._ties.get(key)
        if before is None and len(self._ties) >= _PAIRS_AT_MOST:
            return
        tie = before or _Tie()
        near_s = self._near_s[pending.role]
        if kind.where == BEFORE:
            near_s = max(near_s, min(2 * self._least_s[pending.role, kind], _RIGHT_AFTER_GAP * near_s))
        events = self._events_of(source)
        has_waited = took_s > 2 * near_s  # what ends right after they came may have ended by what they did before
        if not has_waited.any() or not len(events.at_s):
            return
        last = _last_before(events.at_s, done_s[has_waited])
        lag_s = np.where(last >= 0, done_s[has_waited] - events.at_s[last], np.inf)
        is_near, chance = lag_s <= near_s, _measure_chance(events.at_s, near_s)
        room_s = took_s[has_waited] - events.took_s[last]
        if is_declared and is_near.mean() < 0.7 <= (lag_s <= room_s).mean():
            # It lies within the time that is waited: the more room there is in it, the likelier it does by chance.
            is_near, chance = lag_s <= room_s, _measure_chance(events.at_s, float(np.median(room_s)), _USUALLY)
        share = float(is_near.mean())
        odds = math.log(_USUALLY / chance) if share >= 0.7 else math.log((1 - _USUALLY) / (1 - chance))
        lag, took = float(np.median(lag_s)), float(np.median(took_s[has_waited]))
        behind = float(np.median(pending.step - events.step[last[is_near]])) if share > 0 else math.nan
        tie = _Tie(
            max(_AT_LEAST, min(_AT_MOST, tie.odds + (odds if share >= 0.7 or share <= 0.3 else 0.0))),
            *_follow_mean(tie.lag_s, tie.lag_spread_s, lag), *_follow_mean(tie.took_s, tie.took_spread_s, took),
            *_follow_mean(tie.behind, tie.behind_spread, behind),
        )  # fmt: skip
        self._ties[key] = tie
        self._choose(pending.role, kind, is_declared)

    def _choose(self, role: str, kind: Piece, is_declared: bool) -> None:
        """The source that a piece is known to be fed by: of several the one that it follows most closely."""
        waiting = {(of, stage) for of, steps in self._steps.items() if steps for stage in steps[-1].waits_for}
        closest = [
            # What comes right before a stage that itself only waits is rather what was waited for.
            ((source[0], Piece(IN, source[1])) in self._fed or source in waiting, tie.lag_spread_s + tie.lag_s, source)
            for (of, piece, source), tie in self._ties.items()
            if of == role and piece == kind
            and tie.odds >= (_UNKNOWN if self._fed.get((role, kind)) == source else _KNOWN)
            and (is_declared or tie.took_spread_s > _VARIES * tie.lag_spread_s)
        ]  # fmt: skip
        if closest:
            self._fed[role, kind] = min(closest)[2]
        else:
            self._fed.pop((role, kind), None)

    def _events_of(self, source: Source) -> _Events:
        events = self._events.get(source)
        if events is None:
            events = self._events[source] = _read_events(self._steps.get(source[0], deque()), source[1])
        return events

    def told_of(self, course: Course) -> Course:
        """With whom its pieces were over by that another side decides: by now also those of whom nothing was known when
        it was closed. Own time there is what comes after the other's end.
        """
        fed = np.flatnonzero(course.mode == FED).tolist()
        if not fed:
            return course
        feeds: list[Feed | None] = [None] * len(course.kinds)
        took_s, whole_s = course.took_s.copy(), course.took_s + course.wait_s
        for at in fed:
            feed = feeds[at] = self._feed(course.role, course.step, course.kinds[at], course.done_s[:, at])
            took_s[:, at] = np.minimum(0.0 if feed is None else np.nan_to_num(feed.lag_s), whole_s[:, at])
        return course._replace(feeds=tuple(feeds), took_s=took_s, wait_s=whole_s - took_s)

    def after_source(self, role: str, step: int, pieces: StepPieces, fed: Container[Piece]) -> StepPieces:
        """Pieces of the newest step, of which gaps that are `fed` take what comes after the other role's stage, when no
        role does anything; where the other's step is not over yet, as in the step before; NaN: not known.
        """
        gaps = [at for at, kind in enumerate(pieces.kinds) if kind.where == BEFORE and kind in fed]
        took_s, before = pieces.took_s.copy() if gaps else pieces.took_s, [*self._pending[role]][-2:-1]
        done_before = {kind: (of.step, kind, done_s) for of in before for kind, done_s, _ in of.pieces}
        for at, kind in ((at, pieces.kinds[at]) for at in gaps):
            lag_s = self._lag_s(role, step, kind, pieces.done_s[:, at])
            if kind in done_before and np.isnan(lag_s).all():
                lag_s[:] = np.median(self._lag_s(role, *done_before[kind]))
            took_s[:, at] = np.minimum(lag_s, took_s[:, at])
        return pieces._replace(took_s=took_s)

    def _lag_s(self, role: str, step: int, kind: Piece, done_s: Vector) -> Vector:
        """(M,) how long after the end of its source a piece was over; NaN: that was not seen yet."""
        feed, behind = self._feed(role, step, kind, done_s), self._ties[role, kind, self._fed[role, kind]].steps_behind
        if feed is None or behind is None or any(of != step - behind for _, of in feed.courses):
            return np.full(len(done_s), np.nan)
        return feed.lag_s

    def may_end_with_another(self, role: str, stage: str, over_s: float, at_least_s: float) -> bool:
        """May another role, not known yet, have ended this gap at `over_s`? Or had one, no controller, something to do
        until less than `at_least_s` before?
        """
        kind = Piece(BEFORE, stage)
        ties = (tie.odds for (of, piece, _), tie in self._ties.items() if of == role and piece == kind)
        others = (steps for of, steps in self._steps.items() if of != role and of not in self._controllers)
        ends_s = (step.left_s[step.left_s <= over_s] for steps in others for step in steps)
        ended_s = max((float(of.max(initial=-math.inf)) for of in ends_s), default=-math.inf)
        is_promising = (role, kind) not in self._fed and max(ties, default=0.0) > _PROMISING
        return is_promising or over_s - ended_s < at_least_s

    def _feed(self, role: str, step: int, kind: Piece, done_s: Vector) -> Feed | None:
        """By whom a piece was over in a step, member by member; None: nobody is known.

        It is the source's last end before it went on; where the source is always as many steps behind, its last end of
        that step: another member of it may have ended its next one since, or that step may not be over yet.
        """
        source = self._fed.get((role, kind))
        events = None if source is None else self._events_of(source)
        if source is None or events is None or not len(events.at_s):
            return None
        at = _last_before(events.at_s, done_s)
        behind = self._ties[role, kind, source].steps_behind
        if behind is not None:
            of_step = np.append(np.flatnonzero(events.step == step - behind), -1)
            in_step = of_step[_last_before(events.at_s[of_step[:-1]], done_s)]
            at = np.where(in_step >= 0, in_step, at if len(of_step) > 1 else -1)
        steps, course = np.unique(events.step[at], return_inverse=True)
        return Feed(
            tuple((source[0], int(of_step)) for of_step in steps), np.where(at >= 0, course.reshape(-1), -1),
            events.member[at], source[1], np.where(at >= 0, done_s - events.at_s[at], np.nan),
        )  # fmt: skip


def places_of(feeds: tuple[Feed | None, ...]) -> set[Place]:
    """The steps of other roles in which that happened."""
    return {place for feed in feeds if feed is not None for place in feed.courses}


def _read_events(steps: deque[_Ended], stage: str) -> _Events:
    parts = [(np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for step in (step for step in steps if stage in step.stages):
        entered_s, left_s = (times[:, step.stages.index(stage)] for times in (step.entered_s, step.left_s))
        parts.append((left_s, left_s - entered_s, np.full(len(left_s), step.step), np.arange(len(left_s))))
    at_s, took_s, of_step, member = (np.concatenate(column) for column in zip(*parts))
    kept = np.flatnonzero(np.isfinite(at_s))
    kept = kept[np.argsort(at_s[kept], kind="stable")]
    return _Events(at_s[kept], took_s[kept], of_step[kept], member[kept])


def _last_before(events_s: Vector, done_s: Vector) -> Whole:
    """Which of the events was the last before each; -1: none."""
    return np.asarray(np.searchsorted(events_s, np.where(np.isfinite(done_s), done_s, -np.inf), side="right") - 1)


def _measure_chance(events_s: Vector, near_s: float, at_most: float = _CHANCE_MOST) -> float:
    """Which share of all times lies right after one of the events."""
    apart_s = np.diff(events_s)
    over_s = float(events_s[-1] - events_s[0])
    share = float(np.minimum(apart_s, near_s).sum()) / over_s if over_s > 0 else at_most
    return min(at_most, max(_CHANCE_LEAST, share))


def _follow_mean(mean: float, spread: float, value: float) -> tuple[float, float]:
    """The mean of what has come, and how far from it that was, later values counting more."""
    if not math.isfinite(mean):
        return (value, 0.0) if math.isfinite(value) else (mean, spread)
    if not math.isfinite(value):
        return mean, spread
    return mean + _FOLLOWS * (value - mean), spread + _FOLLOWS * (abs(value - mean) - spread)
