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
from typing import Any, Callable

import ray

import mstxkit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from builders.net_nodes import CutCluster
from judged import controllers

from mstxkit.store import layout, settings_file
from mstxkit.store.handed_over import HandedOver

TESTS = str(Path(__file__).resolve().parents[2])
STEP_MS, RANKS = 150, 4


@ray.remote(num_cpus=0.5, max_restarts=0)
class Worker:
    """One rank."""

    def __init__(self, rank: int) -> None:
        mstxkit.identify(rank=rank, world_size=RANKS, role="actor")
        sys.path.insert(0, TESTS)

    def work(self, start_ns: int, steps: int) -> int:
        """Step after step, at its own pace; how many."""
        from builders import handing_rank

        handing_rank.hand_over(start_ns, steps, STEP_MS, 1)
        return steps

    def faults(self) -> dict[str, int]:
        """What went wrong there."""
        return dict(mstxkit.status().faults)


def judged(run: Path) -> int:
    """The step that was judged last."""
    figures = settings_file.read_figures(run / layout.VERDICTS / layout.FIGURES, "")
    return -1 if figures is None or figures.step is None else figures.step


def step_of(live: Path) -> int:
    """In which step the worker behind the cable is, by what it hands over there."""
    steps = [-1]
    for file in live.rglob(f"*{layout.HANDED_OVER_SUFFIX}"):
        try:
            steps.append(HandedOver(file).read_new().document.get("step", -1))
        except mstxkit.MstxkitError:
            continue
    return max(steps)


def until(is_so: Callable[[], bool], within_s: float = 100.0) -> bool:
    """Has it come to that?"""
    deadline = time.monotonic() + within_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_so()


def main(steps: int, run: Path) -> dict[str, Any]:
    """The job."""
    live = run.parent / "far"
    live.mkdir(mode=0o700)
    capture = mstxkit.capture(run)
    cluster = CutCluster(live)
    try:
        assert until(lambda: _joined(cluster.address)), "both nodes came up"
        where = ["near", "far", "near", "far"]  # of two on a host one is the keeper, which passes on each second
        workers = [Worker.options(resources={kind: 1}).remote(rank) for rank, kind in enumerate(where)]
        ray.get([worker.faults.remote() for worker in workers])
        start_ns = time.monotonic_ns() + 10**9
        calls = [worker.work.remote(start_ns, steps) for worker in workers]
        assert until(lambda: judged(run) >= 20), "it is judged"
        judges = [int(str(controller["pid"])) for controller in controllers()]
        cluster.cut()
        for pid in judges:
            os.kill(pid, signal.SIGKILL)
        before = step_of(live)
        went_on = until(lambda: step_of(live) >= before + 40)
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


def _joined(address: str) -> bool:
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False)
        return len([node for node in ray.nodes() if node["Alive"]]) == 2
    except (ConnectionError, RuntimeError, ValueError):
        return False


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), Path(sys.argv[2]))))
