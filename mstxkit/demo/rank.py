"""One rank of the demo: the loop of `loop.py`, and the mishaps it is asked to suffer.

A mishap hangs on a model from outside, as a hook, so that the loop stays an example to read.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from typing import Any, Callable

import torch
import torch.distributed as dist

from mstxkit import capture, current_step
from mstxkit.demo.loop import Trainer, TrainingSettings, join_ranks, leave_ranks, make_parser

SLOW_TOKEN_S = 0.02
SLOW_GRADIENT_S = 0.03


def slow_down_behind_barrier(trainer: Trainer) -> None:
    """Every backward pass of this rank takes longer: actor_update is then as long on all ranks, which wait in there."""

    def slow_gradient(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda _gradient: time.sleep(SLOW_GRADIENT_S))  # type: ignore[no-untyped-call]

    trainer.policy.register_forward_hook(slow_gradient)


def suffer_at(trainer: Trainer, fatal_step: int, mishap: Callable[[], None]) -> None:
    """The mishap comes in the first forward pass of that step's actor_update."""

    def suffer(*_: Any) -> None:
        if torch.is_grad_enabled() and current_step() == fatal_step:
            mishap()

    trainer.policy.register_forward_hook(suffer)


def hang_for_ever() -> None:
    """Wait for a lock that nobody opens."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def main() -> None:
    """Record, join, train, and suffer what the options ask for besides those of the loop."""
    parser = make_parser()
    parser.add_argument("--slow", action="store_true", help="generate slowly")
    parser.add_argument("--slow-behind-barrier", action="store_true", help="compute gradients slowly")
    parser.add_argument("--die-at", type=int, help="die in this step")
    parser.add_argument("--hang-at", type=int, help="hang in this step")
    parser.add_argument("--may-lose-peers", action="store_true", help="end quietly when another rank dies")
    options = parser.parse_args()
    kill_itself = partial(os.kill, os.getpid(), signal.SIGKILL)  # nothing of this process runs after it
    with capture(options.run):
        join_ranks(options.rendezvous)
        trainer = Trainer(TrainingSettings(seed=options.seed, steps=options.steps))
        if options.slow:
            trainer.rollout.register_forward_hook(lambda *_: time.sleep(SLOW_TOKEN_S))
        if options.slow_behind_barrier:
            slow_down_behind_barrier(trainer)
        for step, mishap in ((options.die_at, kill_itself), (options.hang_at, hang_for_ever)):
            if step is not None:
                suffer_at(trainer, step, mishap)
        try:
            trainer.train(options.every, options.curve)
        except RuntimeError as lost:  # as a collective reports the death of another rank
            if not options.may_lose_peers:
                raise
            # gloo names its own source line in brackets first, and gives advice after the first sentence.
            reason = str(lost).splitlines()[0].split("] ", 1)[-1].split(". ")[0]
            gone = f"another rank is gone in step {current_step()}"
            print(f"rank {dist.get_rank()}: {gone}: {reason}. Ending.", flush=True)
        finally:
            leave_ranks()


if __name__ == "__main__":
    main()
