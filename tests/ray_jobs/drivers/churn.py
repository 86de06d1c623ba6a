"""Workers on two nodes, of which one is a host of its own: its agent is killed with its worker, others join later.

    churn.py STEPS RUN

Says whether the rest was judged meanwhile, and what was judged in the end.
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
from typing import Any

import ray
from handing import HEAD_START_NS, HandingWorker, judged, until  # of this folder
from judged import STEP_MS, controllers

import mstxkit

RANKS = 4
Worker = ray.remote(num_cpus=0.5, max_restarts=0)(HandingWorker)


def keeper_of(live: Path) -> int:
    """The process that is the agent of this host."""
    nodes = [f":{file.stat().st_ino} " for file in live.rglob("keeper-*.life")]
    locks = Path("/proc/locks").read_text().splitlines()
    return next(int(line.split()[4]) for line in locks if any(node in line for node in nodes))


def main(steps: int, run: Path) -> dict[str, Any]:
    """The job."""
    from ray.cluster_utils import Cluster

    far = run.parent / "far"
    far.mkdir(mode=0o700)
    capture = mstxkit.capture(run)
    arguments = {"num_cpus": 2, "temp_dir": tempfile.mkdtemp(prefix="ray-", dir="/tmp")}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    cluster.add_node(num_cpus=2, resources={"far": 4})
    ray.init(address=cluster.address)
    there = {"runtime_env": {"env_vars": {"MSTXKIT_LIVE_FOLDER": str(far)}}, "resources": {"far": 1}}
    workers = {rank: Worker.options(**(there if rank > 1 else {})).remote(rank, RANKS) for rank in range(RANKS)}
    ranks = {ray.get(worker.pid.remote()): rank for rank, worker in workers.items()}
    start_ns = time.monotonic_ns() + HEAD_START_NS
    calls = {rank: worker.join.remote(start_ns, steps, STEP_MS) for rank, worker in workers.items()}
    assert until(lambda: judged(run) >= 20), "it is judged"
    killed = keeper_of(far)
    os.kill(killed, signal.SIGKILL)
    at = judged(run)
    went_on = until(lambda: judged(run) >= at + 30)
    cluster.add_node(num_cpus=2, resources={"far": 4})
    for rank in (ranks[killed], RANKS):  # the one that was killed comes back, and one more
        workers[rank] = Worker.options(**there).remote(rank, RANKS)
        calls[rank] = workers[rank].join.remote(start_ns, steps, STEP_MS)
    done = ray.get(list(calls.values()))
    until(lambda: judged(run) >= steps - 1)
    said = {
        "went_on": went_on, "killed": ranks[killed], "done": done, "judged": judged(run),
        "controllers": len(controllers()), "faults": ray.get([worker.faults.remote() for worker in workers.values()]),
    }  # fmt: skip
    capture.stop()
    ray.shutdown()
    cluster.shutdown()
    shutil.rmtree(arguments["temp_dir"], ignore_errors=True)
    return said


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), Path(sys.argv[2]))))
