"""A pipeline of four processes that hand work on to each other: the verdict, and where the critical path runs.

python examples/07_pipeline.py [FOLDER]

Each rank has a part of the model. It passes micro-batches forward, then backward, and all meet for the optimizer. From
step 30 on rank 1 takes twice as long. The others are as late as it is, each for another reason: whoever comes after it
waits for it, whoever comes before it waits for what it sends back. Only rank 1 is named.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import mstxkit

RANKS, STEPS, MICRO, SLOW, SINCE = 4, 90, 4, 1, 30


def train(rank: int, folder: str, before: Connection | None, after: Connection | None, all_of_them: Any) -> None:
    """One rank; `before` and `after` are its neighbours."""
    mstxkit.capture(folder)
    mstxkit.identify(rank=rank, world_size=RANKS, role="actor")
    for step in range(STEPS):
        mstxkit.step()
        pace = 2.0 if rank == SLOW and step >= SINCE else 1.0
        all_of_them.wait()
        with mstxkit.stage("forward"):
            pass_on(before, after, 0.003 * pace)
        with mstxkit.stage("backward"):
            pass_on(after, before, 0.006 * pace)
        with mstxkit.stage("optimizer"):
            all_of_them.wait()
            time.sleep(0.004)


def pass_on(source: Connection | None, target: Connection | None, takes_s: float) -> None:
    """Receive, compute, send: once for each micro-batch."""
    for _ in range(MICRO):
        if source is not None:
            source.recv()
        time.sleep(takes_s)
        if target is not None:
            target.send(b"activations")


def main(folder: str) -> None:
    """Train, then say what was seen."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(RANKS - 1)]
    all_of_them = context.Barrier(RANKS)
    before, after = [None, *(pipe[1] for pipe in pipes)], [*(pipe[0] for pipe in pipes), None]
    ranks = [
        context.Process(target=train, args=(rank, folder, before[rank], after[rank], all_of_them))
        for rank in range(RANKS)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    run = mstxkit.open_run(folder)
    holding = run.verdicts().filter(run.verdicts()["withdrawn"].is_null())
    print(holding.select("kind", "stage", "rank", "since_step", "impact_ratio", "waits_for"))
    print(run.critical_path().select("step", "stage", "where", "rank", "duration_ns").tail(6))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="pipeline-"))
