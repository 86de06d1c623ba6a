"""Parts of an update of `transformers.Trainer` that are ranges where no patch of a subclass has them as its own.

A trainer of trl overrides methods of `Trainer` and calls them by `super()`, or inherits them: its own targets say more.
So `Trainer`'s methods are no ranges; each asks here whether one around it is, and else calls the function here of its
name, which is the target. Source: as in `transformers.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

from ..marking import signatures


def _make_part() -> Callable[..., Any]:
    def part(upstream: Callable[..., Any], trainer: Any, args: Any, kwargs: Any) -> Any:
        return upstream(trainer, *args, **kwargs)

    return part


run_whole, fetch_batches, run_micro_batch, run_evaluation, save_state = (_make_part() for _ in range(5))


def _unless_told(
    method: str, part: str, upstream: Callable[..., Any], trainer: Any, /, *args: Any, **kwargs: Any
) -> Any:
    held = (vars(cls).get(method) for cls in type(trainer).__mro__)
    if any(signatures.held_by(function) is not None for function in held):
        return upstream(trainer, *args, **kwargs)
    return globals()[part](upstream, trainer, args, kwargs)


# By the name that they have as `value` of a target.
train = partial(_unless_told, "train", "run_whole")
get_batch_samples = partial(_unless_told, "get_batch_samples", "fetch_batches")
training_step = partial(_unless_told, "training_step", "run_micro_batch")
evaluate = partial(_unless_told, "evaluate", "run_evaluation")
save_checkpoint = partial(_unless_told, "_save_checkpoint", "save_state")
