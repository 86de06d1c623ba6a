"""Recording from 1, 2 and 4 threads at once: the cost of a range must not grow with them.

CPU time of the threads themselves, summed, in units of the same number of threads running the reference. They switch
every half millisecond, so that a batch really interleaves.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import threading
import time
from typing import Any, Callable

from .harness import MONOTONIC, NATIVE, Row, compile_loop, reference, spread
from .recording import STAGE, recording

VARIANTS = {"native": {**NATIVE, **MONOTONIC}}
THREADS = (1, 2, 4)
ROUNDS, PER_BATCH = 41, 40_000
Loop = Callable[[Any], None]


def measure(variant: str) -> list[Row]:
    """The ratio of one thread to the reference, then those of more threads to that of one."""
    from mstxkit import mstx_range

    sys.setswitchinterval(0.0005)
    loops = {
        "range": compile_loop('with mstx_range("x"): pass', {"mstx_range": mstx_range}),
        "reference": compile_loop("with o: pass", {"o": reference()()}),
        "empty": compile_loop("pass", {}),
    }
    with recording(native=True) as session:
        taken = _rounds(loops, session.drain)
        session.expect({"x": ROUNDS * sum(PER_BATCH // n * n for n in THREADS)})
    ratio = {n: _ratios(taken, n) for n in THREADS}
    growth = {n: [a / b for a, b in zip(ratio[n], ratio[1])] for n in THREADS}
    return [
        Row("threads.one", statistics.median(ratio[1]), "x", spread(ratio[1])),
        Row("threads.two", statistics.median(growth[2]), "x one thread", spread(growth[2])),
        Row("threads.four", statistics.median(growth[4]), "x one thread", spread(growth[4])),
    ]


def _rounds(loops: dict[str, Loop], drain: Callable[[], None]) -> dict[tuple[str, int], list[float]]:
    cases = [(name, n) for name in loops for n in THREADS]
    taken: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    draw = random.Random(1)
    for _ in range(ROUNDS):
        for name, n in draw.sample(cases, len(cases)):
            taken[name, n].append(_batch(loops[name], n))
            drain()
    return taken


def _batch(loop: Loop, threads: int) -> float:
    """CPU ns per statement, over all threads."""
    from mstxkit import stage

    gate = threading.Barrier(threads)
    spent: list[int] = []

    def work() -> None:
        ticks = itertools.repeat(None, PER_BATCH // threads)
        with stage(STAGE):
            gate.wait()
            began = time.thread_time_ns()
            loop(ticks)
            spent.append(time.thread_time_ns() - began)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(spent) / (PER_BATCH // threads * threads)


def _ratios(taken: dict[tuple[str, int], list[float]], n: int) -> list[float]:
    rounds = zip(taken["range", n], taken["reference", n], taken["empty", n])
    return [(with_range - empty) / (unit - empty) for with_range, unit, empty in rounds]
