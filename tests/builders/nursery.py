"""Forks many recording children, ends each at a random moment, and says what each had done by then. Not a test: run
by one.

    python nursery.py RUN KIND COUNT SEED     KIND: a signal's name, or os._exit

Each child keeps a journal in shared memory, one word a thread: 4 × number of its work + where in it the thread is. It
is written with a single store, so that it says the truth at any moment.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import sys
import threading
import time

import mstxkit
import mstxkit.capturing
from mstxkit import mstx_range, stage
from mstxkit.engine.choose import engine
from mstxkit.recorder import adopt  # imported before the forks: children only capture

OUTSIDE, ENTERING, INSIDE, LEAVING = range(4)
THREADS = 2
LIVES_AT_MOST_S = 0.04
# One in five dies at a moment counted from its birth, so perhaps before it has recorded anything.
DIES_YOUNG = 5
# Small banks: they rotate and are sealed all the time. So many that the sealer never falls behind.
LIMITS = {"bank_bytes": 16384, "banks": 24, "slots": 64, "rotate_bytes": 65536}
_BANKS_LATER = 1024  # numbers of a thread: five banks


def work(journal: memoryview, thread: int) -> None:
    with mstx_range(f"whole {thread}"):
        journal[THREADS + thread] = 1
        number = 0
        while True:
            number += 1
            journal[thread] = 4 * number + ENTERING
            with stage(f"part {thread}", number=number):
                journal[thread] = 4 * number + INSIDE
                with mstx_range("inner"):
                    pass
                journal[thread] = 4 * number + LEAVING
            journal[thread] = 4 * number + OUTSIDE
            if number % 16 == 0:
                time.sleep(0.0005)  # lets the sealer keep up
            while number % _BANKS_LATER == 0 and engine.full_bank() >= 0:
                time.sleep(0.0005)  # also where that gets no core


def child(run: str, rank: int, journal: memoryview, moment_s: float | None) -> None:
    sys.setswitchinterval(0.0005)
    mstxkit.identify(rank=rank)
    mstxkit.capture(run, **LIMITS)
    for thread in range(THREADS):
        threading.Thread(target=work, args=(journal, thread), daemon=True).start()
    if moment_s is None:
        time.sleep(60)
    die_after(moment_s, rank, journal)
    os._exit(0)


def die_after(moment_s: float, rank: int, journal: memoryview) -> None:
    deadline = time.monotonic() + 30
    while rank % DIES_YOUNG and not all(journal[THREADS : 2 * THREADS]) and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(moment_s)


def one_life(run: str, kind: str, rank: int, moment_s: float) -> dict[str, object]:
    journal = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    exits_itself = kind == "os._exit"
    pid = os.fork()
    if pid == 0:
        try:
            child(run, rank, journal, moment_s if exits_itself else None)
        finally:
            os._exit(99)
    if not exits_itself:
        die_after(moment_s, rank, journal)
        os.kill(pid, getattr(signal, kind))
    status = os.waitpid(pid, 0)[1]
    words = list(journal[: 2 * THREADS])
    return {"rank": rank, "status": status, "words": words[:THREADS], "began": words[THREADS:]}


def main(run: str, kind: str, count: str, seed: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chance = random.Random(seed)
    lives = [one_life(run, kind, rank, chance.uniform(0.0, LIVES_AT_MOST_S)) for rank in range(int(count))]
    while adopt.collect_dead(run):
        pass
    sys.stdout.write(json.dumps(lives))


if __name__ == "__main__":
    main(*sys.argv[1:])
