"""Workers on two nodes of one machine hand over their stages; one is slow. Says what comes of it.

    judged.py kill|plain STEPS RUN

`kill`: the controller's process is killed on the way, and the next one as soon as it answers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import ray
from handing import HEAD_START_NS, HandingWorker, judged, until  # of this folder

import mstxkit
from mstxkit.cluster import ray_link
from mstxkit.store import run_file

RANKS, STEP_MS = 3, 50
Worker = ray.remote(num_cpus=0.5, scheduling_strategy="SPREAD")(HandingWorker)


def controllers(within_s: float = 60.0) -> list[dict[str, object]]:
    """The actors of ours that live: name and pid, once none is just being started again."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return controllers_now()
        except (ray.exceptions.RayActorError, ValueError):  # it was killed just now
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def controllers_now() -> list[dict[str, object]]:
    """The same, where all of them answer."""
    names = [of["name"] for of in ray.util.list_named_actors(all_namespaces=True) if of["namespace"] == "mstxkit"]
    actors = [ray.get_actor(name, "mstxkit") for name in names]
    pids = ray.get([actor.__ray_call__.remote(lambda self: __import__("os").getpid()) for actor in actors])
    return [{"name": name, "pid": pid} for name, pid in zip(names, pids)]


def kill_controller(run: Path) -> None:
    """As soon as it has judged a little."""
    until(lambda: judged(run) >= 20, within_s=60)
    for _ in range(2):
        os.kill(int(str(controllers()[0]["pid"])), signal.SIGKILL)


def main(how: str, steps: int, run: Path) -> None:
    """The job."""
    capture, cluster = mstxkit.capture(run), None
    if not os.environ.get("RAY_ADDRESS"):
        from ray.cluster_utils import Cluster

        # In a folder of its own, or the next job on this machine would try to join it.
        arguments = {"num_cpus": 2, "temp_dir": tempfile.mkdtemp(prefix="ray-", dir="/tmp")}
        cluster = Cluster(initialize_head=True, head_node_args=arguments)
        cluster.add_node(num_cpus=2)
        ray.init(address=cluster.address)
    else:
        ray.init()
    workers = [Worker.remote(rank, RANKS) for rank in range(RANKS)]
    nodes = ray.get([worker.node.remote() for worker in workers])
    start_ns = time.monotonic_ns() + HEAD_START_NS
    calls = [worker.work.remote(start_ns, steps, STEP_MS) for worker in workers]
    if how == "kill":
        kill_controller(run)
    ray.get(calls)
    until(lambda: judged(run) >= steps - 1, within_s=40)
    said = {
        "nodes": len(set(nodes)), "judged": judged(run), "controllers": controllers(),
        "name": ray_link.name_of(run_file.id_of(run) or ""),
        "figures": ray.get([worker.figures.remote() for worker in workers]), "own": mstxkit.metrics(),
        "faults": [*ray.get([worker.faults.remote() for worker in workers]), dict(mstxkit.status().faults)],
        "free": ray.available_resources().get("CPU"),
    }  # fmt: skip
    capture.stop()
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()
        shutil.rmtree(arguments["temp_dir"], ignore_errors=True)
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
