"""What rings cost: an entry of torch's own, and a reading of ours, which holds the GIL.

One rank on gloo, all-reduces of one number, in CPU time of the calling thread: with a ring of 512 entries over
without one, each in fresh processes. With two ranks their waiting would be most of it. The reading is of a full ring.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"gloo": {}}
PROCESSES = 3
PROGRAM = """
import json, sys, time
import torch, torch.distributed as dist
from mstxkit.recorder.torch_rings import find_ring

torch.set_num_threads(1)
dist.init_process_group("gloo")
number = torch.ones(1)

def entry_ns(count=400):
    began = time.thread_time_ns()
    for _ in range(count):
        dist.all_reduce(number)
    return (time.thread_time_ns() - began) / count

entry_ns(600)
costs = [entry_ns() for _ in range(9)]
ring = find_ring()
reads = [ring.read() for _ in range(9)] if ring else []
if dist.get_rank() == 0:
    print(json.dumps({
        "entry_ns": sorted(costs)[4], "entries": len(reads[-1].entries) if reads else 0,
        "held_ms": sorted(read.cpu_ns for read in reads)[4] / 1e6 if reads else 0,
        "count_us": min(_count_us(ring) for _ in range(9)) if ring else 0,
    }))
dist.barrier()
dist.destroy_process_group()
"""
_COUNT = """
def _count_us(ring):
    import time
    began = time.perf_counter_ns()
    ring.count()
    return (time.perf_counter_ns() - began) / 1000
"""


def measure(variant: str) -> list[Row]:
    """A ratio, and milliseconds of CPU."""
    off, on, torchs_own = (_run(size) for size in ("0", "512", "2000"))
    more_ns = on["entry_ns"] - off["entry_ns"]
    return [
        Row(
            "rings.entry_over_none", on["entry_ns"] / off["entry_ns"], "x", note=f"{more_ns:.0f} ns an all-reduce more"
        ),
        Row("rings.read_held_ms", on["held_ms"], "ms", note=f"GIL, at a time; {on['entries']} entries"),
        Row("rings.read_2000_held_ms", torchs_own["held_ms"], "ms", note="torch's default ring: not read when full"),
        Row("rings.look_us", on["count_us"], "us", note="how many entries there are"),
    ]


def _run(size: str) -> dict[str, float]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    environment = {
        **os.environ, "TORCH_FR_BUFFER_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "WORLD_SIZE": "1", "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    command = [sys.executable, "-c", _COUNT + PROGRAM]
    done = subprocess.run(command, env={**environment, "RANK": "0"}, capture_output=True, check=True, timeout=300)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured
