"""When nothing is judged: at the beginning, after members came or went, and around stages that disturb a step."""

from __future__ import annotations

from dataclasses import dataclass

from ..triggers._declare import setting

# A step with one of these is not judged, nor is the next: caches are cold, weights lie elsewhere, engines wake up.
DISTURBING = frozenset({"save_checkpoint", "evaluate"})


@dataclass(frozen=True)
class Gates:
    """What is left out of the judging."""

    warm_up: int = setting(10, 0, 100_000, "Steps of a role before any verdict.")
    first: int = setting(2, 0, 1000, "First steps of each stage that count for nothing: compilation, allocation.")
    after_resize: int = setting(5, 0, 1000, "Steps without a verdict after members came or went.")
    after_disturbance: int = setting(1, 0, 1000, "Steps left out after a checkpoint or an evaluation.")
    least_step_s: float = setting(0.0, 0.0, 1e6, "Steps shorter than this are not judged.")
