"""How the ranks of a job share the work, as msprof-analyze wants to know it: `distributed_args`.

Host-side numbers of what the process has imported; nothing is imported, and no collective or device call is made.

Source: msprof-analyze 26.2 (`cluster_analyse/cluster_utils/parallel_algorithm.py`, which refuses a world size that is
not the product of the sizes), MindSpeed-LLM master c77308a1 (`training.py`, the keys it writes), Megatron-LM core 0.12
(`megatron/core/parallel_state.py`, `megatron/training/global_vars.py`).
"""

from __future__ import annotations

import sys
from typing import Any

_SIZES = {
    "tensor_model_parallel_size": "get_tensor_model_parallel_world_size",
    "pipeline_model_parallel_size": "get_pipeline_model_parallel_world_size",
    "data_parallel_size": "get_data_parallel_world_size",
    "context_parallel_size": "get_context_parallel_world_size",
    "expert_model_parallel_size": "get_expert_model_parallel_world_size",
}


def distributed_args(rank: int, world_size: int) -> dict[str, Any]:
    """Rank and world size, and Megatron's sizes where it has set them up.

    Raises:
        Exception: whatever Megatron raises.
    """
    return {**_megatron(), "rank": rank, "world_size": world_size}


def is_complete(args: dict[str, Any]) -> bool:
    """Are the sizes known? Without them msprof-analyze would take every rank for a model of its own."""
    return "tensor_model_parallel_size" in args


def _megatron() -> dict[str, Any]:
    state: Any = sys.modules.get("megatron.core.parallel_state")
    is_set_up = getattr(state, "model_parallel_is_initialized", None)
    if is_set_up is None or not is_set_up():
        return {}
    sizes = {key: int(getattr(state, name)()) for key, name in _SIZES.items() if hasattr(state, name)}
    arguments = getattr(sys.modules.get("megatron.training.global_vars"), "_GLOBAL_ARGS", None)
    sequence = getattr(arguments, "sequence_parallel", None)
    return {**sizes, **({"sequence_parallel": sequence} if isinstance(sequence, bool) else {})}
