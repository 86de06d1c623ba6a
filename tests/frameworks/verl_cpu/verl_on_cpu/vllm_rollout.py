"""verl's own vLLM rollout where there is only a CPU: what it asks of Ray, of vLLM's weights and of chance."""

from __future__ import annotations

import functools
from typing import Any

import torch

from . import after


def install() -> None:
    """Once in each process, vLLM's too, which load verl for what their workers are extended by."""
    rollout = "verl.workers.rollout.vllm_rollout"
    after.importing(f"{rollout}.vllm_rollout", _give_a_device)
    after.importing(f"{rollout}.vllm_async_server", _give_seeds)
    after.importing("vllm.model_executor.layers.utils", _keep_weights)


def _give_a_device(_: Any) -> None:
    """A server is started beside the devices of its workers, as Ray numbers them."""
    from ray.runtime_context import RuntimeContext

    ids = RuntimeContext.get_accelerator_ids
    RuntimeContext.get_accelerator_ids = lambda self: {**ids(self), "GPU": ids(self).get("GPU") or ["0"]}


def _give_seeds(server: Any) -> None:
    """Else the order of the requests decides what is sampled; `full_determinism` needs Triton's kernels."""
    server.SamplingParams = functools.partial(server.SamplingParams, seed=1)


def _keep_weights(layers: Any) -> None:
    """vLLM packs a layer's weights for its kernels and drops them: verl loads new ones into what it has dropped."""

    def keep(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    layers.dispatch_cpu_unquantized_gemm = keep
