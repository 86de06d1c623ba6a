"""A training that asks for a profile of itself: one update, when updates take three times as long as usual.

Needs torch, and no device:

    pip install torch 'mstxkit[report]'
    python examples/04_escalate.py

Somewhere on the way the batches grow. The program sees that by its own stage times, which mstxkit has measured all
along, and asks once. A profiler runs around the next `actor_update` and nothing else: torch_npu's where there is an
NPU, torch's where there is none, as on a laptop (the two lines that begin with USDT are torch's own).

The same from outside, while it runs, with no line of code:

    mstxkit escalate RUN --stage actor_update --ranks 0 --steps 1 --wait

What to look for: `escalate` returns at once and never stops the training; what becomes of the request is in the run.
Under torchrun every rank that calls it asks for itself; `ranks="all"` asks for a step that all record together.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

import mstxkit
from mstxkit import stage, step

STEPS = 120
LARGER_FROM = 50
LATELY, SLOW_RATIO = 5, 3


class SlowUpdate:
    """Notices that the update has become slow, and asks for a profile of it: once."""

    def __init__(self) -> None:
        self.past_s: list[float] = []
        self.request: str | None = None

    def check(self, number: int) -> None:
        """Compare the last few steps with those before; medians, as any single step may have been interrupted."""
        self.past_s.append(mstxkit.stage_times(number)["actor_update"])
        before, lately = self.past_s[:-LATELY], self.past_s[-LATELY:]
        if self.request is not None or len(before) < LATELY:
            return
        usual_s, now_s = statistics.median(before), statistics.median(lately)
        if now_s > SLOW_RATIO * usual_s:
            reason = f"{now_s * 1e3:.1f} ms by step {number}, {usual_s * 1e3:.1f} ms are usual"
            self.request = mstxkit.escalate("actor_update", steps=1, preset="full", reason=reason).id
            print(f"{reason}. Asked for a profile: request {self.request}", flush=True)


def generate(model: torch.nn.Module, rows: int) -> torch.Tensor:
    """Samples of the model, and some time in which an environment answers."""
    time.sleep(0.02)
    with torch.no_grad():
        samples: torch.Tensor = model(torch.randn(rows, 64))
    return samples


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, samples: torch.Tensor) -> None:
    """One step of the optimizer."""
    optimizer.zero_grad()
    model(samples).square().mean().backward()
    optimizer.step()


def train(steps: int) -> None:
    """A model of three layers; from the step `LARGER_FROM` on the batches are larger."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 64))
    optimizer = torch.optim.Adam(model.parameters())
    watch = SlowUpdate()
    for number in range(steps):
        step(number)
        with stage("actor_generate"):
            samples = generate(model, 128 if number < LARGER_FROM else 1024)
        with stage("actor_update"):
            update(model, optimizer, samples)
        watch.check(number)


def show(run: Path) -> None:
    """What was asked for in this run, what became of it, and where it lies."""
    for row in mstxkit.open_run(run).escalations().iter_rows(named=True):
        print(f"request {row['request']}: {row['stage']} on rank {row['rank']} is {row['state']}. {row['reason']}")
        if row["folder"] is not None:
            print(f"  step {row['first_step']}, preset {row['preset']}:")
            for file in sorted(path for path in (run / row["folder"]).rglob("*") if path.is_file()):
                print(f"    {file} ({file.stat().st_size >> 10} KiB)")
    print(
        "A *.pt.trace.json opens in https://ui.perfetto.dev; what an NPU recorded is parsed by: "
        f"mstxkit profiles {run} --analyse"
    )


def main() -> None:
    """Record, train, show."""
    parser = argparse.ArgumentParser(description="A training that asks for a profile of itself.")
    folder = Path("mstxkit-runs") / time.strftime("%Y%m%d-%H%M%S")
    parser.add_argument("--run", type=Path, default=folder, help="run folder")
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with mstxkit.capture(given.run) as capture:
        train(given.steps)
    assert capture.run is not None
    show(capture.run)


if __name__ == "__main__":
    main()
