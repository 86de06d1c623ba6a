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

import mstxkit
from mstxkit.cluster import ray_link
from mstxkit.store import layout, run_file, settings_file

TESTS = str(Path(__file__).resolve().parents[2])
RANKS, STEP_MS = 3, 50


@ray.remote(num_cpus=0.5, scheduling_strategy="SPREAD")
class Worker:
    """One rank."""

    def __init__(self, rank: int) -> None:
        mstxkit.identify(rank=rank, world_size=RANKS, role="actor")
        sys.path.insert(0, TESTS)

    def work(self, start_ns: int, steps: int) -> str:
        """Step after step; the node."""
        from builders import handing_rank

        handing_rank.hand_over(start_ns, steps, STEP_MS, 1)
        return ray.get_runtime_context().get_node_id()

    def figures(self) -> dict[str, float]:
        """As its own logger would take them."""
        from builders import handing_rank

        return handing_rank.figures(60)

    def faults(self) -> dict[str, int]:
        """What went wrong there."""
        return dict(mstxkit.status().faults)


def judged(run: Path) -> int:
    """The step that was judged last."""
    figures = settings_file.read_figures(run / layout.VERDICTS / layout.FIGURES, "")
    return -1 if figures is None or figures.step is None else figures.step


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


def kill_controller(run: Path, within_s: float = 60.0) -> None:
    """As soon as it has judged a little."""
    deadline = time.monotonic() + within_s
    while judged(run) < 20 and time.monotonic() < deadline:
        time.sleep(0.05)
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
    workers = [Worker.remote(rank) for rank in range(RANKS)]
    ray.get([worker.faults.remote() for worker in workers])
    start_ns = time.monotonic_ns() + 10**9
    calls = [worker.work.remote(start_ns, steps) for worker in workers]
    if how == "kill":
        kill_controller(run)
    nodes = ray.get(calls)
    deadline = time.monotonic() + 40
    while judged(run) < steps - 1 and time.monotonic() < deadline:
        time.sleep(0.1)
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
