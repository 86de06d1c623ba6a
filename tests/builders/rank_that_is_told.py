"""A rank of the demo's training as the tests of escalation need it: it ends when it is told to, not after some steps.

    python rank_that_is_told.py RENDEZVOUS FOLDER [STEPS]

FOLDER takes what each rank did, `curve-<rank>.jsonl`, and holds what the test says by making files there: `end`, and
`die-<rank>`, which kills that rank in the middle of its next profiler session. With STEPS it ends after so many.
With LOAD_TORCH_NPU in the environment the device's plug-in is loaded, and the training stays on the CPU.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import mstxkit
from mstxkit.demo.loop import Trainer, TrainingSettings, join_ranks, leave_ranks


def main() -> None:
    """Train, alone at last if another rank is lost."""
    rendezvous, folder = sys.argv[1], Path(sys.argv[2])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else None
    if os.environ.get("LOAD_TORCH_NPU"):
        importlib.import_module("torch_npu")
    with mstxkit.capture():
        join_ranks(rendezvous)
        with mstxkit.stage("load_checkpoint"):
            trainer = Trainer(TrainingSettings())
        trainer.policy.register_forward_hook(lambda *_: die_if_told(folder))
        try:
            train(trainer, folder, steps)
        except RuntimeError:  # as a collective reports that another rank is dead
            train_alone(folder)
        leave_ranks()


def train(trainer: Trainer, folder: Path, steps: int | None) -> None:
    """Until rank 0 sees the end, for all ranks in the same step."""
    number = 0
    with (folder / f"curve-{dist.get_rank()}.jsonl").open("w") as curve:
        while goes_on(folder, number, steps):
            mstxkit.step(number)
            progress = vars(trainer.train_step(number))
            curve.write(json.dumps({**progress, "weights": digest(trainer.policy)}) + "\n")
            curve.flush()
            number += 1
            time.sleep(0.3)  # a core for the commands that run beside it


def goes_on(folder: Path, number: int, steps: int | None) -> bool:
    if steps is not None:
        return number < steps
    is_over = torch.tensor([int((folder / "end").exists())])
    dist.broadcast(is_over, 0)
    return not is_over.item()


def train_alone(folder: Path) -> None:
    """What a survivor goes on with, in steps of its own."""
    number = mstxkit.current_step() or 0
    while not (folder / "end").exists():
        number = mstxkit.step(number + 1)
        with mstxkit.stage("actor_update"):
            torch.ones(64, 64).sum()
        time.sleep(0.02)


def die_if_told(folder: Path, *_: Any) -> None:
    """SIGKILL inside a session: nothing of this process runs after it."""
    if (folder / f"die-{dist.get_rank()}").exists() and mstxkit.status().session:
        os.kill(os.getpid(), signal.SIGKILL)


def digest(model: torch.nn.Module) -> str:
    """Of every bit of the weights."""
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model.parameters())).hexdigest()


if __name__ == "__main__":
    main()
