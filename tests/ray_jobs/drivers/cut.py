"""Workers on two nodes, between which the network is cut for a while and healed; meanwhile the controller is killed.

    cut.py STEPS RUN

Says whether the worker behind it went on meanwhile, and what was judged in the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ray
from handing import HEAD_START_NS, HandingWorker, judged, until  # of this folder
from judged import controllers

import mstxkit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from builders.net_nodes import CutCluster

from mstxkit.store import layout
from mstxkit.store.handed_over import HandedOver

STEP_MS, RANKS = 150, 4
Worker = ray.remote(num_cpus=0.5, max_restarts=0)(HandingWorker)


def step_of(live: Path) -> int:
    """In which step the worker behind the cable is, by what it hands over there."""
    steps = [-1]
    for file in live.rglob(f"*{layout.HANDED_OVER_SUFFIX}"):
        try:
            steps.append(HandedOver(file).read_new().document.get("step", -1))
        except mstxkit.MstxkitError:
            continue
    return max(steps)


def main(steps: int, run: Path) -> dict[str, Any]:
    """The job."""
    live = run.parent / "far"
    live.mkdir(mode=0o700)
    capture = mstxkit.capture(run)
    cluster = CutCluster(live)
    try:
        assert until(lambda: _nodes(cluster.address) == 1), "the head came up"
        cluster.join()
        assert until(lambda: _nodes(cluster.address) == 2), "both nodes came up"
        where = ["near", "far", "near", "far"]  # of two on a host one is the keeper, which passes on each second
        workers = [Worker.options(resources={kind: 1}).remote(rank, RANKS) for rank, kind in enumerate(where)]
        ray.get([worker.faults.remote() for worker in workers])
        start_ns = time.monotonic_ns() + HEAD_START_NS
        calls = [worker.work.remote(start_ns, steps, STEP_MS) for worker in workers]
        assert until(lambda: judged(run) >= 20), "it is judged"
        judges = [int(str(controller["pid"])) for controller in controllers()]
        cluster.cut()
        for pid in judges:
            os.kill(pid, signal.SIGKILL)
        before = step_of(live)
        went_on = until(lambda: step_of(live) >= before + 40, within_s=40.0)  # after 60 s Ray gives a driver up
        cluster.heal()
        done = ray.get(calls)
        until(lambda: judged(run) >= steps - 1)
        said = {
            "judges": len(judges), "went_on": went_on, "done": done, "judged": judged(run),
            "faults": [*ray.get([worker.faults.remote() for worker in workers]), dict(mstxkit.status().faults)],
        }  # fmt: skip
        capture.stop()
        ray.shutdown()
        return said
    finally:
        cluster.close()


def _nodes(address: str) -> int:
    """How many there are, as far as this driver has joined any."""
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False)
        return len([node for node in ray.nodes() if node["Alive"]])
    except (ConnectionError, RuntimeError, ValueError):
        return 0


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), Path(sys.argv[2]))))
