"""Workers whose job is judged by an actor, and what Ray's own metrics then show of it, where they show anything.

metrics.py RUN
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path

import ray
from handing import HandingWorker  # of this folder

import mstxkit
from mstxkit.store import layout, run_file, settings_file

RANKS, STEPS, STEP_MS, WITHIN_S = 2, 40, 50, 60.0
Worker = ray.remote(num_cpus=0.5)(HandingWorker)


def page() -> str:
    """What this node's agent exports; nothing where there is none."""
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def exported(awaits: bool) -> list[str]:
    """The lines of ours, as soon as all are there."""
    deadline = time.monotonic() + (WITHIN_S if awaits else 0.0)
    while True:
        lines = [line for line in page().splitlines() if line.startswith("ray_mstxkit_")]
        if any("ray_mstxkit_verdicts{" in line for line in lines) or time.monotonic() > deadline:
            return lines
        time.sleep(0.5)


def main(run: Path) -> None:
    """The job."""
    capture = mstxkit.capture(run)
    ray.init(num_cpus=2, include_dashboard=False)
    workers = [Worker.remote(rank, RANKS) for rank in range(RANKS)]
    start_ns = time.monotonic_ns() + 2 * 10**9
    ray.get([worker.work.remote(start_ns, STEPS, STEP_MS) for worker in workers])
    faults = ray.get([worker.faults.remote() for worker in workers])
    figures = ray.get([worker.figures.remote() for worker in workers])
    has_agent = bool(page())
    state = settings_file.read_figures(run / layout.VERDICTS / layout.FIGURES, run_file.id_of(run) or "")
    said = {
        "agent": has_agent, "lines": exported(has_agent), "figures": figures, "faults": faults,
        "judged": state is not None and state.step is not None,
        "notes": json.loads((run / layout.VERDICTS / layout.JOB).read_text())["notes"],
    }  # fmt: skip
    capture.stop()
    ray.shutdown()
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
