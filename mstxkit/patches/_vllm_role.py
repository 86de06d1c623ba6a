"""What a process with a worker of vLLM in it is: a rollout, if vLLM has begun it; else what it trains as.

Source: vLLM 0.11 to 0.23 begins engines and workers by multiprocessing, and over several hosts by Ray, as actors of the
class `RayWorkerWrapper`. trl in colocate mode, and verl 0.6.1 and 0.7.0, load the worker in the trainer's own process,
before it trains.
"""

from __future__ import annotations

from multiprocessing import parent_process
from typing import Any, Callable

from ..host import identity, parts


def loaded(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`NPUWorker.load_model`."""
    is_vllms_own = parent_process() is not None or parts.actor_class() == "RayWorkerWrapper"
    if is_vllms_own and not identity.has_role():
        identity.identify(role="rollout")
    return upstream(*args, **kwargs)
