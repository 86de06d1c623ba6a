"""Where this rank stands among the job's parallel groups: its index in each dimension, and how many there are.

Read from what the process has set up already: nothing is imported, no collective and no device is called, nothing
raises. Cost: tens of microseconds; for a background thread, now and then.

Source: Megatron-LM core 0.12 `megatron/core/parallel_state.py`, which verl's Megatron workers, MindSpeed-RL and
MindSpeed-LLM use too; torch 2.13 `distributed/device_mesh.py`, which describes a dimension's group as `mesh_<name>`,
and `distributed_c10d.py` (`_world.pg_group_ranks`); verl 0.9.1 `workers/engine/fsdp/utils.py` and `transformer_impl.py`
(meshes `fsdp`, `ddp` × `fsdp`, `dp` × `sp`) and `workers/engine_workers.py` (`dp` × `infer_tp` × `infer_pp`, of the
rollout); torchtitan's `dp_replicate` × `dp_shard`.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Mapping, NamedTuple

from .. import faults

# In the middle of the names of Megatron's functions and settings.
OF_MEGATRON = {
    "tp": "tensor_model_parallel", "pp": "pipeline_model_parallel", "dp": "data_parallel", "cp": "context_parallel",
    "ep": "expert_model_parallel",
}  # fmt: skip
_MESH = "mesh_"
_PARTS = ("pp", "ep")
# Dimensions that split one copy of a model: with the data-parallel one they make up all ranks.
MODEL_DIMENSIONS = ("tp", "pp", "cp", "sp")
# What frameworks call the data-parallel dimension: one mesh, or two, of which the first is the outer one.
_OF_DATA = (("dp",), ("fsdp",), ("ddp", "fsdp"), ("dp_replicate", "dp_shard"), ("dp_shard",), ("ddp",))
_DATA_NAMES = frozenset(name for names in _OF_DATA for name in names)
# verl's mesh of a rollout in the same process: `dp` × `infer_tp` × `infer_pp`. Its `dp` is none of the training's.
_OF_ROLLOUT = "infer_"
_UNNAMED = "its process groups do not say which is which, as Megatron's and those of a DeviceMesh do"


class Place(NamedTuple):
    """Where a rank stands."""

    # Dimension (`tp`, `pp`, `dp`, `cp`, `sp`, `ep`) to its index there, from 0, and how many there are.
    indices: Mapping[str, tuple[int, int]]
    why_not: str = ""  # why dimensions are not known; empty where they are


class _Membership(NamedTuple):
    """A process group of torch's in which this rank is: what it is called, this rank's place in it, its size."""

    name: str
    at: int
    size: int


def find_place() -> Place:
    """Where this rank stands now. Never raises."""
    try:
        indices = _of_megatron()
        return Place(indices) if indices else _of_torch()
    except Exception as exc:
        faults.note_fault("parallel.place", exc)
        return Place({}, f"its parallel groups cannot be read: {type(exc).__name__}")


def part_of_model() -> str:
    """Which part of the model this rank computes: "pp1", "pp0 ep3"; "" where all have the same, or nobody says. What
    only splits the same work evenly (`tp`, `cp`, `sp`) is no part. Never raises.
    """
    indices = find_place().indices
    return " ".join(f"{name}{indices[name][0]}" for name in _PARTS if indices.get(name, (0, 1))[1] > 1)


def state_of_megatron() -> Any:
    """Megatron's own module of its groups; None until these are set up, and once torch's, which they are, are gone."""
    state: Any = sys.modules.get("megatron.core.parallel_state")
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    is_set_up = getattr(state, "model_parallel_is_initialized", bool)()
    return state if is_set_up and getattr(c10d, "is_initialized", bool)() else None


def _of_megatron() -> dict[str, tuple[int, int]]:
    state, places = state_of_megatron(), {}
    for dimension, words in OF_MEGATRON.items():
        index, size = (getattr(state, f"get_{words}_{what}", None) for what in ("rank", "world_size"))
        if index is not None and size is not None:
            places[dimension] = int(index()), int(size())
    return places


def _of_torch() -> Place:
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if not getattr(c10d, "is_initialized", bool)():
        return Place({}, "neither Megatron nor a process group of torch's is set up there")
    rank, world_size = int(c10d.get_rank()), int(c10d.get_world_size())
    groups = _list_groups(c10d, rank, world_size)
    named = {group.name: group for group in reversed(groups)}  # of several of one name the first one made
    indices = {name: named[name][1:] for name in (*MODEL_DIMENSIONS, "ep") if name in named}
    model_ranks = math.prod(named[name].size for name in MODEL_DIMENSIONS if name in named)
    of_data = _data_parallel(groups, world_size, model_ranks)
    # Where nothing splits a model each rank has a whole one. Where data are parallel by name, something does.
    may_split = (group.size > 1 and not group.name.startswith(_OF_ROLLOUT) for group in groups)
    if of_data is None and not indices and not any(may_split) and _DATA_NAMES.isdisjoint(named):
        of_data = rank, world_size
    return Place(indices, _UNNAMED) if of_data is None else Place({**indices, "dp": of_data})


def _list_groups(c10d: Any, rank: int, world_size: int) -> list[_Membership]:
    """Those in which this rank is, but those of all ranks, in the order in which they were made."""
    places = []
    for group, ranks in list(c10d._world.pg_group_ranks.items()):
        name = str(getattr(group, "group_desc", ""))
        name = name[len(_MESH) :] if name.startswith(_MESH) else ""
        if rank in ranks and len(ranks) < world_size:
            places.append(_Membership(name, int(ranks[rank]), len(ranks)))
    names = {group.name for group in places}
    if "sp" in names or not any(name.startswith(_OF_ROLLOUT) for name in names):
        return places
    return [group for group in places if group.name != "dp"]


def _data_parallel(groups: list[_Membership], world_size: int, model_ranks: int) -> tuple[int, int] | None:
    """The data-parallel place: of all that is called so, what makes up the world with the ranks of one model."""
    for names in _OF_DATA:
        for outer in (group for group in groups if group.name == names[0]):
            inner = [group for group in groups if group.name == names[-1]][:1] if len(names) > 1 else []
            size = math.prod(group.size for group in (outer, *inner))
            if len(inner) == len(names) - 1 and size * model_ranks == world_size:
                return (outer.at * inner[0].size + inner[0].at if inner else outer.at), size
    return None
