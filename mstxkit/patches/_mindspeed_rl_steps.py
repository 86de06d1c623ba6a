"""Which iteration MindSpeed-RL's trainer is in: a local variable of `fit`, told by three of the calls that it makes.

Source: MindSpeed-RL 2.0.0 to 2.3.0 and master 05a90d7, trainer/{grpo,ppo,dapo}_trainer_hybrid.py, `fit`, alike in all:
it asks `get_iteration` before its loop, once; at the end of an iteration it adds one, logs that number, and saves with
it (master grpo:188, 280-292; ppo:173, 250-261; dapo:244, 339-353). So what is logged and saved with 4 is iteration 3.
"""

from __future__ import annotations

from typing import Any, Callable

from ..patching import entry


def learn_resumed(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`RayActorGroup.get_iteration`: the first iteration of this start."""
    iteration = upstream(*args, **kwargs)
    if type(iteration) is int and iteration >= 0:
        entry.step_begins(iteration)
    return iteration


def read_logged(logger: Any, message: Any, iteration: Any = None, steps: Any = None) -> int | None:
    """`Loggers.info`: the iteration that has ended; None for a message about nothing of the kind."""
    return iteration - 1 if type(iteration) is int else None


def read_saved(owner: Any, iteration: Any) -> int | None:
    """`save_checkpoint` of a trainer or a group of workers: the iteration whose weights are saved."""
    return read_logged(owner, None, iteration)
