"""One rank of a job on gloo that hands work on, and notes itself what it hands to whom: what is recorded must be that.

`called_ranks.py KIND RUN RANK WORLD STEPS`: `pipeline` (by hand: blocking, isend and batches, tags, groups of some
ranks) or `pipelining` (torch's own). It leaves `<RUN>.<rank>.json`: for each step rows of [what, sender, receiver (or
members), which, stage, before, begun to wait, after], CLOCK_MONOTONIC ns; `which` is a number that went with the data.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Callable

import mstxkit

mstxkit.autopatch()
KIND, RUN = sys.argv[1], sys.argv[2]
RANK, WORLD, STEPS = map(int, sys.argv[3:6])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

now = time.monotonic_ns
notes: list[list[list[Any]]] = []


def note(what: str, ranks: list[int], which: int, before_ns: int, waits_ns: int = 0) -> None:
    notes[-1].append([what, ranks, which, mstxkit.current_stage(), before_ns, waits_ns or before_ns, now()])


class Mail:
    """Numbers what it sends to each, so that who receives knows which it was."""

    def __init__(self) -> None:
        self._sent: dict[tuple[int, int], int] = {}

    def letter(self, to: int, tag: int = 0) -> torch.Tensor:
        self._sent[to, tag] = self._sent.get((to, tag), -1) + 1
        return torch.tensor([float(self._sent[to, tag])])

    def send(self, to: int) -> None:
        letter, before = self.letter(to), now()
        dist.send(letter, to)
        note("send", [RANK, to], int(letter), before)

    def receive(self, of: int, tag: int = 0) -> None:
        letter, before = torch.zeros(1), now()
        dist.recv(letter, src=of, tag=tag)
        note("recv", [of, RANK], int(letter), before)

    def send_while(self, to: int, tag: int, work: Callable[[], None]) -> None:
        letter, before = self.letter(to, tag), now()
        sent = dist.isend(tensor=letter, dst=to, tag=tag)
        work()
        waits = now()
        sent.wait()
        note("send", [RANK, to], int(letter), before, waits)

    def exchange(self, other: int) -> None:
        """Both ways at once, as schedules do."""
        there, back, before = self.letter(other), torch.zeros(1), now()
        ops = [dist.P2POp(dist.isend, there, other), dist.P2POp(dist.irecv, back, other)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        note("send", [RANK, other], int(there), before)
        note("recv", [other, RANK], int(back), before)


def pipeline() -> None:
    """Forward down, backward up, a group of each half, and all at the end."""
    mail, counts = Mail(), {"half": -1, "all": -1}
    halves = [dist.new_group(list(range(WORLD // 2))), dist.new_group(list(range(WORLD // 2, WORLD)))]
    ranks = [rank for rank in range(WORLD) if rank * 2 // WORLD == RANK * 2 // WORLD]
    half = halves[RANK * 2 // WORLD]
    is_first, is_last = RANK == 0, RANK == WORLD - 1
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name before torch 2.13
    for number in range(STEPS):
        notes.append([])
        mstxkit.step(number)
        if not is_first:
            mail.receive(RANK - 1)  # before any stage of the step
        with mstxkit.stage("forward"):
            time.sleep(0.01)
        if not is_last:
            mail.send(RANK + 1)  # between stages
        with mstxkit.stage("backward"):
            if not is_last:
                mail.receive(RANK + 1, tag=7)
            if not is_first:
                mail.send_while(RANK - 1, 7, lambda: time.sleep(0.01))
        with mstxkit.stage("exchange"):
            mail.exchange(RANK ^ 1)
        with mstxkit.stage("optimizer"):
            counts["half"], before = counts["half"] + 1, now()
            dist.all_reduce(torch.ones(1), group=half)
            note("meet", ranks, counts["half"], before)
            counts["all"], before = counts["all"] + 1, now()
            gathered = gather(torch.zeros(WORLD), torch.ones(1), async_op=True)
            time.sleep(0.005)
            waits = now()
            gathered.wait()
            note("meet", list(range(WORLD)), counts["all"], before, waits)


def pipelining() -> None:
    """torch's own schedule: each stage notes when it began and ended to compute a microbatch."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    class Noted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = now()
            y: torch.Tensor = self.layer(x)
            if notes:
                note("forward", [RANK], 0, before)
            return y

    stage = PipelineStage(Noted(), RANK, WORLD, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).pow(2).mean())
    for number in range(-1, STEPS):
        if number >= 0:  # in the step before shapes are found out
            notes.append([])
            mstxkit.step(number)
        with mstxkit.stage("actor_update"):
            given = (torch.ones(8, 4),) if RANK == 0 else ()
            schedule.step(*given, **({"target": torch.zeros(8, 4)} if RANK == WORLD - 1 else {}))
        with mstxkit.stage("optimizer"):
            before = now()
            dist.barrier()
            if notes:
                note("meet", list(range(WORLD)), number, before)


def main() -> None:
    with mstxkit.capture(RUN):
        dist.init_process_group("gloo", init_method=f"file://{RUN}.store", rank=RANK, world_size=WORLD)
        {"pipeline": pipeline, "pipelining": pipelining}[KIND]()
        dist.barrier()
    Path(f"{RUN}.{RANK}.json").write_text(json.dumps(notes))
    dist.destroy_process_group()


main()
