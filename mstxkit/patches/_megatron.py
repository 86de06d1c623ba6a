"""Megatron's schedules, which run the micro-batches of every framework that trains with it.

Source: Megatron-LM core_r0.8.0 and core_v0.12.1, core/pipeline_parallel/schedules.py. `forward_step` (0.12.1:175) is
called once for each micro-batch, by the schedule that `get_forward_backward_func` chooses; both are globals that are
looked up at each call. Without a pipeline (0.12.1:434) a micro-batch is its forward pass and the backward pass after
it, and so it goes from one `forward_step` to the next. On a pipeline (0.12.1:672, 1719) that holds only for a forward
pass alone: in training one forward pass, one backward pass (1F1B) lets the backward pass of a micro-batch come after
the forward passes of later ones, and no call or stretch of time is one micro-batch.
"""

from __future__ import annotations

from ..patching.declare import Target, each
from ..pieces.kinds import PieceSampling

_MICRO = ("micro_batch",)
_WHY = (
    "Megatron's pipeline runs the forward pass of one micro-batch between the passes of others (1F1B), so that no "
    "stretch of time is one micro-batch; sample by mini_batch"
)


def sample_interleaved(condition: str = "", until_next: bool = False) -> PieceSampling:
    """Of calls that run all micro-batches: on a pipeline they mix them, unless they are forward passes alone.
    `condition`: when there is a pipeline; empty for functions that always run one. `until_next`: see `PieceSampling`.
    """
    is_training = f"not forward_only and {condition}" if condition else "not forward_only"
    mixes = {"micro_batch": _WHY}
    return PieceSampling(until_next=until_next, ends_after=_MICRO, mixes=mixes, mixes_if=is_training)


SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_ATTRIBUTES = {"micro_batches": "num_microbatches", "forward_only": "forward_only"}
CORE = (
    Target(
        f"{SCHEDULES}:forward_backward_no_pipelining", attributes=_ATTRIBUTES, sampling=PieceSampling(ends_after=_MICRO)
    ),
    *each(
        SCHEDULES, "forward_backward_pipelining_with_interleaving", "forward_backward_pipelining_without_interleaving",
        attributes=_ATTRIBUTES, sampling=sample_interleaved(),
    ),
    Target(f"{SCHEDULES}:forward_step", boundary="micro_batch", max_per_s=200, sampling=PieceSampling(until_next=True)),
)  # fmt: skip
