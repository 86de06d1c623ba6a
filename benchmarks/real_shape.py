"""One process of a real job, whose ranks hand work to each other in one of several shapes; started by `bench_shapes`.

    torchrun … real_shape.py SHAPE RUN FACTOR       one rank of SHAPE, on gloo
    real_shape.py queue|controller RUN FACTOR       the whole job

From step `SINCE` on one of them takes FACTOR times as long for its own work, which it sleeps, as a host does while its
device computes: more processes than CPUs do not make each other slow by it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from typing import Any, Callable, NamedTuple

import mstxkit

STEPS, SINCE, MICRO_BATCHES = 90, 30, 4


class Shape(NamedTuple):
    """A kind of job.

    Args:
        ranks: On gloo; 0: it starts its processes itself.
        slow: The rank that may be slow; 0: the only one of its role.
        role: Whose it is.
        stages: In any of which its slowness is rightly seen.
    """

    ranks: int
    slow: int
    role: str
    stages: tuple[str, ...]


SHAPES = {
    "by_hand": Shape(4, 2, "", ("forward", "backward")),
    "pipelining": Shape(4, 1, "", ("forward_backward",)),
    "fsdp2": Shape(4, 1, "", ("forward", "backward")),
    "grid": Shape(8, 5, "", ("forward", "backward")),
    "queue": Shape(0, 1, "rollout", ("actor_generate",)),
    "controller": Shape(0, 0, "reward", ("reward",)),
}
SHAPE, FACTOR = "", 1.0  # of this process


class Pace:
    """Own work of one process."""

    def __init__(self, is_slow: bool) -> None:
        self._is_slow, self.step = is_slow, 0

    def work(self, ms: float) -> None:
        """For so long; in the slow one longer."""
        time.sleep(ms / 1e3 * (FACTOR if self._is_slow and self.step >= SINCE else 1.0))


def train_on_gloo(steps: Callable[[int, Pace], Callable[[], None]]) -> None:
    """One rank. `steps` makes what it does in each step."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    pace = Pace(dist.get_rank() == SHAPES[SHAPE].slow)
    go = steps(dist.get_rank(), pace)
    for pace.step in range(STEPS):
        mstxkit.step(pace.step)
        go()
    dist.barrier()
    dist.destroy_process_group()


def by_hand(rank: int, pace: Pace) -> Callable[[], None]:
    """A pipeline with `send` and `recv`; then the gradients' norm, of all."""
    import torch
    import torch.distributed as dist

    last, data = SHAPES[SHAPE].ranks - 1, torch.zeros(64)

    def go() -> None:
        with mstxkit.stage("forward"):
            for _ in range(MICRO_BATCHES):
                dist.recv(data, rank - 1) if rank else None
                pace.work(4)
                dist.send(data, rank + 1) if rank < last else None
        with mstxkit.stage("backward"):
            for _ in range(MICRO_BATCHES):
                dist.recv(data, rank + 1) if rank < last else None
                pace.work(8)
                dist.send(data, rank - 1) if rank else None
        with mstxkit.stage("optimizer"):
            dist.all_reduce(data)
            time.sleep(0.004)

    return go


def _sleeping(pace: Pace, forward_ms: float, backward_ms: float) -> Any:
    """A linear layer whose passes take so long."""
    import torch

    class Sleep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            pace.work(forward_ms)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            pace.work(backward_ms)
            return gradient

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Sleep.apply(self.linear(x))  # type: ignore[no-any-return, no-untyped-call]

    return Layer()


def pipelining(rank: int, pace: Pace) -> Callable[[], None]:
    """torch's own pipeline: `Schedule1F1B`; then the gradients' norm, of all."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    last, layer = SHAPES[SHAPE].ranks - 1, _sleeping(pace, 4, 8)
    optimizer = torch.optim.SGD(layer.parameters(), 1e-3)
    stage = PipelineStage(layer, rank, last + 1, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=torch.nn.functional.mse_loss)
    batch, target = torch.randn(2 * MICRO_BATCHES, 32), torch.zeros(2 * MICRO_BATCHES, 32)

    def go() -> None:
        with mstxkit.stage("forward_backward"):
            schedule.step(*([batch] if rank == 0 else []), **({"target": target} if rank == last else {}))
        with mstxkit.stage("optimizer"):
            dist.all_reduce(torch.stack([value.grad.norm() for value in layer.parameters()]).sum())
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.004)

    return go


def fsdp2(rank: int, pace: Pace) -> Callable[[], None]:
    """Sharded layers: each is gathered before its passes, and its gradients are scattered."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (SHAPES[SHAPE].ranks,))
    model = torch.nn.Sequential(*(_sleeping(pace, 6, 12) for _ in range(3)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def go() -> None:
        with mstxkit.stage("forward"):
            loss = model(torch.randn(4, 32)).pow(2).mean()
        with mstxkit.stage("backward"):
            loss.backward()
        with mstxkit.stage("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.004)

    return go


def grid(rank: int, pace: Pace) -> Callable[[], None]:
    """Data parallel 2 × pipeline 2 × tensor parallel 2."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    mesh, data = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "pp", "tp")), torch.zeros(64)
    tp, dp, place, pipe = mesh.get_group("tp"), mesh.get_group("dp"), mesh.get_coordinate(), mesh.get_group("pp")
    assert place is not None
    other = dist.get_global_rank(pipe, 1 - place[1])

    def compute(ms: float) -> None:
        for _ in range(2):
            pace.work(ms / 2)
            dist.all_reduce(data, group=tp)

    def go() -> None:
        with mstxkit.stage("forward"):
            for _ in range(MICRO_BATCHES):
                dist.recv(data, other) if place[1] else None
                compute(6)
                dist.send(data, other) if not place[1] else None
        with mstxkit.stage("backward"):
            for _ in range(MICRO_BATCHES):
                dist.recv(data, other) if not place[1] else None
                compute(12)
                dist.send(data, other) if place[1] else None
        with mstxkit.stage("optimizer"):
            dist.all_reduce(data, group=dp)
            dist.all_reduce(data)
            time.sleep(0.004)

    return go


def queue() -> None:
    """Two trainers take samples that three rollouts make; between them is a queue of few places."""
    context = multiprocessing.get_context("spawn")
    samples, ends = context.Queue(6), context.Event()
    roles = [("rollout", rank, 3) for rank in range(3)] + [("trainer", rank, 2) for rank in range(2)]
    meeting = context.Barrier(2)
    jobs = [context.Process(target=_of_queue, args=(sys.argv, *role, samples, ends, meeting)) for role in roles]
    for job in jobs:
        job.start()
    for job in jobs[3:]:
        job.join()
    ends.set()
    for job in jobs[:3]:
        while job.is_alive():
            while not samples.empty():
                samples.get()
            job.join(0.05)


def _of_queue(argv: list[str], role: str, rank: int, world: int, samples: Any, ends: Any, meeting: Any) -> None:
    global SHAPE, FACTOR
    SHAPE, FACTOR = argv[1], float(argv[3])
    mstxkit.capture(argv[2])
    mstxkit.identify(rank=rank, world_size=world, role=role)
    pace = Pace((role, rank) == ("rollout", SHAPES[SHAPE].slow))
    while not ends.is_set() and (role == "rollout" or pace.step < STEPS):
        mstxkit.step(pace.step)
        if role == "rollout":
            with mstxkit.stage("actor_generate", tokens=2000):
                pace.work(45)
            with mstxkit.stage("wait_for_room", waits_for="trainer"):
                samples.put(pace.step)
        else:
            with mstxkit.stage("wait_for_samples", waits_for="rollout"):
                [samples.get() for _ in range(3)]
            with mstxkit.stage("actor_update"):
                meeting.wait()
                time.sleep(0.06)
        pace.step += 1


def controller() -> None:
    """A controller of Ray: workers generate, one process gives rewards, workers update."""
    import ray

    mstxkit.capture(sys.argv[2])
    ray.init(num_cpus=8, log_to_driver=False, include_dashboard=False, _temp_dir=os.environ.get("RAY_FOLDER"))
    workers = [ray.remote(_Worker).options(num_cpus=1).remote("actor", rank, 4) for rank in range(4)]
    server = ray.remote(_Worker).options(num_cpus=1).remote("reward", 0, 1)
    for step in range(STEPS):
        mstxkit.step(step)
        ray.get([worker.run.remote(step, "actor_generate", 30, 1.0) for worker in workers])
        ray.get(server.run.remote(step, "reward", 20, FACTOR if step >= SINCE else 1.0))
        ray.get([worker.run.remote(step, "actor_update", 30, 1.0) for worker in workers])
    time.sleep(3)  # what was handed over last is judged
    ray.shutdown()


class _Worker:
    def __init__(self, role: str, rank: int, world: int) -> None:
        mstxkit.identify(rank=rank, world_size=world, role=role)

    def run(self, step: int, stage: str, ms: float, factor: float) -> None:
        mstxkit.step(step)
        with mstxkit.stage(stage):
            time.sleep(ms * factor / 1e3)


if __name__ == "__main__":
    SHAPE, FACTOR = sys.argv[1], float(sys.argv[3])
    if SHAPES[SHAPE].ranks:
        mstxkit.capture(sys.argv[2], rings=True)
        mstxkit.autopatch("torch")
        train_on_gloo({"by_hand": by_hand, "pipelining": pipelining, "fsdp2": fsdp2, "grid": grid}[SHAPE])
    else:
        {"queue": queue, "controller": controller}[SHAPE]()
