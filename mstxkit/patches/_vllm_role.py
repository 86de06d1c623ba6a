"""What a process is that holds a worker of vLLM: a rollout, if vLLM has begun it; else what its training says it is.

Source: vLLM 0.11 to 0.23, v1/executor/multiproc_executor.py and v1/engine/utils.py: workers and engines in processes of
their own are children of multiprocessing. In the training's process the engine is loaded before anything trains: trl
0.20.0 to 1.16.0 with `vllm_mode="colocate"` (LLM of "external_launcher", in `__init__` of the trainer), and verl 0.6.1
and 0.7.0 (`WorkerWrapperBase` in vllm_rollout).
"""

from __future__ import annotations

from typing import Any, Callable

from ..host import identity

ROLE = "rollout"


def loaded(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`NPUWorker.load_model`."""
    from multiprocessing import parent_process

    if parent_process() is not None and not identity.has_role():
        identity.identify(role=ROLE)
    return upstream(*args, **kwargs)
