"""What tools read beside a recording and its profiler did not know: rank, parallel sizes, role, whose session it was.

In the form that torch_npu itself writes: `profiler_metadata.json`, one object with a key for each thing, becomes the
table META_DATA when the data are parsed; `profiler_info_<rank>.json` tells tools the rank.

Source: torch_npu 2.13.0 `profiler/profiler_interface.py` (`_dump_profiler_info`, `_dump_metadata`), `profiler.py`
(`add_metadata_json`); msprof-analyze 26.2 reads `distributed_args`, MindStudio's RL view reads `role`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .. import places
from . import parallel
from .declare import Order

METADATA, INFO = "profiler_metadata.json", "profiler_info"
_LIMIT_BYTES = 16 << 20


def complete(output: Path, order: Order, distributed_args: dict[str, Any]) -> None:
    """Add what is not there yet to what the profiler wrote in `output`.

    Raises:
        OSError: it cannot be written.
    """
    _add(output / METADATA, _known(order, distributed_args))
    if order.world_size > 1:
        _name_rank(output, order.rank)


def _known(order: Order, distributed_args: dict[str, Any]) -> dict[str, Any]:
    of_session = {"run": order.run_id, "request": order.request, "stage": order.stage, "step": order.step}
    known: dict[str, Any] = {"mstxkit": {**of_session, "rank": order.rank, "world_size": order.world_size}}
    if parallel.is_complete(distributed_args):
        known["distributed_args"] = distributed_args
    return {**known, **({"role": order.role} if order.role else {})}


def _add(file: Path, known: dict[str, Any]) -> None:
    found = places.read_json(file, _LIMIT_BYTES)
    if found is None and file.exists():
        return  # whatever it is, it is not ours to replace
    _write(file, {**known, **(found or {})})


def _name_rank(output: Path, rank: int) -> None:
    """Where the profiler did not know its rank, neither would anybody who reads its data."""
    unnamed = output / f"{INFO}.json"
    found = places.read_json(unnamed, _LIMIT_BYTES)
    if found is None or any(output.glob(f"{INFO}_*.json")):
        return
    _write(output / f"{INFO}_{rank}.json", {**found, "rank_id": rank})
    unnamed.unlink()


def _write(file: Path, content: dict[str, Any]) -> None:
    places.replace_file(file, json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace"))
