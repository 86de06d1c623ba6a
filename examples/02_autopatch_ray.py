"""Ranges from every process of a Ray job whose code has no line of mstxkit: driver, `train` task, workers, dock.

Needs Ray, and no device:

    pip install 'mstxkit[report,ray]'
    python examples/02_autopatch_ray.py

The job is that of `examples/ray_job/`: a stand-in for MindSpeed-RL, with its layout (a `train` task that drives one
integrated worker a rank, rule rewards and a transfer dock) and made-up work. For the real one, the two lines are

    mstxkit.capture("runs/second")
    mstxkit.autopatch("mindspeed_rl")

What to look for: they come before `ray.init`, which then tells the workers. `ray_job/targets.yaml` says what is a
range. `IntegratedWorker.compute_ref_log_prob` is defined in a class under `@ray.remote`, so it reaches the workers by
value; it is recorded all the same. Ray ends its workers by force; nothing that they recorded is lost.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import ray

import mstxkit

HERE = Path(__file__).resolve().parent


@ray.remote(num_cpus=0)
def train(ranks: int, first: int, steps: int) -> None:
    """The trainer runs in a worker, as in MindSpeed-RL."""
    from ray_job.trainer import RayGRPOTrainer

    RayGRPOTrainer(ranks, first).fit(steps)


def show(run: Path) -> None:
    """Who recorded what, then the report: `mstxkit report RUN`."""
    ranges = mstxkit.open_run(run).ranges()
    print(f"{ranges.height} ranges of {ranges['pid'].n_unique()} processes:")
    for (role, rank, pid), rows in sorted(ranges.group_by("role", "rank", "pid"), key=lambda one: str(one[0])):
        steps = sorted(rows["step"].drop_nulls().unique())
        span = f"steps {steps[0]} to {steps[-1]}" if steps else "no step"
        who = role or "task" if rank is None else f"{role} {rank}"
        print(f"  {who:14} pid {pid:<8} {rows.height:4} ranges, {span}: {', '.join(sorted(rows['name'].unique()))}")
    print(flush=True)
    subprocess.run([sys.executable, "-m", "mstxkit", "report", str(run)], check=False)


def main() -> None:
    """Record, patch, run the job, show it."""
    parser = argparse.ArgumentParser(description="A job of Ray actors, patched from outside.")
    parser.add_argument(
        "--run", type=Path, default=Path("mstxkit-runs") / time.strftime("%Y%m%d-%H%M%S"), help="run folder"
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    given = parser.parse_args()
    with mstxkit.capture(given.run) as capture:
        mstxkit.autopatch(targets=HERE / "ray_job" / "targets.yaml")
        ray.init("local", num_cpus=4, include_dashboard=False)
        ray.get(train.remote(given.ranks, 100, given.steps))
        ray.shutdown()
    assert capture.run is not None
    show(capture.run)


if __name__ == "__main__":
    main()
