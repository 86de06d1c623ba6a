"""Which step verl's agent loops, validations and weights are of: what comes along may be a number of samples.

Source: verl 0.8.0:842 to 0.9.1:886, experimental/fully_async_policy/fully_async_rollouter.py: `FullyAsyncRollouter`
counts in `global_steps` the samples that it has handed out, and sends that along as it validates; its training samples
come without. All other validations come after the training of their step, or before any.
0.8.0:404 to 0.9.1:397, experimental/one_step_off_policy/ray_trainer.py: weights go out before the training of their
step, in all other trainers after it. So they go out twice before the first one, and nothing is computed between.
"""

from __future__ import annotations

from typing import Any

from ..engine.plain_paths import plain_attribute
from ..patching import entry

_weights_begin = False  # a step of this process, an actor's, and do not end it


def of_batch(self: Any, batch: Any) -> Any:
    """`AgentLoopWorker.generate_sequences`: the driver's step of a batch to train with."""
    return _to_train(plain_attribute(batch, "meta_info"), "global_steps")


def of_trajectory(self: Any, sampling_params: Any, trajectory: Any, **kwargs: Any) -> Any:
    """`AgentLoopWorker._run_agent_loop`: the same of one of its samples."""
    return _to_train(trajectory, "step")


def of_validation(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`_validate` of a trainer: its step."""
    counts_samples = any(base.__name__ == "FullyAsyncRollouter" for base in type(self).__mro__)
    return None if counts_samples else plain_attribute(self, "global_steps")


def of_weights(self: Any, global_steps: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`ActorRolloutRefWorker.update_weights`: its step, which ends with it; or begins in one-step-off, and is set."""
    global _weights_begin
    if type(global_steps) is int:
        _weights_begin = _weights_begin or global_steps == entry.step_to_come()
        if _weights_begin:
            return entry.step_begins(global_steps)
    return global_steps


def _to_train(sent: Any, name: str) -> Any:
    return sent.get(name) if type(sent) is dict and sent.get("validate") is not True else None
