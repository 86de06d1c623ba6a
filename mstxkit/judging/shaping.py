"""A step made ready to be judged: without controllers, with its length, and with the inside of stages as pieces."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..triggers.late_rank import middle_of
from .cutting import Piece, StepPieces
from .evidence import Peer, RoleStep, Work
from .inside import Inside
from .measuring import INSIDE

# The usual length of a step follows each new one by this share of the difference, counted up to so many lengths.
_FOLLOWS, _AT_MOST = 0.1, 3.0


def key_of(peer: Peer) -> str:
    """What a member is known by from step to step."""
    return f"{'' if peer.rank is None else peer.rank}/{peer.host}/{peer.process}/{peer.part}"


def compared(step: RoleStep) -> RoleStep:
    """The step without controllers, which only wait."""
    keep = [place for place, peer in enumerate(step.members) if not peer.is_controller]
    if len(keep) == len(step.members):
        return step
    arrays = {
        name: getattr(step, name)[keep]
        for name in ("entered_s", "left_s", "total_s", "busy_s", "longest_s", "occurrences", "error_s")
    }
    rings, place_of = step.collectives, np.full(len(step.members), -1)
    place_of[keep] = np.arange(len(keep))
    return step._replace(
        members=tuple(step.members[place] for place in keep), **arrays, work=Work(*(part[keep] for part in step.work)),
        collectives=None if rings is None else rings._replace(member=place_of[rings.member]),
        cpu=None if step.cpu is None else step.cpu[keep],
    )  # fmt: skip


def entered_stages(step: RoleStep) -> list[str]:
    """Stages that somebody was in."""
    there: npt.NDArray[np.bool_] = np.isfinite(step.entered_s)
    return [stage for stage, was_entered in zip(step.stages, np.any(there, axis=0).tolist()) if was_entered]


def told_stages(step: RoleStep) -> set[str]:
    """Stages of whose work something is told."""
    are_told: npt.NDArray[np.bool_] = np.isfinite(np.stack(step.work))
    return {stage for at, stage in enumerate(step.stages) if are_told[:, :, at].any()}


def length_s(pieces: StepPieces, step: RoleStep) -> float:
    """How long the step took, in the middle of its members: from the end of the one before where there was one."""
    if not pieces.kinds:
        return math.nan
    began = pieces.came_s[:, 0] if np.isfinite(pieces.came_s[:, 0]).any() else np.fmin.reduce(step.entered_s, axis=1)
    return float(middle_of(np.fmax.reduce(step.left_s, axis=1) - began))


def follow_length(step_s: float, took_s: float) -> float:
    """How long a step takes, as of late, after one that took so long. One that is far longer than the others, as a
    clock was set or all stood still, says little of them.
    """
    before_s = step_s or took_s
    return before_s + _FOLLOWS * (min(took_s, _AT_MOST * before_s) - before_s)


def with_inside(pieces: StepPieces, step: RoleStep, tells: Inside) -> StepPieces:
    """The pieces, and one more for the inside of each stage of which collectives tell."""
    stages = np.flatnonzero(np.isfinite(tells.own_s).sum(axis=0) > 1)
    own = np.maximum(0.0, tells.own_s[:, stages])
    came = step.entered_s[:, stages]
    return StepPieces(
        (*pieces.kinds, *(Piece(INSIDE, step.stages[stage]) for stage in stages.tolist())),
        np.concatenate([pieces.stages, stages]), np.concatenate([pieces.came_s, came], axis=1),
        np.concatenate([pieces.done_s, came + own], axis=1), np.concatenate([pieces.took_s, own], axis=1),
        (*pieces.owners, *(step.stages[stage] for stage in stages.tolist())),
        np.concatenate([pieces.is_first, np.zeros(len(stages), bool)]),
        np.concatenate([pieces.error_s, tells.error_s[:, stages]], axis=1),
    )  # fmt: skip
