"""A run of a few steps, and what its device did meanwhile, chosen so that every figure can be said in whole ms.

A step is 100 ms from its begin. `reference` goes from 0 to 30: a kernel from 5 to 25. `actor_update` goes from 30 to
90: kernels from 35 to 60 and from 50 to 65, a collective from 60 to 85, in which others are waited for until 75.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from builders.device_profiles import MS, PID, Device
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, anchor, new_run

STEP, ATTEMPT = 100 * MS, 60_000 * MS
STAGES = (("reference", 0, 30), ("actor_update", 30, 90))
REFERENCE = {"stage_ns": 30, "computing_ns": 20, "communicating_ns": 0, "free_ns": 10}
UPDATE = {"stage_ns": 60, "computing_ns": 30, "communicating_ns": 20, "free_ns": 10}
APART = {"transfer_ns": 10, "waiting_ns": 10}


def lengths(steps: int, even: bool = False) -> list[int]:
    """Begins of steps, ms: no two are equally long, as in life; or all of them."""
    begins, at = [], 0
    for step in range(steps):
        begins.append(at)
        at += 100 if even else 100 + (step * 7) % 11
    return begins


def run_of(
    path: Path,
    steps: int = 6,
    ranks: int = 1,
    even: bool = False,
    pids: tuple[int, ...] = (PID,),
    knows_ranks: bool = True,
) -> Path:
    """Sealed. Attempts of the job, ATTEMPT apart, have these pids in rank 0, and steps of the same lengths."""
    run = new_run(path)
    for (attempt, pid), rank in product(enumerate(pids), range(ranks)):
        bank, began = BankFiles(), attempt * ATTEMPT // MS
        for step, begin in enumerate(lengths(steps, even)):
            for name, start, end in STAGES:
                times = ((began + begin + offset) * MS for offset in (start, end))
                bank.range(name, *times, stage=name, own=True, step=attempt * steps + step)
        last = (began + lengths(steps)[-1] + 200) * MS
        anchors = (anchor(0), anchor(max(last, 10_000_000_000)))
        about = {"start": f"s{attempt}", "restart": attempt, "start_ns": WALL_OFFSET_NS + attempt * ATTEMPT}
        about |= {"rank": rank if knows_ranks else None, "world_size": ranks}
        ProcessFiles(run, pid + rank, anchors=anchors, **about).seal(bank)
    return run


def device_of(steps: int = 6, rank: int = 0, first: int = 0, late_ms: int = 0, even: bool = False) -> Device:
    """What the device of a rank did in the steps from `first` on; its ranges are those of the host.

    Args:
        late_ms: So much later it enters its collectives: it waits so much less in them.
    """
    device, at = Device(rank, pid=PID + rank), WALL_OFFSET_NS
    for begin in lengths(steps, even)[first:]:

        def times(start: int, end: int, begin: int = begin) -> tuple[int, int]:
            return at + (begin + start) * MS, at + (begin + end) * MS

        device.kernels += [times(5, 25), times(35, 60), times(50, 65)]
        device.collectives.append(("114", *times(60 + late_ms, 85)))
        device.waits.append(times(60 + late_ms, 75))
        device.moves.append(times(75, 85))
        device.ranges += [(name, *times(start, end)) for name, start, end in STAGES]
    device.window = at + lengths(steps)[first] * MS, at + (lengths(steps)[-1] + 100) * MS
    return device
