"""What an entry that is kept costs the training thread: a call of torch.distributed with it over one without.

One rank on gloo, in CPU time of the calling thread, beside a `with` on an object of C that does nothing, in the same
process. `call`: an all-reduce with the wait that is in it, which are two calls of ours; `entry`: one of ours alone, as
around a method of a process group that takes no time.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"gloo": {}}
PROGRAM = """
import json, sys, tempfile, threading, time
import mstxkit
mstxkit.autopatch("torch")
import torch, torch.distributed as dist
from mstxkit.recorder import entries

torch.set_num_threads(1)
dist.init_process_group("gloo")
number, group, lock = torch.ones(1), dist.group.WORLD, threading.RLock()
bare, kept = (lambda self, *args: None), entries._wrap_entry(lambda self, *args: None, 1)
class Work:
    def wait(self):
        return True
waited, work = entries._wrap_wait(Work.wait), Work()

def ns(action, count):
    best = []
    for _ in range(15):
        began = time.thread_time_ns()
        for _ in range(count):
            action()
        best.append((time.thread_time_ns() - began) / count)
    return min(best)

def noop():
    with lock:
        pass

def wait_kept():
    entries._works[id(work)] = [0] * 6
    waited(work)

def wait_bare():
    entries._works[id(work)] = [0] * 6
    entries._works.pop(id(work))
    work.wait()

call = lambda: dist.all_reduce(number)
with mstxkit.capture(tempfile.mkdtemp()), mstxkit.stage("actor_update"):
    told = {
        "with": ns(noop, 20000) - ns(lambda: None, 20000),
        "entry": ns(lambda: kept(group, 1, 2), 20000) - ns(lambda: bare(group, 1, 2), 20000),
        "wait": ns(wait_kept, 20000) - ns(wait_bare, 20000), "on": ns(call, 300),
    }
told["idle"] = ns(call, 300)
mstxkit.unpatch()
told["off"] = ns(call, 300)
print(json.dumps(told))
dist.destroy_process_group()
"""


def measure(variant: str) -> list[Row]:
    """Ratios, and nanoseconds of CPU."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    environment = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "1", "RANK": "0",
        "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MSTXKIT_JUDGE": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True, timeout=300
    )
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    note = "a `with` on a C no-op is 1"
    return [
        Row("entries.entry_over_with", told["entry"] / told["with"], "x", note=f"{told['entry']:.0f} ns; {note}"),
        Row("entries.wait_over_with", told["wait"] / told["with"], "x", note=f"{told['wait']:.0f} ns; {note}"),
        Row("entries.call_over_bare", told["on"] / told["off"], "x", note="an all-reduce of one rank on gloo, kept"),
        Row("entries.idle_over_bare", told["idle"] / told["off"], "x", note="the same while nothing is recorded"),
    ]
