"""A job of many actors laid out like MindSpeed-RL's: driver, `train` task, integrated workers, rule rewards, a dock.

It resumes at iteration 40. In the end Ray or a kill ends every worker; none leaves by itself.
Arguments: how many integrated workers; the run folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import ray
from acme_rl import workers

import mstxkit

TARGETS = Path(__file__).resolve().parents[1] / "packages" / "acme_rl" / "targets.yaml"
RANKS, REWARDS, FIRST, STEPS = int(sys.argv[1]), 3, 40, 3


@ray.remote(num_cpus=0)
def train() -> dict[str, Any]:
    """The trainer, in `__main__` and in a worker, as in MindSpeed-RL's command lines."""
    integrated = [workers.IntegratedWorker.remote(rank, FIRST) for rank in range(RANKS)]
    rewards = [workers.RuleReward.remote() for _ in range(REWARDS)]
    dock = workers.Dock.remote()
    for _ in range(STEPS):
        ray.get([worker.generate_sequences.remote(1) for worker in integrated])
        ray.get([dock.put.remote(1) for _ in integrated])
        ray.get([reward.compute_rm_score.remote(1) for reward in rewards])
        ray.get([worker.compute_ref_log_prob.remote(1) for worker in integrated])
        ray.get(workers.compute_advantage.remote(1))
        ray.get([worker.update.remote() for worker in integrated])
    made = {"integrated": pids(integrated), "rewards": pids(rewards), "dock": pids([dock])}
    for actor in integrated[: RANKS // 4]:
        ray.kill(actor)
    for pid in made["integrated"][RANKS // 4 : RANKS // 2]:
        os.kill(pid, signal.SIGKILL)
    return {**made, "train": os.getpid()}


def pids(actors: list[Any]) -> list[int]:
    return [int(pid) for pid in ray.get([actor.__ray_call__.remote(lambda self: os.getpid()) for actor in actors])]


mstxkit.capture(sys.argv[2])
mstxkit.autopatch(targets=TARGETS)
ray.init("local", num_cpus=2, include_dashboard=False)
said = ray.get(train.remote())
ray.shutdown()
sys.stdout.write(json.dumps({**said, "driver": os.getpid()}))
