"""Starts `ddp_rank.py` on so many ranks, and says what its ranks have handed over, as a judge would see it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mstxkit.judging import entering
from mstxkit.judging.cpu_waits import CpuWaits
from mstxkit.judging.entering import EnteredSteps
from mstxkit.judging.evidence import Peer, RoleStep, Work
from mstxkit.store import collectives, handed_over, layout

PROGRAM = Path(__file__).with_name("ddp_rank.py")
ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 240
INTERVAL = np.dtype([("step", "<i8"), ("stage", "<i8"), ("entered_ns", "<i8"), ("left_ns", "<i8")])
# Of one collective a step; a ring that is longer than may be read at once is not read at all on a busy machine.
_RING = {"TORCH_FR_BUFFER_SIZE": "256"}


class DdpRun(NamedTuple):
    """What the ranks of one training left: by step, and the mean of a step in ms."""

    steps: dict[int, RoleStep]
    step_ms: float
    groups: dict[int, tuple[int, ...]]


def trained(folder: Path, ranks: int, variables: dict[str, str] | None = None, **options: Any) -> DdpRun:
    """Train for real, and read what came of it."""
    out = folder / "out"
    out.mkdir(parents=True)
    about = {"run": str(folder / "run"), "out": str(out), "flag": str(folder / "slow")}
    start(ranks, {**about, **options}, {"MSTXKIT_JUDGE": "0", **(variables or {})})
    return read(out, ranks)


def start(ranks: int, options: dict[str, Any], variables: dict[str, str] | None = None) -> None:
    """Run it to its end; how it failed is in the error."""
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={_free_port()}"]
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "GLOO_SOCKET_IFNAME": "lo", **_RING, **(variables or {}),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *launcher, str(PROGRAM), json.dumps(options)], env=environment, capture_output=True,
        text=True, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr[-4000:])


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def read(out: Path, ranks: int) -> DdpRun:
    """Steps as a judge gets them, of what each rank handed over."""
    told = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(ranks)]
    stages = list(dict.fromkeys(interval[1] for rank in told for interval in rank["intervals"]))
    intervals = [_intervals(rank["intervals"], stages) for rank in told]
    groups: dict[int, tuple[int, ...]] = {}
    entered = EnteredSteps()
    for rank in range(ranks):
        file = out / f"rank{rank}{layout.RINGS_SUFFIX}"
        new = handed_over.HandedOver(file, kind=handed_over.OF_COLLECTIVES).read_new()
        assert not new.document[collectives.WHY_NOT], f"rank {rank}'s ring: {new.document[collectives.WHY_NOT]}"
        groups.update(collectives.groups_in(new.document))
        entered.learn_groups(new.document)
        rows = entering.rows_in(new.rows)
        entered.put("", f"host-{rank}", rows, rows["entered_ns"] / 1e9, np.full(len(rows), -1), 0.0)
    numbers = sorted({int(step) for part in intervals for step in part["step"]})
    steps, cpu, counts = dict[int, RoleStep](), CpuWaits(), [list(rank["cpu"]) for rank in told]
    for number in numbers:
        steps[number] = entered.closed(role_step(number, stages, intervals), range(len(stages)))
    steps.update((step.step, step) for step in entered.due(0.0, at_once=True))
    for number, step in steps.items():
        for peer, left_s, waiting in zip(step.members, step.left_s, counts):
            while waiting and waiting[0][0] / 1e9 <= np.nanmax(left_s):
                cpu.take(peer.process, waiting.pop(0))
        steps[number] = step._replace(cpu=cpu.of(step.members))
    return DdpRun(steps, float(np.mean([rank["step_ms"] for rank in told])), groups)


def _intervals(raw: list[list[Any]], stages: list[str]) -> np.ndarray:
    return np.array([(step, stages.index(name), begin, end) for step, name, begin, end in raw], dtype=INTERVAL)


def role_step(step: int, stages: list[str], intervals: list[np.ndarray]) -> RoleStep:
    """One step of all ranks."""
    shape = len(intervals), len(stages)
    began, ended = np.full(shape, np.nan), np.full(shape, np.nan)
    for rank, rows in enumerate(intervals):
        here = rows[rows["step"] == step]
        began[rank, here["stage"]], ended[rank, here["stage"]] = here["entered_ns"] / 1e9, here["left_ns"] / 1e9
    unknown = np.full(shape, np.nan)
    took = ended - began
    peers = tuple(Peer(rank, "host", f"host-{rank}") for rank in range(len(intervals)))
    return RoleStep(
        "", step, peers, tuple(stages), began, ended, took, np.isfinite(took).astype(float),
        Work(unknown, unknown, unknown), np.zeros(len(intervals)),
    )  # fmt: skip
