"""A Ray job of verl 0.9.1 in a process of its own: colocated workers, actor and critic in each of two processes.

What runs in them is verl's own: its dispatch, its worker group, `WorkerDict`, the methods of its workers and engines.
Only what needs a model is small: engines that compute nothing.

Usage: python verl_job.py     with MSTXKIT_RUN and MSTXKIT_AUTOPATCH in the environment
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Iterator

import ray
import torch
from tensordict import TensorDict
from verl.single_controller.base import Worker
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.single_controller.ray.base import create_colocated_worker_cls
from verl.utils import tensordict_utils as tu
from verl.utils.profiler import DistProfiler, DistProfilerExtension
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

import mstxkit

PROCESSES = 2
MINI_BATCHES = 2


class NoModel:
    """What an engine does with a model."""

    def __init__(self) -> None:
        self.steps = 0

    @contextmanager
    def eval_mode(self, **_: Any) -> Iterator[None]:
        """Nothing to switch."""
        yield

    @contextmanager
    def train_mode(self, disable_auto_offload: bool = False, **_: Any) -> Iterator[None]:
        """Loads and offloads as verl's engines do: once around all mini-batches."""
        if disable_auto_offload:
            yield
            return
        with mstxkit.mstx_range("onload"):
            pass
        yield
        with mstxkit.mstx_range("offload"):
            pass

    def forward_backward_batch(
        self, data: TensorDict, loss_function: Any, forward_only: bool = False
    ) -> dict[str, Any]:
        """Nothing to compute."""
        return {"metrics": {}, "loss": [0.0], "model_output": {}}

    def optimizer_zero_grad(self) -> None:
        """No gradients."""

    def optimizer_step(self) -> float:
        """A gradient norm."""
        self.steps += 1
        return 0.0

    def lr_scheduler_step(self) -> float:
        """A learning rate."""
        return 0.0

    def is_mp_src_rank_with_outputs(self) -> bool:
        """Each process has its own outputs."""
        return True

    def get_data_parallel_size(self) -> int:
        """Of the mini-batches."""
        return PROCESSES

    def get_data_parallel_rank(self) -> int:
        """For the seed."""
        return 0

    def get_per_tensor_param(self, **_: Any) -> tuple[Any, None]:
        """No weights."""
        return iter(()), None


class ActorEngine(NoModel, FSDPEngineWithLMHead):  # type: ignore[misc]
    """An actor's or a reference's."""


class CriticEngine(NoModel, FSDPEngineWithValueHead):  # type: ignore[misc]
    """A critic's."""


class Training(TrainingWorker):  # type: ignore[misc]
    """verl's worker, around an engine."""

    def __init__(self, engine: str) -> None:
        Worker.__init__(self)
        DistProfilerExtension.__init__(self, DistProfiler(rank=self.rank))
        self.engine = CriticEngine() if engine == "critic" else ActorEngine()
        self.model_config: dict[str, Any] = {}
        self.engine_config = SimpleNamespace(
            use_dynamic_bsz=False, use_fused_kernels=False, forward_only=False, max_token_len_per_gpu=1,
            micro_batch_size_per_gpu=1, infer_max_token_len_per_gpu=1, infer_micro_batch_size_per_gpu=1,
        )  # fmt: skip
        self.loss_fn = len
        self._register_dispatch_collect_info(mesh_name="train", dp_rank=self.rank, is_collect=True)

    def _postprocess_output(self, output: dict[str, Any], **_: Any) -> TensorDict:
        return tu.get_tensordict({"done": torch.ones(1)}, {"metrics": {}})


class Actor(ActorRolloutRefWorker):  # type: ignore[misc]
    """verl's hybrid worker, around two engines."""

    def __init__(self) -> None:
        Worker.__init__(self)
        DistProfilerExtension.__init__(self, DistProfiler(rank=self.rank))
        self.enable_routing_replay, self.checkpoint_engine = False, self
        self.actor, self.ref = Training("actor"), Training("actor")
        for mesh, worker in (("actor", self.actor), ("ref", self.ref)):
            self.set_dispatch_collect(mesh_name=mesh, **worker.get_dispatch_collect())

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, Any]:
        """What a checkpoint engine has; nothing to send."""
        return {}


def data() -> TensorDict:
    """Four samples for two processes: two mini-batches of one sample in each."""
    return tu.get_tensordict({"x": torch.ones(4, 1)}, {"mini_batch_size": 2, "epochs": 1})


def main() -> dict[str, Any]:
    """Two steps, numbered 7 and 8 by a driver that resumed at 6; what the driver sees of the workers."""
    ray.init(num_cpus=PROCESSES + 1, include_dashboard=False, log_to_driver=False)
    try:
        classes = {
            "actor": RayClassWithInitArgs(cls=ray.remote(Actor)),
            "critic": RayClassWithInitArgs(cls=ray.remote(Training), engine="critic"),
        }
        pool = RayResourcePool(process_on_nodes=[PROCESSES], use_gpu=False, max_colocate_count=1)
        group = RayWorkerGroup(
            resource_pool=pool, ray_cls_with_init=create_colocated_worker_cls(class_dict=classes), use_gpu=False
        )
        workers = group.spawn(prefix_set=classes)
        actor, critic = workers["actor"], workers["critic"]
        for step in (6, 7):
            ray.get(actor.update_weights(global_steps=step, mode="nccl"))
            actor.compute_log_prob(data())
            actor.compute_ref_log_prob(data())
            critic.infer_batch(data()).get()
            critic.train_mini_batch(data()).get()
            actor.update_actor(data())
        bound = group.ray_cls_with_init.cls.__ray_metadata__.modified_class
        return {
            "bound": sorted(name for name in dir(bound) if name.startswith(("actor_", "critic_"))),
            "async": sorted(n for n in dir(bound) if inspect.iscoroutinefunction(getattr(bound, n, None))),
        }
    finally:
        ray.shutdown()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write("JOB " + json.dumps(main()) + "\n")
