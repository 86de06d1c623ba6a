"""What a training thread loses with everything on: capture, patches, judging with verdicts that may act, the watchman,
metrics that are scraped each 15 s, and `metrics()` at each step. An upper bound, by the sum of its parts.

A part of the benchmark `whole`: `python -m benchmarks --only whole,everything`. CPU time throughout. Eight ranks of one
host, at three paces. `everything`: a step a second of ten stages, 5,000 calls a second of a patched method, which is
what a step loses at the most. `rollout`: a step of 5 s, and 100 calls a second, as where a token is made in 10 ms
(`decode_step` of vLLM-Ascend). `trainer`: a step of 5 s, and 50 calls in each, as a worker makes in verl 0.9.1's own
loop (51 in a job of `tests/builders/main_ppo.py`), where real steps take longer. Ranks wait for each other at the end
of each step.

The training thread's own share, after the sleeps of real ranks, in which everything has grown cold: steps, stages and
`metrics()` in full, and the calls of a rollout and a trainer, one after each sleep. 5,000 calls a second are measured
in a tight loop (what evicted lines cost besides is in `whole`, which needs an idle machine). What the clock itself
takes, called just after a sleep, and a call that is not patched, are measured in every other step, and left out. Beside
it, as if none had a core of its own: all threads of ours in a rank, and its share of the two processes of the host, its
watchman and the judge of the job, which but one host of a job has. A step is longer by what the training thread loses;
by the rest only where no core is free, so `..._sum` is beyond what a step loses.
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
from .bench_whole import A_SECOND, SIZES, TARGET, _difference, _loop, _share
from .harness import HERE, NATIVE, TSC, Row, build_extension
from .recording import recording

ALONE = {**NATIVE, **TSC, "RANK": "0", "WORLD_SIZE": "1", "MSTXKIT_HANG_S": "0"}
RANKS, STAGES, OF_STAGES = 8, 10, 0.96
SETTLES_S, SCRAPED_EVERY_S = 15.0, 15.0


class Pace(NamedTuple):
    """How quickly ranks go, and for how long that is measured."""

    step_s: float
    calls_a_s: int
    measured_s: float

    @property
    def is_tight(self) -> bool:
        """Come calls so close together that they are measured in a loop?"""
        return self.calls_a_s >= A_SECOND


PACES = {
    "everything": Pace(1.0, A_SECOND, 60.0),
    "rollout": Pace(5.0, 100, 90.0),
    "trainer": Pace(5.0, 10, 90.0),
}
VARIANTS = dict.fromkeys(PACES, ALONE)


class Spent(NamedTuple):
    """CPU time so far, ns: of our threads in each rank, of the watchman, of the judge."""

    threads: list[int]
    watchman: int
    judge: int


def measure(variant: str) -> list[Row]:
    """Percent of a core."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    pace = PACES[variant]
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder, ExitStack() as stack:
        ranks = [stack.enter_context(_rank(Path(folder), variant, rank)) for rank in range(RANKS)]
        before, after, seconds = _watched(Path(folder, "run"), ranks, pace.measured_s)
        said = [statistics.median(ns) for ns in zip(*map(_last_said, ranks))]
        _wait_for_end(Path(folder, "run"))
    thread = _of_thread(pace, *said)
    thread.append(Row("training_thread", sum(row.value for row in thread), "%", note="these three together"))
    return [row._replace(key=f"whole.{variant}_{row.key}") for row in _rows(thread, before, after, seconds)]


def _of_thread(pace: Pace, steps_ns: float, metrics_ns: float, calls_ns: float) -> list[Row]:
    def each_step(key: str, ns: float, note: str) -> Row:
        return Row(key, ns / pace.step_s / 1e7, "%", note=f"{ns / 1e3:.0f} us a step of {pace.step_s:g} s; {note}")

    calls = each_step("calls", calls_ns, f"{pace.calls_a_s} calls a second, each after a sleep")
    return [
        _of_calls() if pace.is_tight else calls,
        each_step("stages", steps_ns, f"{STAGES} stages and the step itself"),
        each_step("metrics", metrics_ns, "metrics()"),
    ]


def _rows(thread: list[Row], before: Spent, after: Spent, seconds: float) -> list[Row]:
    def percent(early: int, late: int) -> float:
        return (late - early) / seconds / 1e7

    threads = list(map(percent, before.threads, after.threads))
    watchman, judge = percent(before.watchman, after.watchman), percent(before.judge, after.judge)
    own, of_host = statistics.mean(threads), (watchman + judge) / RANKS
    scraped = f"of a core, for the whole job; scraped each {SCRAPED_EVERY_S:.0f} s"
    return [
        *thread,
        Row("own_threads", own, "%", note=f"mean of {RANKS} ranks; of the keeper {max(threads):.3f}"),
        Row("watchman", watchman, "%", note="of a core, for the whole host"),
        Row("judge", judge, "%", note=scraped),
        Row("sum", thread[-1].value + own + of_host, "%", note=f"with 1/{RANKS} of watchman and judge"),
    ]


def _of_calls() -> Row:
    with recording(native=True, clock="tsc") as session:
        victim, bare, ours = build_extension("victim"), Bare(), patched({"whole": TARGET})["whole"]
        victim.make(SIZES["near"])
        return _share("calls", _difference(_loop(victim), bare, ours, 0, session.drain))


def _rank(folder: Path, pace: str, rank: int) -> subprocess.Popen[str]:
    host = folder / "host"
    host.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.bench_everything", pace, str(folder / "run"), str(host)]
    more = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MSTXKIT_HANG_S": "30", "MSTXKIT_JUDGE": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **more}, cwd=HERE.parent, **pipes)


def _last_said(rank: subprocess.Popen[str]) -> list[float]:
    """Stop a rank; ns of its training thread's CPU time: for a step and its stages, `metrics()`, and its calls."""
    said, _ = rank.communicate("\n")
    return [float(word) for word in said.splitlines()[-1].split()]


def _watched(run: Path, ranks: list[subprocess.Popen[str]], measured_s: float) -> tuple[Spent, Spent, float]:
    """CPU time before and after, while somebody scrapes."""
    address = _address(run)
    time.sleep(SETTLES_S)
    before, began_s = _spent(run, ranks), time.monotonic()
    while time.monotonic() < began_s + measured_s:
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


def _train(pace: Pace, run: str, host: str) -> None:
    """One rank: until its standard input says so. What a step takes is said at the end."""
    import select

    import mstxkit

    timed, nothing = list[Taken](), list[Taken]()
    ours, bare = patched({"whole": TARGET})["whole"], Bare()
    with mstxkit.capture(run, live_folder=host, act="escalate", metrics="127.0.0.1:0"):
        while not select.select([sys.stdin], [], [], 0)[0]:
            timed.append(_step(mstxkit, [ours], 2 * len(timed), pace))
            _wait_for_all(pace)
            nothing.append(_step(mstxkit, [bare, ours], 2 * len(timed) - 1, pace))
            _wait_for_all(pace)
    taken, of_clock = (Taken(*map(statistics.median, zip(*steps))) for steps in (timed, nothing))
    print(taken.stages_ns - of_clock.nothing_ns, taken.metrics_ns, taken.calls_ns - of_clock.calls_ns)


def _wait_for_all(pace: Pace) -> None:
    """Until all ranks of this host begin their next step: their clock is the same."""
    time.sleep(pace.step_s - time.monotonic() % pace.step_s)


class Taken(NamedTuple):
    """Of one step: ns that the thread works for the step and its stages, for `metrics()`, for the first call after each
    sleep, and, at the end of each stage, for nothing.
    """

    stages_ns: float
    metrics_ns: float
    calls_ns: float
    nothing_ns: float


def _step(mstxkit: Any, called: list[Any], step: int, pace: Pace) -> Taken:
    """A step of stages that sleep.

    Args:
        called: What is patched, last; where something comes before it, only the clock and that are timed.
    """
    clock, spent_ns, calls_ns, nothing_ns = time.thread_time_ns, 0, 0, 0
    stage_s = OF_STAGES * pace.step_s / STAGES
    calls = round(pace.calls_a_s * pace.step_s / STAGES)
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
        calls_ns += _call(called, calls, 0.0 if pace.is_tight else stage_s / (calls + 1))
        time.sleep(stage_s if pace.is_tight else stage_s / (calls + 1))
        if len(called) > 1:
            began = clock()
            nothing_ns += clock() - began
        began = clock()
        stage.__exit__(None, None, None)
        spent_ns += clock() - began
    return Taken(spent_ns, metrics_ns, calls_ns, nothing_ns)


def _call(called: list[Any], calls: int, pause_s: float) -> int:
    """Call these so often, each time after a pause; ns that the thread works for the first of them."""
    clock, spent_ns = time.thread_time_ns, 0
    for _ in range(calls):
        if pause_s:
            time.sleep(pause_s)
        began = clock()
        called[0].update(1, k=2)
        spent_ns += clock() - began
        for other in called[1:]:
            other.update(1, k=2)
    return spent_ns


if __name__ == "__main__":
    _train(PACES[sys.argv[1]], *sys.argv[2:4])
