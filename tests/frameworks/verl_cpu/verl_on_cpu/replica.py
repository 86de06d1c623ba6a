"""The rollout engine `on_cpu`: a server in a Ray actor of its own, and the workers' way to it. Loaded when needed."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
from sums_server import Server
from verl.workers.rollout import base
from verl.workers.rollout import replica as replicas


def _actor_name(number: int) -> str:
    return f"rollout_server_{number}"


class Replica(replicas.RolloutReplica):  # type: ignore[misc]
    """One server."""

    async def launch_servers(self) -> None:
        """As verl asks for it."""
        options = {"name": _actor_name(self.replica_rank), "num_cpus": 0}
        path, limit = str(self.model_config.path), int(self.config.response_length)
        self._server_handle = ray.remote(Server).options(**options).remote(path, limit)
        self.servers = [self._server_handle]
        self._server_address = f"127.0.0.1:{8000 + self.replica_rank}"
        await self._server_handle.get_server_address.remote()

    async def wake_up(self) -> None:
        """Generating comes next."""
        await self._switched("wake_up")

    async def sleep(self) -> None:
        """Training comes next."""
        await self._switched("sleep")

    async def _switched(self, to: str) -> None:
        """Workers of 0.6.1 are told by the server, as by vLLM's, and hand their weights on then; later ones by verl."""
        workers = [worker for worker in self.workers if hasattr(worker, to)]
        await asyncio.gather(*[getattr(each, to).remote() for each in workers or self.servers])

    def rollout_worker_use_gpu(self) -> bool:
        """It has none."""
        return False

    def get_ray_class_with_init_args(self) -> Any:
        """Abstract in 0.6.1; only a rollout apart from the training asks."""
        return super().get_ray_class_with_init_args()


class Adapter(base.BaseRollout):  # type: ignore[misc]
    """What a training worker has of the server; the first rank of a replica talks to it."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, *_: Any, replica_rank: int = 0, **__: Any
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        of_one = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        number, self._place = divmod(int(os.environ["RANK"]), of_one * self.config.pipeline_model_parallel_size)
        self._replica = replica_rank + number  # the former is of a rollout apart from the training
        self.sleep_level = 1

    async def _tell(self, method: str, *arguments: Any) -> None:
        if self._place == 0:
            await getattr(ray.get_actor(_actor_name(self._replica)), method).remote(*arguments)

    async def resume(self, tags: list[str]) -> None:
        """Generating comes next."""
        await self._tell("wake_up")

    async def release(self) -> None:
        """Training comes next."""
        await self._tell("sleep")

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        """Every rank gathers, one sends."""
        if hasattr(weights, "__aiter__"):
            state = {name: _copy(weight) async for name, weight in weights}
        else:
            state = {name: _copy(weight) for name, weight in weights}
        await self._tell("load_weights", state, global_steps)


def _copy(weight: Any) -> Any:
    return weight.detach().float().cpu().clone()
