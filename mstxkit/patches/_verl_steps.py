"""Whose step a validation of verl's is: the number that comes with it may be another one.

Source: verl 0.8.0 to 0.9.1, experimental/fully_async_policy/fully_async_rollouter.py: `FullyAsyncRollouter` counts in
its `global_steps` the samples that it has handed out (0.9.1:886), and validates as its base does, which sends that
number along (ppo/ray_trainer.py:633). Its training samples come without one. All other validations come after the
training of their step, in the processes that have generated for it; or before all training.
"""

from __future__ import annotations

from typing import Any

from ..engine.plain_paths import plain_attribute

_COUNTS_SAMPLES = "FullyAsyncRollouter"


def of_batch(self: Any, batch: Any) -> int | None:
    """`AgentLoopWorker.generate_sequences`: the driver's step of a batch to train with."""
    return _trained(plain_attribute(batch, "meta_info"), "global_steps")


def of_trajectory(self: Any, sampling_params: Any, trajectory: Any, **kwargs: Any) -> int | None:
    """`AgentLoopWorker._run_agent_loop`: the same of one of its samples."""
    return _trained(trajectory, "step")


def of_validation(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`RayPPOTrainer._validate`: the trainer's step; None where its number is one of samples."""
    counts_samples = any(base.__name__ == _COUNTS_SAMPLES for base in type(self).__mro__)
    return None if counts_samples else plain_attribute(self, "global_steps")


def _trained(told: Any, name: str) -> int | None:
    return told.get(name) if type(told) is dict and told.get("validate") is not True else None
