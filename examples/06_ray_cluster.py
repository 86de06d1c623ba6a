"""A Ray job on several nodes with one slow worker: who made the others wait is said while it runs, and at its end.

Run it: `python examples/06_ray_cluster.py`. It needs `pip install ray numpy`, and starts three Ray nodes on this
machine. Nothing in it but `capture`, `step` and `stage` is mstxkit's: the job's judge starts by itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

import mstxkit

WORKERS, STEPS, SLOW = 4, 50, 2


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Worker:
    """One rank. Generates for a while, then updates with all others."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        mstxkit.identify(rank=rank, world_size=WORKERS, role="actor")

    def generate(self, step: int) -> None:
        """Work of its own: on one of them it takes half as long again."""
        mstxkit.step(step)
        with mstxkit.stage("actor_generate", tokens=1000):
            time.sleep(0.06 if self.rank == SLOW else 0.04)

    def update(self) -> None:
        """Entered by all together, as a collective would have it."""
        with mstxkit.stage("actor_update"):
            time.sleep(0.03)

    def metrics(self) -> dict[str, float]:
        """What this rank's logger would write beside its loss."""
        return mstxkit.metrics()


def train(workers: list) -> None:
    """A trainer's loop: each stage is over when the slowest is."""
    for step in range(STEPS):
        ray.get([worker.generate.remote(step) for worker in workers])
        ray.get([worker.update.remote() for worker in workers])


def main(run: Path) -> int:
    """Train, then say who was slow."""
    with mstxkit.capture(run):
        # A folder of its own, or the next `ray.init` on this machine would look for this cluster.
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "temp_dir": f"{run.parent}/ray"})
        for _ in range(2):
            cluster.add_node(num_cpus=2)
        ray.init(address=cluster.address, log_to_driver=False)
        workers = [Worker.remote(rank) for rank in range(WORKERS)]
        train(workers)
        time.sleep(3)  # what was handed over last is judged
        for name, value in sorted(ray.get(workers[0].metrics.remote()).items()):
            print(f"{name:48} {value:.3f}")
        ray.shutdown()
    cluster.shutdown()
    print(f"\n$ mstxkit top {run} --once")
    return subprocess.call([sys.executable, "-m", "mstxkit", "top", str(run), "--once"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if main(Path(folder) / "run") == 1 else 1)
