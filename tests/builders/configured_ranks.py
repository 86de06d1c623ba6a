"""Trainings of four ranks with the real torch_npu, each with another configuration, or none. Not a test: run by one,
under the stand-in CANN libraries.

    python configured_ranks.py FOLDER NAME=FILE… NAME=

Imports torch_npu once and forks from there: each rank of each training is a process of its own. FOLDER/<name>/ gets the
run and `rank<R>.json`: its pid, and the loss of each step, bit by bit.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch_npu

import mstxkit
import mstxkit.bootstrap.configured  # once, and not in each rank
from mstxkit.escalation.duty import beginning, first_step

RANKS, STEPS = 4, 7
STAGES = ("actor_generate", "actor_compute_log_prob", "actor_update")


def train(place: Path, rank: int) -> list[str]:
    """From the same weights in each training, with an all-reduce in each update. Steps count from 1."""
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for number in range(1, STEPS + 1):
        mstxkit.step(number)
        with mstxkit.stage("actor_generate"):
            batch = torch.full((4, 8), (rank + number) / 10)
        with mstxkit.stage("actor_compute_log_prob"), torch.no_grad():
            target = model(batch).tanh()
        with mstxkit.stage("actor_update"):
            optimizer.zero_grad()
            loss = (model(batch) - target).square().mean()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
        losses.append(loss.item().hex())
    dist.destroy_process_group()
    return losses


def live(place: Path, rank: int, config: str) -> None:
    """One rank, from the fork to the exit of its process."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), ASCEND_RT_VISIBLE_DEVICES=str(200 + rank))
    told: dict[str, Any] = {"pid": os.getpid()}
    with mstxkit.capture(place / "run", config=config or None, poll_every_s=0.05):
        told["losses"] = train(place, rank)
    (place / f"rank{rank}.json").write_text(json.dumps(told))


def forked(place: Path, rank: int, config: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        live(place, rank, config)
        status = 0
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()  # as the interpreter does at its exit, without seconds of freeing torch
    sys.stderr.flush()
    os._exit(status)


def main(folder: str, *configs: str) -> None:
    assert torch_npu.npu is not None
    torch.set_num_threads(1)
    # A busy machine puts no session off.
    beginning.WAITS_AT_MOST_S = beginning.ANSWERS_WITHIN_S = first_step.WAITS_AT_MOST_S = 60.0
    for name, _, config in (text.partition("=") for text in configs):
        place = Path(folder, name)
        place.mkdir()
        children = [forked(place, rank, config) for rank in range(RANKS)]
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * RANKS


if __name__ == "__main__":
    main(*sys.argv[1:])
