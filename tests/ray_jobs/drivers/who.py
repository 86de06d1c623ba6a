"""One job of a driver, a task, and actors with and without a name, one of which forks; one is a server of a replica.

Argument: the run folder.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys

import ray

import mstxkit
from mstxkit.recorder import forking

mstxkit.capture(sys.argv[1])


def help_out() -> None:
    with mstxkit.stage("data_loading"):
        pass


@ray.remote(num_cpus=0)
class Worker:
    def __init__(self, rank: int | None = None) -> None:
        if rank is not None:
            os.environ["RANK"] = str(rank)

    def work(self, is_forking: bool = False) -> int:
        with mstxkit.stage("actor_generate"):
            if is_forking:
                forking.WAITS_AT_MOST_S = 60  # on a busy machine too the child is recorded from its first line on
                child = multiprocessing.get_context("fork").Process(target=help_out)
                child.start()
                child.join()
        return os.getpid()

    def crash(self) -> None:
        os._exit(3)


@ray.remote(num_cpus=0)
def task(handed: ray.actor.ActorHandle) -> int:
    """It works for an actor, and is none: not the one that passes by."""
    with mstxkit.stage("reward"):
        ray.get(handed.work.remote())
        return os.getpid()


ray.init("local", num_cpus=1, include_dashboard=False)
actors = {
    "named": Worker.options(name="named").remote(), "plain": Worker.remote(), "plain too": Worker.remote(),
    "ranked": Worker.options(name="xyzWorkerDict_0:1").remote(5),
    "server": Worker.options(name="vllm_server_2_0").remote(), "crashing": Worker.options(name="crashing").remote(),
}  # fmt: skip
said = {name: ray.get(actor.work.remote(name == "ranked")) for name, actor in actors.items()}
said |= {"task": ray.get(task.remote(actors["plain"])), "driver": os.getpid()}
try:
    ray.get(actors["crashing"].crash.remote())
except ray.exceptions.RayActorError:
    pass
ray.shutdown()
with mstxkit.stage("save_checkpoint"):  # who it is, is known without Ray
    pass
sys.stdout.write(json.dumps(said))
