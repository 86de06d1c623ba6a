"""The shapes of jobs that are simulated, by name."""

from __future__ import annotations

from typing import Mapping

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
from .job import SimulatedJob
from .pipelines import BlindPipeline, Grid, InterleavedPipeline, Pipeline
from .queues import OneStepOff, Queue, UndeclaredQueue
from .roles import Controlled, Dispatched, RewardRole
from .shape import ALWAYS
from .simulation import Simulation

# What of a `JobShape` belongs to the shape, besides its class.
SHAPES: Mapping[str, tuple[type[Simulation], Mapping[str, object]]] = {
    "barriers": (Barriers, {"has_rings": False}),
    "dispatched": (Dispatched, {"has_rings": False}),
    "ddp_rings": (Collectives, {}),
    "ddp_always": (Collectives, {"rings": ALWAYS}),
    "ddp_blind": (Collectives, {"has_rings": False}),
    "ddp_groups": (Collectives, {"group_ranks": 8, "rings": ALWAYS}),
    "pipeline": (Pipeline, {"rings": ALWAYS}),
    "pipeline_blind": (BlindPipeline, {"has_rings": False}),
    "pipeline_interleaved": (InterleavedPipeline, {"rings": ALWAYS}),
    "grid": (Grid, {"rings": ALWAYS, "ranks": 32}),
    "controller": (Controlled, {"has_rings": False}),
    "reward_role": (RewardRole, {"has_rings": False}),
    "queue": (Queue, {}),
    "queue_undeclared": (UndeclaredQueue, {}),
    "one_step_off": (OneStepOff, {}),
    "hosts": (Hosts, {"ranks": 64}),
    "stage_of_one": (StageOfOne, {"has_rings": False}),
    "nested": (Nested, {"has_rings": False}),
    "rounds": (Rounds, {"has_rings": False, "tail": 0.8}),
    "restarts": (Restarts, {"has_rings": False}),
    "longer": (Longer, {"has_rings": False}),
    "longer_untold": (LongerUntold, {"has_rings": False}),
}
__all__ = ["SHAPES", "SimulatedJob"]
