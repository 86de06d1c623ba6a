"""The stages of a critic in verl's TrainingWorker: a call of the worker whole, on- and offloading inside.

Source: verl 0.7.0 to 0.9.1, workers/engine_workers.py: `infer_batch` and `train_mini_batch` serve actor, reference and
critic, and load and offload the model around the engine's work. Who calls them for an actor has a stage of its own
(`ActorRolloutRefWorker`); a critic's are called by the driver. Its engine is the one with a value head, in all of fsdp,
megatron, veomni and what derives from them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

from .. import faults
from ..host import identity
from ..marking import ranges
from ..patching import entry

ROLE, _VALUE_HEAD = "critic", "WithValueHead"


def _wrap_call(name: str, stage: str, upstream: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if not _is_critic(next(iter(args), None)):
        return upstream(*args, **kwargs)
    entry.stage_begins()
    if not identity.has_role():
        identity.identify(role=ROLE)
    with ranges.mstx_range(name, stage=stage, role=ROLE):
        return upstream(*args, **kwargs)


# `infer_batch` and `train_mini_batch`: a critic's is its stage.
inferred = partial(_wrap_call, "compute_values", "critic_compute_values")
trained = partial(_wrap_call, "critic_update", "critic_update")


def _is_critic(worker: Any) -> bool:
    try:
        engine = vars(worker).get("engine")
        return any(base.__name__.endswith(_VALUE_HEAD) for base in type(engine).__mro__)
    except Exception as exc:
        faults.note_fault("verl.critic", exc)
        return False
