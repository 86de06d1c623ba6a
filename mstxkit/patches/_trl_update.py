"""What accelerate does for a trainer of trl: a part of `actor_update` where that trainer is of RL, and no stage else.

Accelerator and optimizer know no trainer, and serve SFT, DPO and every other loop alike. So the trainers of RL say when
they train. Source: trl 0.20.0 to 1.16.0 and accelerate 1.15.0, as in `trl.py`.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, Callable

from ..marking import ranges
from ..patching import trainer_settings

_training = SimpleNamespace(count=0)  # so many trainers of RL train in this process at this moment


def wrap_train(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`train` of a trainer of RL."""
    trainer_settings.learn_settings(next(iter(args), None), "args")
    _training.count += 1
    try:
        return upstream(*args, **kwargs)
    finally:
        _training.count -= 1


def log_probabilities(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`OnlineDPOTrainer._forward`: with gradients the policy's, for the loss; without, the reference's."""
    from torch import is_grad_enabled

    key = "actor_update" if is_grad_enabled() else "reference_compute_log_prob"
    with ranges.mstx_range("log_probabilities", stage=key):
        return upstream(*args, **kwargs)


def _part_of_an_update(name: str, upstream: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if not _training.count:
        return upstream(*args, **kwargs)
    with ranges.mstx_range(name, stage="actor_update"):
        return upstream(*args, **kwargs)


# `Accelerator.backward`, `Accelerator.clip_grad_norm_`, `AcceleratedOptimizer.step`.
backward = partial(_part_of_an_update, "backward")
clip_grad_norm = partial(_part_of_an_update, "clip_grad_norm")
optimizer_step = partial(_part_of_an_update, "optimizer_step")
