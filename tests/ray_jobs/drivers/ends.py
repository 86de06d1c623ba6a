"""A job that ends well, or whose actor dies inside of a stage: `ends.py well|dies RUN`."""

from __future__ import annotations

import os
import sys

import ray

import mstxkit


@ray.remote
class Worker:
    """Works in a stage, and dies in one if it is told to."""

    def work(self, dies: bool = False) -> int:
        """One occurrence."""
        mstxkit.step(3)
        with mstxkit.stage("actor_generate"):
            if dies:
                os.kill(os.getpid(), 9)
        return os.getpid()


if __name__ == "__main__":
    mstxkit.capture(sys.argv[2])
    ray.init(num_cpus=3, include_dashboard=False)
    workers = [Worker.remote() for _ in range(3)]
    ray.get([worker.work.remote() for worker in workers])
    if sys.argv[1] == "dies":
        ray.get([worker.work.remote(dies=number == 1) for number, worker in enumerate(workers)])
