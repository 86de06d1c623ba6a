"""What a training thread loses to all of it: capture, patches and standing by, at 5,000 ranges a second.

The thread follows pointers through memory that fits the second level of the cache (`near`) or only the third (`far`),
and calls a patched method every 200 us. `parts` measures in one process what adds up: the call in a tight loop; what it
costs more between such work, which pays for the lines that each has evicted: of single periods by the clock, the
medians of which are good for tens of ns where the means of all are not for hundreds; page faults, which are in the
first; CPU time of our own threads, all of it, as if they had no core of their own. Beside it what anybody's wrapper
costs there: a function in Python that calls the method and does nothing else (`a_wrapper`), and one that calls two
functions of the interpreter's own besides, as who notes a begin and an end must (`two_calls_in_a_wrapper`). `pairs` is
the whole, by wall time of whole processes, with mstxkit and without, beside pairs of which neither has it: what this
machine can resolve.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Mapping

from .bench_autopatch import Bare, patched
from .bench_control import spent_by_threads
from .harness import HERE, NATIVE, TSC, Row, build_extension, spread
from .recording import STEP, recording

VARIANTS = {"parts": {**NATIVE, **TSC, "RANK": "0", "WORLD_SIZE": "1"}, "pairs": {}}
PROCESSES = {"parts": 3, "pairs": 1}
PERIOD_NS, A_SECOND = 200_000, 5_000
SIZES = {"near": 256 << 10, "far": 8 << 20}
ROUNDS, CALLS = 60, 250
# Of the comparison by single periods: blocks of so many periods of each, 10 s together.
BLOCKS, PERIODS = 40, 300
BACKGROUND_S = 10.0
PAIRS, RUN_S, RESAMPLED = 12, 2.0, 2_000
# Of a process of a pair: links a call, as many in all of them, and calls between two looks at the clock.
LINKS, BLOCK = 8_000, 100
TARGET = {"role": "actor"}
Loop = Callable[[Any, int, int], None]


def measure(variant: str) -> list[Row]:
    """Percent of the training thread's time."""
    return _pairs() if variant == "pairs" else _parts()


def _loop(victim: Any) -> Loop:
    """Work and a call, so many times."""

    def loop(one: Any, hops: int, count: int) -> None:
        work, update = victim.work, one.update
        for _ in itertools.repeat(None, count):
            work(hops)
            update(1, k=2)

    return loop


def _parts() -> list[Row]:
    with recording(native=True, clock="tsc") as session:
        victim, bare, ours = build_extension("victim"), Bare(), patched({"whole": TARGET})["whole"]
        loop, rows, sums = _loop(victim), [], {}
        victim.make(SIZES["near"])
        warm = _difference(loop, bare, ours, 0, session.drain)
        faults = _faults_of(loop, ours, session.drain)
        rows += [_share("whole.call", warm), Row("whole.of_it_page_faults", faults, "%", 0.0)]
        calls = {"call_and_caches": ours, "a_wrapper": _Wrapped(), "two_calls_in_a_wrapper": _Noted()}
        for size, size_bytes in SIZES.items():
            victim.make(size_bytes)
            between = _in_periods(victim, bare, calls, session.drain)
            rows += [_share(f"whole.{name}_{size}", ns) for name, ns in between.items()]
            sums[size] = statistics.median(between["call_and_caches"])
        background, wakes = _background(loop, ours, _hops(victim))
        rows.append(Row("whole.own_threads", background, "%", 0.0, f"{wakes:.1f} wake-ups a second"))
    rows += [Row(f"whole.sum_{size}", _percent(ns) + background, "%") for size, ns in sums.items()]
    return rows


class _Wrapped(Bare):
    """What is patched, in a wrapper that does nothing."""

    def update(self, a: Any, k: int = 0) -> None:
        return Bare.update(self, a, k)


class _Noted(Bare):
    """What is patched, in a wrapper that calls something quick before and after."""

    def update(self, a: Any, k: int = 0) -> None:
        began = abs(1)
        returned = Bare.update(self, a, k)
        abs(began)
        return returned


def _in_periods(victim: Any, bare: Any, calls: Mapping[str, Any], drain: Callable[[], None]) -> dict[str, list[float]]:
    """ns that a call and the work after it take longer than a bare one and such work, by the medians of each block."""
    chance, hops, all_of_them = random.Random(1), _hops(victim), {"bare": bare, **calls}
    longer: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(BLOCKS):
        took: dict[str, list[int]] = {name: [] for name in all_of_them}
        for _ in range(PERIODS):
            for name in chance.sample(list(all_of_them), len(all_of_them)):
                took[name].append(_period_ns(victim.work, all_of_them[name], hops))
        drain()
        for name in calls:
            longer[name].append(statistics.median(took[name]) - statistics.median(took["bare"]))
    return longer


def _period_ns(work: Callable[[int], None], one: Any, hops: int) -> int:
    began = time.perf_counter_ns()
    one.update(1, k=2)
    work(hops)
    return time.perf_counter_ns() - began


def _percent(ns: float) -> float:
    return 100 * ns * A_SECOND / 1e9


def _share(key: str, ns: list[float]) -> Row:
    return Row(
        key, _percent(statistics.median(ns)), "%", _percent(spread(ns)), f"{statistics.median(ns):.0f} ns a call"
    )


def _hops(victim: Any) -> int:
    """So many links take the thread a period."""
    victim.work(400_000)
    began = time.thread_time_ns()
    victim.work(400_000)
    return int(PERIOD_NS * 400_000 / (time.thread_time_ns() - began))


def _difference(loop: Loop, bare: Any, ours: Any, hops: int, drain: Callable[[], None]) -> list[float]:
    """ns of thread CPU time that a patched call costs more than a bare one, round by round."""
    chance, found = random.Random(1), []
    for _ in range(ROUNDS):
        taken = {}
        for one in chance.sample([bare, ours], 2):
            began = time.thread_time_ns()
            loop(one, hops, CALLS)
            taken[one is ours] = time.thread_time_ns() - began
        drain()
        found.append((taken[True] - taken[False]) / CALLS)
    return found


def _faults_of(loop: Loop, ours: Any, drain: Callable[[], None]) -> float:
    """Percent: page faults of the thread in 50,000 calls, each as long as the first touch of fresh memory."""
    taken, calls = 0, 50_000
    for _ in range(calls // 5_000):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        loop(ours, 0, 5_000)
        taken += resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        drain()
    return _percent(taken / calls * _one_fault_ns())


def _one_fault_ns() -> float:
    import mmap

    pages = 4_000
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as fresh:
        began = time.thread_time_ns()
        for at in range(0, len(fresh), mmap.PAGESIZE):
            fresh[at] = 1
        first = time.thread_time_ns() - began
        began = time.thread_time_ns()
        for at in range(0, len(fresh), mmap.PAGESIZE):
            fresh[at] = 1
        return (first - (time.thread_time_ns() - began)) / pages


def _background(loop: Loop, ours: Any, hops: int) -> tuple[float, float]:
    """Percent of a core that our threads take while the training thread records at its pace, and their wake-ups."""
    loop(ours, hops, A_SECOND)
    before, began = spent_by_threads(os.getpid()), time.monotonic()
    while time.monotonic() < began + BACKGROUND_S:
        loop(ours, hops, A_SECOND // 10)
    seconds, after = time.monotonic() - began, spent_by_threads(os.getpid())
    assert threading.active_count() > 1, "nobody seals"
    return (after[0] - before[0]) / seconds / 1e7, (after[1] - before[1]) / seconds


def _pairs() -> list[Row]:
    """The whole, by wall time: the median of pairs, and in between which bounds 95 of 100 resampled medians lie."""
    chance = random.Random(1)
    took: dict[str, list[float]] = {name: [] for name in ("a", "b", "mstxkit")}
    for _ in range(PAIRS):
        for name in chance.sample(list(took), 3):
            took[name].append(_one_process(name == "mstxkit"))
    same = [100 * (b / a - 1) for a, b in zip(took["a"], took["b"])]
    with_it = [100 * (ours / a - 1) for a, ours in zip(took["a"], took["mstxkit"])]
    return [_row("whole.pairs_without", same, chance), _row("whole.pairs_with", with_it, chance)]


def _row(key: str, percents: list[float], chance: random.Random) -> Row:
    medians = sorted(statistics.median(chance.choices(percents, k=len(percents))) for _ in range(RESAMPLED))
    low, high = medians[RESAMPLED // 40], medians[-RESAMPLED // 40]
    return Row(key, statistics.median(percents), "%", spread(percents), f"95 % interval {low:+.2f} to {high:+.2f} %")


def _one_process(with_mstxkit: bool) -> float:
    """ns of a period of work and one call."""
    command = [sys.executable, "-m", "benchmarks.bench_whole", "mstxkit" if with_mstxkit else "bare"]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return float(done.stdout)


def _alone(with_mstxkit: bool) -> None:
    """One process of a pair."""
    victim = build_extension("victim")
    victim.make(SIZES["far"])
    if not with_mstxkit:
        print(_a_period_ns(_loop(victim), Bare()))
        return
    import mstxkit

    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder, mstxkit.capture(Path(folder) / "run"):
        mstxkit.step(STEP)
        with mstxkit.stage("actor_update"):
            print(_a_period_ns(_loop(victim), patched({"whole": TARGET})["whole"]))


def _a_period_ns(loop: Loop, one: Any) -> float:
    took, until = [], time.monotonic() + RUN_S
    while time.monotonic() < until:
        began = time.perf_counter_ns()
        loop(one, LINKS, BLOCK)
        took.append((time.perf_counter_ns() - began) / BLOCK)
    return statistics.median(took)


if __name__ == "__main__":
    _alone(sys.argv[1] == "mstxkit")
