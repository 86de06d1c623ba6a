"""One training loop, profiled as three systems' configuration files say: the sessions are the same.

Needs torch, and no device:

    pip install torch 'mstxkit[report]'
    python examples/05_config.py

The loop is nobody's framework. The files are those that MindSpeed-RL and verl read for themselves, and mstxkit's own
section; all three name the same stages (verl: those of the actor, and of the rollout, which follows it), steps 3 and 4,
and rank 0. `capture(config=FILE)` plans the sessions before training begins. Without an edit of a program:

    mstxkit run --config train.yaml -- python train.py

What to look for: before the first step `mstxkit status RUN` lists what is planned, queued for step 3. The loop counts
its steps from 1, as verl and MindSpeed-RL do.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

import mstxkit
from mstxkit import stage, step

STEPS = 6

MINDSPEED_RL = """
profiler_config:
  integrated:
    profile: true
    stage: [actor_generate, actor_compute_log_prob, actor_update]
    profile_level: level1
    profile_step_start: 3
    profile_step_end: 5            # the end is not recorded
    profile_ranks: [0]
"""

VERL = """
global_profiler:
  tool: npu
  steps: [3, 4]
actor_rollout_ref:
  actor:
    profiler:
      enable: true
      ranks: [0]
      tool_config: {npu: {discrete: true, level: level1, contents: [npu, cpu]}}
"""

OWN = """
mstxkit:
  enabled: true
  stages: [actor_generate, actor_compute_log_prob, actor_update]
  window: {first_step: 3, steps: 2}
  level: level1
  ranks: [0]
"""


def train() -> None:
    """A policy that learns to repeat its input; every stage is marked."""
    torch.manual_seed(0)
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.Adam(model.parameters())
    for number in range(1, STEPS + 1):
        step(number)
        with stage("actor_generate"):
            batch = torch.randn(64, 32)
            time.sleep(0.1)  # as an engine does, for seconds at least
        with stage("actor_compute_log_prob"), torch.no_grad():
            model(batch).log_softmax(-1)
        with stage("actor_update"):
            optimizer.zero_grad()
            (model(batch) - batch).square().mean().backward()
            optimizer.step()


def profiled(name: str, text: str, folder: Path) -> list[tuple[str, int]]:
    """Train with a configuration. Returns: the sessions, by stage and step."""
    file, run = folder / f"{name}.yaml", folder / name
    file.write_text(text)
    with mstxkit.capture(run, config=file):
        for request in mstxkit.open_run(run).escalations().iter_rows(named=True):
            print(f"{name}: {request['stage']} is {request['state']}, {request['reason']}", flush=True)
        train()
    sessions = sorted((run / "profiles").glob("*/step*/rank0"))
    return [(session.parent.parent.name, int(session.parent.name[len("step") :])) for session in sessions]


def main() -> None:
    parser = argparse.ArgumentParser(description="One loop, three systems' configuration files.")
    default = Path("mstxkit-runs") / time.strftime("%Y%m%d-%H%M%S")
    parser.add_argument("--folder", type=Path, default=default, help="for the files and their runs")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    files = {"mindspeed_rl": MINDSPEED_RL, "verl": VERL, "own": OWN}
    sessions = {name: profiled(name, text, folder) for name, text in files.items()}
    for name, recorded in sessions.items():
        print(f"{name}: " + ", ".join(f"{stage} in step {number}" for stage, number in recorded))
    print("the same sessions" if len({tuple(recorded) for recorded in sessions.values()}) == 1 else "they differ")
    print(f"mstxkit status {folder / 'own'}")


if __name__ == "__main__":
    main()
