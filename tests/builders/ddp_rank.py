"""One rank of a real training: DDP on gloo, with a fault put in where a test or benchmark wants it.

`python -m torch.distributed.run … ddp_rank.py OPTIONS`, options as JSON: `run` (folder), `out` (folder for what this
rank handed over), `kind` (input, forward, backward, optimizer, link, none) from `from_step` on, or `kinds`, pairs of
those; `rank` (which), `late_ms`, `steps`, `coarse` (one stage `actor_update`), `flag` (a file: a slow link),
`rings`, `base_ms` (for so long each stage waits besides computing, as for a device), `ask_every` (steps); `off_s`: each
rank is on a host of its own, whose wall clock is so many seconds wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import torch
import torch.distributed as dist
from other_host import move_to
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mstxkit
from mstxkit import stage, step
from mstxkit.recorder.handing_over import ran_and_waited_ns
from mstxkit.store import collectives, layout

WIDTH, LAYERS, BATCH = 128, 4, 32
_HANDED_OVER_WITHIN_S, _COUNTED_EVERY_NS = 20.0, 10**9


class Fault:
    """Sleeps in one rank, in one place, from one step on; of several places in turn, each from its step on."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._kinds = options.get("kinds") or [[options.get("from_step", 0), options["kind"]]]
        self._seconds = options.get("late_ms", 20) / 1000
        self._is_here, self._flag = dist.get_rank() == options.get("rank", 1), options.get("flag")
        self._kind, self._base_s = "none", options.get("base_ms", 0) / 1000

    def begin(self, number: int) -> None:
        self._kind = next((kind for first, kind in reversed(self._kinds) if number >= first), "none")
        if self._flag and self._is_here:
            Path(self._flag).touch() if self._kind == "link" else Path(self._flag).unlink(missing_ok=True)

    def at(self, place: str) -> None:
        time.sleep(self._base_s)
        if place == self._kind and self._is_here:
            time.sleep(self._seconds)


class SlowBackward(torch.autograd.Function):
    """The identity, with the fault in its gradient."""

    fault: Fault

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        SlowBackward.fault.at("backward")
        return gradient


class Loop:
    """A few layers, trained. `intervals`: step, stage, entered and left of each, CLOCK_MONOTONIC; `cpu`: once a second,
    as it is handed over.
    """

    def __init__(self, fault: Fault) -> None:
        self.intervals: list[tuple[int, str, int, int]] = []
        self.cpu: list[tuple[int, ...]] = []
        torch.manual_seed(1)
        self._fault, SlowBackward.fault = fault, fault
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        self._model = DistributedDataParallel(nn.Sequential(*layers))
        self._optimizer = torch.optim.SGD(self._model.parameters(), 1e-3)

    def load(self) -> torch.Tensor:
        self._fault.at("input")
        return torch.randn(BATCH, WIDTH)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        output = self._model(batch)
        self._fault.at("forward")
        loss: torch.Tensor = SlowBackward.apply(output).pow(2).mean()
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]

    def optimize(self) -> None:
        self._optimizer.step()
        self._fault.at("optimizer")

    def count_cpu(self) -> None:
        now_ns = time.monotonic_ns()
        if not self.cpu or now_ns - self.cpu[-1][0] >= _COUNTED_EVERY_NS:
            self.cpu.append((now_ns, *(ran_and_waited_ns() or (0, 0))))

    def fine_step(self, number: int) -> None:
        with self._stage(number, "load_batch"):
            batch = self.load()
        with self._stage(number, "forward"):
            loss = self.forward(batch)
        with self._stage(number, "backward"):
            self.backward(loss)
        with self._stage(number, "optimizer"):
            self.optimize()

    def coarse_step(self, number: int) -> None:
        with self._stage(number, "load_batch"):
            batch = self.load()
        with self._stage(number, "actor_update"):
            self.backward(self.forward(batch))
            self.optimize()

    @contextmanager
    def _stage(self, number: int, name: str) -> Iterator[None]:
        began_ns = time.monotonic_ns()
        with stage(name):
            yield
        self.intervals.append((number, name, began_ns, time.monotonic_ns()))


def live_folder(options: dict[str, Any]) -> str | None:
    """That of this rank's host; None: all are on this one."""
    if "off_s" not in options:
        return None
    rank, folder = int(os.environ["RANK"]), Path(options["run"]).with_name(f"live{os.environ['RANK']}")
    move_to(f"node-{rank}", options["off_s"][rank])
    folder.mkdir(mode=0o700)
    return str(folder)


def main() -> None:
    options = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    capture = mstxkit.capture(options["run"], rings=options.get("rings", True), live_folder=live_folder(options))
    dist.init_process_group("gloo")
    fault = Fault(options)
    loop = Loop(fault)
    began = time.monotonic_ns()
    for number in range(options.get("steps", 60)):
        fault.begin(number)
        step(number)
        loop.count_cpu()
        if options.get("ask_every") and dist.get_rank() == 0 and number % options["ask_every"] == 0:
            collectives.ask_rings(Path(mstxkit.status().live_file or "").parent)
        (loop.coarse_step if options.get("coarse") else loop.fine_step)(number)
    step_ms = (time.monotonic_ns() - began) / 1e6 / options.get("steps", 60)
    if options.get("out"):
        leave(Path(options["out"]), {"step_ms": step_ms, "intervals": loop.intervals, "cpu": loop.cpu})
    dist.barrier()
    capture.stop()
    dist.destroy_process_group()


def leave(out: Path, more: dict[str, Any]) -> None:
    """What this rank has handed over by now, for a test that has no agent."""
    file = Path(mstxkit.status().live_file or "")
    dist.barrier()
    if dist.get_rank() == 0:
        collectives.ask_rings(file.parent)
    until = time.monotonic() + _HANDED_OVER_WITHIN_S
    ring, asked_ns = file.with_suffix(layout.RINGS_SUFFIX), time.time_ns()
    while time.monotonic() < until and not (ring.exists() and ring.stat().st_mtime_ns > asked_ns):
        time.sleep(0.05)
    target = out / f"rank{dist.get_rank()}"
    for suffix in (layout.RINGS_SUFFIX, layout.HANDED_OVER_SUFFIX):
        if file.with_suffix(suffix).exists():
            shutil.copy(file.with_suffix(suffix), target.with_suffix(suffix))
    target.with_suffix(".json").write_text(json.dumps({**more, "pid": os.getpid()}))


if __name__ == "__main__":
    main()
