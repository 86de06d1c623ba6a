"""The shapes of jobs that are in the matrix, by name. A shape is a short description by what processes may do."""

from __future__ import annotations

from typing import Mapping

from mstxkit.testing.simulator.shape import ALWAYS

from .barriers import (
    Barriers,
    Collectives,
    Hosts,
    Longer,
    LongerUntold,
    Nested,
    Restarts,
    Rounds,
    StageOfOne,
)  # fmt: skip
from .pipelines import BlindPipeline, Grid, InterleavedPipeline, Pipeline
from .roles import Called, Controlled, Dispatched, OneStepOff, Queue, RewardRole, UndeclaredQueue
from .shape import Shape

_BLIND: Mapping[str, object] = {"has_rings": False}
# With what of a `JobShape` belongs to each.
SHAPES: Mapping[str, tuple[type[Shape], Mapping[str, object]]] = {
    "barriers": (Barriers, _BLIND), "dispatched": (Dispatched, _BLIND), "ddp_rings": (Collectives, {}),
    "ddp_always": (Collectives, {"rings": ALWAYS}), "ddp_blind": (Collectives, _BLIND),
    "ddp_groups": (Collectives, {"group_ranks": 8, "rings": ALWAYS}), "pipeline": (Pipeline, {"rings": ALWAYS}),
    "pipeline_blind": (BlindPipeline, _BLIND), "pipeline_interleaved": (InterleavedPipeline, {"rings": ALWAYS}),
    "grid": (Grid, {"rings": ALWAYS, "ranks": 32}), "controller": (Controlled, _BLIND),
    "reward_role": (RewardRole, _BLIND), "called": (Called, _BLIND), "queue": (Queue, {}),
    "queue_undeclared": (UndeclaredQueue, {}),
    "one_step_off": (OneStepOff, {}), "hosts": (Hosts, {"ranks": 64}), "stage_of_one": (StageOfOne, _BLIND),
    "nested": (Nested, _BLIND), "rounds": (Rounds, {"has_rings": False, "tail": 0.8}), "restarts": (Restarts, _BLIND),
    "longer": (Longer, _BLIND), "longer_untold": (LongerUntold, _BLIND),
}  # fmt: skip
