"""What tools read beside a recording and its profiler did not know: rank, parallel sizes, role, whose session it was.

In the form that torch_npu itself writes: `profiler_metadata.json`, one object with a key for each thing, becomes the
table META_DATA when the data are parsed; `profiler_info_<rank>.json` tells tools the rank.

Source: torch_npu 2.13.0 `profiler/profiler_interface.py` (`_dump_profiler_info`, `_dump_metadata`), `profiler.py`
(`add_metadata_json`); MindStudio's RL view reads `role`. msprof-analyze 26.2 reads `distributed_args`, and refuses a
world size that is not the product of the sizes (`cluster_analyse/cluster_utils/parallel_algorithm.py`); their keys are
those of MindSpeed-LLM c77308a1 `training.py`, their sources Megatron-LM core 0.12 `megatron/core/parallel_state.py` and
`megatron/training/global_vars.py`. Nothing is imported for them, and no collective or device call is made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..host import parallel
from ..store import documents
from ..store.session_file import Order

METADATA, INFO = "profiler_metadata.json", "profiler_info"
_LIMIT_BYTES = 16 << 20
_SIZES = {f"{words}_size": f"get_{words}_world_size" for words in parallel.OF_MEGATRON.values()}


def complete_metadata(output: Path, order: Order, distributed_args: dict[str, Any]) -> None:
    """Add what is not there yet to what the profiler wrote in `output`. Raises OSError: it cannot be written."""
    of_session = {"run": order.run_id, "request": order.request, "stage": order.stage, "step": order.step}
    metadata: dict[str, Any] = {"mstxkit": {**of_session, "rank": order.rank, "world_size": order.world_size}}
    # Without the sizes msprof-analyze would take every rank for a model of its own.
    if "tensor_model_parallel_size" in distributed_args:
        metadata["distributed_args"] = distributed_args
    if order.role:
        metadata["role"] = order.role
    file = output / METADATA
    written = documents.read_json(file, _LIMIT_BYTES)
    if written is not None or not file.exists():  # whatever else it is, it is not ours to replace
        _write_json(file, {**metadata, **(written or {})})
    # Where the profiler did not know its rank, neither would anybody who reads its data.
    unnamed = output / f"{INFO}.json"
    info = documents.read_json(unnamed, _LIMIT_BYTES) if order.world_size > 1 else None
    if info is not None and not any(output.glob(f"{INFO}_*.json")):
        _write_json(output / f"{INFO}_{order.rank}.json", {**info, "rank_id": order.rank})
        unnamed.unlink()


def _write_json(file: Path, content: dict[str, Any]) -> None:
    documents.replace_file(file, json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def distributed_args(rank: int, world_size: int) -> dict[str, Any]:
    """Rank and world size, and Megatron's sizes where it has set them up. Raises whatever Megatron raises."""
    state, sizes = parallel.state_of_megatron(), dict[str, Any]()
    if state is not None:
        sizes = {key: int(getattr(state, name)()) for key, name in _SIZES.items() if hasattr(state, name)}
        arguments = getattr(sys.modules.get("megatron.training.global_vars"), "_GLOBAL_ARGS", None)
        sequence = getattr(arguments, "sequence_parallel", None)
        sizes.update({"sequence_parallel": sequence} if isinstance(sequence, bool) else {})
    return {**sizes, "rank": rank, "world_size": world_size}
