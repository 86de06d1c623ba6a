"""A step made ready to be judged: without who is compared with nobody, and with the inside of stages as pieces."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Container

import numpy as np

from ..triggers.late_rank import middle_of
from .cutting import Piece, StepPieces
from .evidence import Collectives, Peer, RoleStep, Truths, Vector, Work
from .inside import Inside
from .measuring import INSIDE

_OF_MEMBERS = "entered_s", "left_s", "total_s", "occurrences", "error_s", "cpu", "waited_s"
# Of a stage in which members wait for such a share of their time another side decides; what is taken for it at first,
# and by how much of the difference it follows each new one.
_ONLY_WAITS, _AT_FIRST, _FOLLOWS = 0.9, 0.8, 0.1
# Who waits for its input is late with it, whoever gives it.
INPUT_STAGE = "load_batch"
# Who counts otherwise is done within this share of a step with the others, so many times more often than not.
_AT_ONCE, _TIMES_OFF = 0.02, 10
# Times of entries and of stages differ by less.
_ROUNDED_S = 1e-3


def key_of(peer: Peer) -> str:
    """What a member is known by from step to step."""
    return f"{'' if peer.rank is None else peer.rank}/{peer.host}/{peer.process}/{peer.part}"


def pick_compared(step: RoleStep, others: Container[str] = ()) -> RoleStep:
    """The step without controllers, which only wait, and without others, by their keys."""
    left_out = [peer.is_controller or bool(others) and key_of(peer) in others for peer in step.members]
    keep = np.flatnonzero(~np.array(left_out, bool)).tolist()
    if len(keep) == len(step.members):
        return step
    arrays = {name: getattr(step, name)[keep] for name in _OF_MEMBERS if getattr(step, name) is not None}
    rings, place_of = step.collectives, np.full(len(step.members), -1)
    place_of[keep] = np.arange(len(keep))
    return step._replace(
        members=tuple(step.members[place] for place in keep), **arrays, work=Work(*(part[keep] for part in step.work)),
        collectives=None if rings is None else rings._replace(member=place_of[rings.member]),
    )  # fmt: skip


@dataclass
class StepCounts:
    """Remembers who counts its steps one off: time after time it is done with a step when the others are done with the
    one before, or behind. It does other work in a step than they do, and waits for nobody in it.
    """

    # Of each role those that do, by their keys, each with what it is called.
    off: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _before: dict[str, tuple[tuple[Peer, ...], Vector]] = field(default_factory=dict)
    _times: dict[str, dict[str, int]] = field(default_factory=dict)

    def learn(self, step: RoleStep) -> None:
        """One step more of a role, of which the one before was closed before it."""
        ended_s, times = step.ended_s, self._times.setdefault(step.role, {})
        members, before_s = self._before.get(step.role, (step.members, ended_s))
        self._before[step.role], there = (step.members, ended_s), np.sort(ended_s[np.isfinite(ended_s)])
        if members != step.members or len(there) < 2:
            return
        done_s = there[len(there) // 2]  # of two halves the one behind
        others_s = middle_of(before_s[np.abs(ended_s - done_s) < np.abs(ended_s - before_s) / 10])
        near_s = _AT_ONCE * (done_s - others_s)
        is_off = (np.abs(ended_s - others_s) <= near_s) | (np.abs(before_s - done_s) <= near_s)
        off = {key_of(peer): peer.who for peer in compress(members, is_off)}
        for key in {**off, **times}:
            times[key] = min(2 * _TIMES_OFF, times.get(key, 0) + (1 if key in off else -1))
        self._times[step.role] = {key: count for key, count in times.items() if count > 0}
        named = {**self.off[step.role], **off}.items()
        self.off[step.role] = {key: who for key, who in named if times[key] >= _TIMES_OFF}


class TakingStages:
    """Remembers in which stages of each role members wait for what they take, and for which share of their time."""

    def __init__(self) -> None:
        self._shares: dict[tuple[str, str], float] = {}

    def tell_waits(self, step: RoleStep) -> RoleStep:
        """The step with what its members have waited in each stage; where that is nearly all, it is a stage that waits.
        Collectives that nobody meets in are left out.
        """
        rings = step.collectives
        if rings is not None and rings.is_taking.any():
            waited_s = _waited_in(step, rings.only(rings.is_taking))
            shares = waited_s.sum(axis=0) / np.maximum(np.nansum(step.total_s, axis=0), 1e-12)
            for key, share in zip([(step.role, stage) for stage in step.stages], shares.tolist()):
                before = self._shares.get(key, _AT_FIRST if share else 0.0)
                self._shares[key] = before + _FOLLOWS * (share - before)
            step = step._replace(waited_s=waited_s, collectives=None if rings.is_taking.all() else rings)
        only = [stage for stage in step.stages if self._shares.get((step.role, stage), 0.0) >= _ONLY_WAITS]
        step = step._replace(waits_for={**dict.fromkeys(only, ""), **step.waits_for})
        if step.waited_s is not None:  # what another side decides is not cut short
            step.waited_s[:, [stage in step.waits_for for stage in step.stages]] = 0.0
        return step


def _waited_in(step: RoleStep, takes: Collectives) -> Any:
    """(M, S) for how long each did nothing but wait for what it takes. Of several waits at once nobody knows whether
    another one works meanwhile, nor of one that goes on beyond its stage: there it is 0.
    """
    size, order = step.total_s.size, np.flatnonzero(np.isfinite(takes.left_s) & (takes.stage >= 0))
    place = (takes.member * len(step.stages) + takes.stage)[order]
    order, place = (part[np.lexsort((takes.entered_s[order], place))] for part in (order, place))
    entered, left = takes.entered_s[order], takes.left_s[order]
    begun, over = (times.reshape(-1)[place] for times in (step.entered_s - _ROUNDED_S, step.left_s + _ROUNDED_S))
    is_alone = (entered >= begun) & (left <= over)
    is_alone[1:] &= (place[1:] != place[:-1]) | (entered[1:] >= left[:-1])
    waited_s = np.bincount(place, left - entered, size) * (np.bincount(place, ~is_alone, size) == 0)
    is_input = np.array([stage == INPUT_STAGE for stage in step.stages], bool)
    return np.where(is_input, 0.0, np.fmin(waited_s.reshape(step.total_s.shape), np.nan_to_num(step.total_s)))


def entered_stages(step: RoleStep) -> list[str]:
    """Stages that somebody was in."""
    there: Truths = np.isfinite(step.entered_s)
    return [stage for stage, was_entered in zip(step.stages, np.any(there, axis=0).tolist()) if was_entered]


def told_stages(step: RoleStep) -> set[str]:
    """Stages of whose work something is told."""
    are_told: Truths = np.isfinite(np.stack(step.work))
    return {stage for at, stage in enumerate(step.stages) if are_told[:, :, at].any()}


def length_s(pieces: StepPieces, step: RoleStep) -> float:
    """How long the step took, in the middle of its members: from the end of the one before where there was one."""
    if not pieces.kinds:
        return math.nan
    began = pieces.came_s[:, 0] if np.isfinite(pieces.came_s[:, 0]).any() else np.fmin.reduce(step.entered_s, axis=1)
    return float(middle_of(step.ended_s - began))


def with_inside(pieces: StepPieces, step: RoleStep, tells: Inside) -> StepPieces:
    """The pieces, and one more for the inside of each stage of which collectives tell."""
    stages = np.flatnonzero(np.isfinite(tells.own_s).sum(axis=0) > 1)
    own = np.maximum(0.0, tells.own_s[:, stages])
    came, names = step.entered_s[:, stages], tuple(step.stages[stage] for stage in stages.tolist())
    kinds, is_first = tuple(Piece(INSIDE, name) for name in names), np.zeros(len(stages), bool)
    inside = StepPieces(kinds, stages, came, came + own, own, names, is_first, tells.error_s[:, stages])
    both = zip(pieces, inside)
    parts: Any = (a + b if isinstance(a, tuple) else np.concatenate([a, b], axis=-1) for a, b in both)  # type: ignore[operator]
    return StepPieces(*parts)
