"""What a training thread loses with everything on: capture, patches, judging with verdicts that may act, the watchman,
metrics that are scraped each 15 s, and `metrics()` at each step. An upper bound, by the sum of its parts.

A part of the benchmark `whole`: `python -m benchmarks --only whole,everything`. CPU time throughout. Eight ranks of one
host, a step a second of ten stages, 5,000 calls a second of a patched method. The training thread's own share: those
calls in a tight loop (what evicted lines cost besides is in `whole`, which needs an idle machine), and, after the
sleeps of real ranks, in which everything has grown cold, steps, stages and `metrics()` in full. What the clock itself
takes, called just after a sleep, is measured in every other step, where it times nothing, and is left out. Beside it,
as if none of them had a core of its own: all threads of ours in a rank, and its share of the two processes of the host,
its watchman and the judge of the job, which but one host of a job has. A step is longer by what the training thread
loses; by the rest only where no core is free, so `everything_sum` is beyond what a step loses.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from .bench_autopatch import Bare, patched
from .bench_control import spent_by_threads
from .bench_whole import SIZES, TARGET, _difference, _loop, _share
from .harness import HERE, NATIVE, TSC, Row, build_extension
from .recording import recording

ALONE = {**NATIVE, **TSC, "RANK": "0", "WORLD_SIZE": "1", "MSTXKIT_HANG_S": "0"}
VARIANTS: dict[str, dict[str, str]] = {"everything": ALONE}
RANKS, STAGES, CALLS_A_STAGE, STAGE_S = 8, 10, 500, 0.1
SETTLES_S, MEASURED_S, SCRAPED_EVERY_S = 15.0, 60.0, 15.0


class Spent(NamedTuple):
    """CPU time so far, ns: of our threads in each rank, of the watchman, of the judge."""

    threads: list[int]
    watchman: int
    judge: int


def measure(variant: str) -> list[Row]:
    """Percent of a core."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    call = _of_calls()
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder, ExitStack() as stack:
        ranks = [stack.enter_context(_rank(Path(folder), rank)) for rank in range(RANKS)]
        before, after, seconds = _watched(Path(folder, "run"), ranks)
        said = [_last_said(rank) for rank in ranks]
        steps_ns, metrics_ns = ([of_rank[place] for of_rank in said] for place in range(2))
        _wait_for_end(Path(folder, "run"))
    return _rows(call, steps_ns, metrics_ns, before, after, seconds)


def _rows(
    call: Row, steps_ns: list[float], metrics_ns: list[float], before: Spent, after: Spent, seconds: float
) -> list[Row]:
    def percent(ns: float) -> float:
        return ns / seconds / 1e7

    def each_step(key: str, ns: list[float], note: str) -> Row:
        at_s = statistics.median(ns) / 1e9
        return Row(
            key, 100 * at_s / (STAGES * STAGE_S), "%", note=f"{1e6 * at_s:.0f} us a step, a step a second; {note}"
        )

    threads = [percent(late - early) for early, late in zip(before.threads, after.threads)]
    watchman, judge = percent(after.watchman - before.watchman), percent(after.judge - before.judge)
    steps = each_step("whole.everything_stages", steps_ns, f"{STAGES} stages and the step itself")
    shown = each_step("whole.everything_metrics", metrics_ns, "metrics()")
    own, of_host = statistics.mean(threads), (watchman + judge) / RANKS
    thread = call.value + steps.value + shown.value
    scraped = f"of a core, for the whole job; scraped each {SCRAPED_EVERY_S:.0f} s"
    return [
        call,
        steps,
        shown,
        Row("whole.everything_training_thread", thread, "%", note="these three together"),
        Row("whole.everything_own_threads", own, "%", note=f"mean of {RANKS} ranks; of the keeper {max(threads):.3f}"),
        Row("whole.everything_watchman", watchman, "%", note="of a core, for the whole host"),
        Row("whole.everything_judge", judge, "%", note=scraped),
        Row("whole.everything_sum", thread + own + of_host, "%", note=f"with 1/{RANKS} of watchman and judge"),
    ]


def _of_calls() -> Row:
    with recording(native=True, clock="tsc") as session:
        victim, bare, ours = build_extension("victim"), Bare(), patched({"whole": TARGET})["whole"]
        victim.make(SIZES["near"])
        return _share("whole.everything_calls", _difference(_loop(victim), bare, ours, 0, session.drain))


def _rank(folder: Path, rank: int) -> subprocess.Popen[str]:
    host = folder / "host"
    host.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.bench_everything", str(folder / "run"), str(host)]
    more = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MSTXKIT_HANG_S": "30", "MSTXKIT_JUDGE": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **more}, cwd=HERE.parent, **pipes)


def _last_said(rank: subprocess.Popen[str]) -> list[float]:
    """Stop a rank; medians of its steps and of `metrics()`, ns of its training thread's CPU time."""
    said, _ = rank.communicate("\n")
    return [float(word) for word in said.splitlines()[-1].split()]


def _watched(run: Path, ranks: list[subprocess.Popen[str]]) -> tuple[Spent, Spent, float]:
    """CPU time before and after, while somebody scrapes."""
    address = _address(run)
    time.sleep(SETTLES_S)
    before, began_s = _spent(run, ranks), time.monotonic()
    while time.monotonic() < began_s + MEASURED_S:
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b"mstxkit_stage_seconds_max" in answer.read()
        time.sleep(SCRAPED_EVERY_S)
    return before, _spent(run, ranks), time.monotonic() - began_s


def _address(run: Path, within_s: float = 60.0) -> str:
    """Where figures are served, once steps are judged."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        time.sleep(0.2)
        try:
            document = json.loads((run / "verdicts/job.json").read_text())
        except (OSError, ValueError):
            continue
        notes = [note for note in document["notes"] if note.startswith("metrics at ")]
        if notes and document["roles"]:
            return str(notes[0].partition(" at ")[2])
    raise AssertionError("nobody judges")


def _spent(run: Path, ranks: list[subprocess.Popen[str]]) -> Spent:
    from builders import beside

    threads = [spent_by_threads(rank.pid)[0] for rank in ranks]
    return Spent(threads, _of_process(run, beside.WATCHMAN), _of_process(run, beside.JUDGE))


def _of_process(run: Path, module: str) -> int:
    """CPU time of the process of a run that this module is, ns."""
    from builders import beside

    (pid,) = beside.pids(run, module)
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def _wait_for_end(run: Path, within_s: float = 60.0) -> None:
    """Both see by themselves that the job is over."""
    from builders import beside

    deadline_s = time.monotonic() + within_s
    while beside.pids(run, beside.WATCHMAN, beside.JUDGE):
        assert time.monotonic() < deadline_s, "they do not end"
        time.sleep(0.2)


def _train(run: str, host: str) -> None:
    """One rank: until its standard input says so. What a step takes is said at the end."""
    import select

    import mstxkit

    taken_ns, clock_ns, ours = list[tuple[int, int]](), list[int](), patched({"whole": TARGET})["whole"]
    with mstxkit.capture(run, live_folder=host, act="escalate", metrics="127.0.0.1:0"):
        while not select.select([sys.stdin], [], [], 0)[0]:
            taken_ns.append(_step(mstxkit, ours, 2 * len(taken_ns), nothing=False)[:2])
            clock_ns.append(_step(mstxkit, ours, 2 * len(taken_ns) - 1, nothing=True)[2])
    steps, metrics = (statistics.median(of_step[place] for of_step in taken_ns) for place in range(2))
    print(steps - statistics.median(clock_ns), metrics)


def _step(mstxkit: Any, ours: Any, step: int, nothing: bool) -> tuple[int, int, int]:
    """A step of stages that sleep; ns that the thread works for step and stages, for `metrics()`, and, where that is
    what is timed after each sleep, for nothing.
    """
    clock, spent_ns, nothing_ns = time.thread_time_ns, 0, 0
    began = clock()
    mstxkit.step(step)
    spent_ns += clock() - began
    began = clock()
    mstxkit.metrics()
    metrics_ns = clock() - began
    for name in [f"stage {number}" for number in range(STAGES)]:  # a text anew: none is known by its address
        began = clock()
        stage = mstxkit.stage(name)
        stage.__enter__()
        spent_ns += clock() - began
        for _ in range(CALLS_A_STAGE):
            ours.update(1, k=2)
        time.sleep(STAGE_S)
        if nothing:
            began = clock()
            nothing_ns += clock() - began
        began = clock()
        stage.__exit__(None, None, None)
        spent_ns += clock() - began
    return spent_ns, metrics_ns, nothing_ns


if __name__ == "__main__":
    _train(*sys.argv[1:3])
