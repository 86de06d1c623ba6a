"""The checkpoint engine `on_cpu`: weights go from the first rank of a training to rollouts apart from it, over gloo.

verl's own ones need an accelerator each (nccl, hccl, nixl, …). Loaded when needed.
"""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from verl.checkpoint_engine import base

_WITHIN = timedelta(seconds=300)


@base.CheckpointEngineRegistry.register("on_cpu")
class Engine(base.CheckpointEngine):  # type: ignore[misc]
    """One process's end of it; the group is made anew for each update."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._is_master = is_master
        self._rank, self._store, self._group = -1, None, None

    def prepare(self) -> int | None:
        """Where the others find the first rank."""
        if not self._is_master:
            return None
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=_WITHIN)
        return self._store.port

    @classmethod
    def build_topology(cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]) -> Any:
        """Of the training the first rank alone sends; the others are -1."""
        world = 1 + rollout_world_size

        def of(ranks: list[int]) -> dict[str, list[int]]:
            return {"rank": ranks, "world_size": [world] * len(ranks), "port": [metadata[0]] * len(ranks)}

        return of([0] + [-1] * (actor_wg_world_size - 1)), of([*range(1, world)])

    def init_process_group(self, rank: int, world_size: int, port: int) -> None:
        """Those who send and receive meet."""
        self._rank = rank
        if rank < 0:
            return
        if self._store is None:
            self._store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=_WITHIN)
        self._group = dist.ProcessGroupGloo(self._store, rank, world_size, _WITHIN)

    def finalize(self) -> None:
        """Until the next update."""
        self._store = self._group = None

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:
        """Every rank gathers, the first one sends."""
        state = {name: weight.detach().float().cpu().contiguous() for name, weight in weights}
        if self._rank == 0:
            self._store.set("held", pickle.dumps({name: weight.shape for name, weight in state.items()}))
            for weight in state.values():
                self._broadcast(weight)

    async def receive_weights(self, global_steps: int | None = None) -> Any:
        """Each with its name."""
        for name, shape in pickle.loads(self._store.get("held")).items():
            weight = torch.empty(shape)
            self._broadcast(weight)
            yield name, weight

    def _broadcast(self, weight: torch.Tensor) -> None:
        self._group.broadcast([weight], dist.BroadcastOptions()).wait()
