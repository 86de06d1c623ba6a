"""How a simulated job is made: its ranks and stages, and in what it differs from any simple model of it."""

from __future__ import annotations

from dataclasses import dataclass

BY_SCHEDULE, ALWAYS = "by_schedule", "always"


@dataclass(frozen=True)
class JobShape:
    """A simulated job.

    Args:
        ranks: That train, and in a job that is not async also generate.
        ranks_per_host: Ranks of a host, in order.
        responses: Of a rank and step.
        is_async: Rollouts and trainer are two roles that wait for each other no more than a buffer allows.
        rollouts: Ranks of an async job that generate.
        is_dispatched: A controller begins each stage when all ranks have ended the one before, as in verl.
        partial_tokens: A response goes on in the next step after so many tokens; 0: no.
        reshards: Weights go to the rollout engines in each step.
        leaves_at: In this step the last rank of those that generate leaves; it comes back 20 steps later. -1: never.
        noise_ratio: Standard deviation of a stage's time, as a share.
        mismatch: 0 to 1: how far times depend on what no summary tells: the size of the running batch, the host, a
            cost that is not proportional, noise with heavy tails.
        step_s: About how long a step takes.
        has_rings: Are flight recorders on?
        knows_left: Do they tell when a collective was over?
        ring_steps: Steps that a ring holds.
        error_s: Bound of each rank's clock error.
        tail: Standard deviation of the logarithm of a response's length.
        rings: BY_SCHEDULE or ALWAYS: when they are handed over.
        group_ranks: Ranks of a group whose collectives are its own; 0: all are one group.
    """

    ranks: int = 16
    ranks_per_host: int = 8
    responses: int = 16
    is_async: bool = False
    rollouts: int = 8
    is_dispatched: bool = False
    partial_tokens: int = 0
    reshards: bool = True
    leaves_at: int = -1
    noise_ratio: float = 0.04
    mismatch: float = 0.0
    step_s: float = 20.0
    has_rings: bool = True
    knows_left: bool = True
    ring_steps: int = 5
    error_s: float = 5e-5
    group_ranks: int = 0
    rings: str = BY_SCHEDULE
    tail: float = 0.8
