"""Hangs of real processes, how soon each is named, and healthy rollouts of which none may be.

`hangs`: jobs of two ranks; one is held up, by a lock, by native code with the GIL, by SIGSTOP, or in its own code, the
other waits for it. From the moment at which the range began, by the wall clock; a limit of one second. `healthy`:
1,000 rollouts, the first 20 of each of 50 jobs, of 16 samples, lognormal with sigma 0.8, a median of 20 s, none longer
than 160 s: open ranges as the watchman sees them, looked at twice a second. `watchman`: CPU time of one that looks at
eight processes.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"hangs": {}, "healthy": {}, "watchman": {}}
HANGS, HANG_S, TOLERANCE_S, AT_ONCE = 50, 1.0, 5.0, 4
JOBS, ROLLOUTS, SAMPLES, MEDIAN_S, SIGMA, LONGEST_S, LOOKS_EVERY_S = 50, 20, 16, 20.0, 0.8, 160.0, 0.5
_LIMIT_S, _NS, _WITHIN_S = 30.0, 10**9, 20.0
DEEDS = ("lock", "native", "stopped", "own")
PROGRAM = """
import ctypes, os, queue, signal, sys, threading, time, mstxkit

def lock():
    held = threading.Lock()
    held.acquire()
    held.acquire()

def native():
    mutex = ctypes.create_string_buffer(64)  # no signal ends that
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)

deeds = {
    "lock": lock, "native": native, "own": lambda: time.sleep(1000),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP), "waits": lambda: queue.Queue().get(),
}
mstxkit.identify(rank=int(sys.argv[2]), world_size=2)
mstxkit.capture(sys.argv[1])
with mstxkit.at_step(0), mstxkit.stage("actor_generate"):
    pass
print("ready", flush=True)
sys.stdin.readline()
with mstxkit.at_step(1), mstxkit.stage("reward"), mstxkit.mstx_range("score"):
    print(time.time_ns(), flush=True)
    deeds[sys.argv[3]]()
    time.sleep(1000)
"""


def measure(variant: str) -> list[Row]:
    """Of one of the three."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    return {"hangs": _hangs, "healthy": _healthy, "watchman": _watchman}[variant]()


class _Job:
    """Two ranks, of which one is held up."""

    def __init__(self, folder: Path, deed: str, victim: int) -> None:
        self.run, self.deed, self.victim = folder, deed, victim
        self.ranks = [_started(folder, rank, deed if rank == victim else "waits") for rank in range(2)]

    def begin(self) -> None:
        """Once both are watched."""
        for process in self.ranks:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        stream = self.ranks[self.victim].stdout
        assert stream is not None
        self.began_ns = int(stream.readline())

    def named_after_s(self, deadline_s: float) -> float | None:
        """Seconds from the begin of the range to the incident that names it rightly; None where none does.

        Args:
            deadline_s: Of `time.monotonic`.
        """
        from mstxkit.store import incidents, layout, run_file

        while time.monotonic() < deadline_s:
            for incident in incidents.read_incidents(self.run, run_file.id_of(self.run) or ""):
                file = incidents.folder_of(self.run, incident.incident) / layout.INCIDENT_PAGE
                is_right = (incident.kind, incident.rank, incident.range) == ("hang", self.victim, "score")
                return (file.stat().st_mtime_ns - self.began_ns) / _NS if is_right else None
            time.sleep(0.02)
        return None

    def end(self) -> None:
        """Kill both, and leave nothing of them in shared memory."""
        _end(self.run, self.ranks)


def _end(run: Path, ranks: list[subprocess.Popen[str]]) -> None:
    from mstxkit.recorder import adopt

    for process in ranks:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    adopt.collect_dead(run)


def _started(run: Path, rank: int, deed: str, hang_s: float = HANG_S) -> subprocess.Popen[str]:
    more = {"MSTXKIT_HANG_S": str(hang_s), "MSTXKIT_JUDGE": "0", "PYTHONPATH": str(HERE.parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(run), str(rank), deed],
        env={**os.environ, **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def _hangs() -> list[Row]:
    named = [seconds for _ in range(-(-HANGS // AT_ONCE)) for seconds in _round()][:HANGS]
    in_time = [seconds for seconds in named if seconds is not None and seconds <= HANG_S + TOLERANCE_S]
    late_s = [seconds - HANG_S for seconds in named if seconds is not None]
    note = f"{HANGS} hangs, {', '.join(DEEDS)} in turn, {AT_ONCE} jobs at once"
    return [
        Row("incidents.hangs_missed", HANGS - len(in_time), "of 50", note=note),
        Row("incidents.hang_late_p50_s", statistics.median(late_s), "s", note="beyond the limit of 1 s"),
        Row("incidents.hang_late_max_s", max(late_s), "s", note="the same, the latest"),
    ]


_turn = iter(range(1 << 30))


def _round() -> Iterator[float | None]:
    with tempfile.TemporaryDirectory() as folder:
        places = [next(_turn) for _ in range(AT_ONCE)]
        jobs = [_Job(Path(folder) / str(n), DEEDS[n % len(DEEDS)], n // len(DEEDS) % 2) for n in places]
        try:
            time.sleep(3)  # both are watched
            for job in jobs:
                job.begin()
            deadline_s = time.monotonic() + _WITHIN_S
            yield from [job.named_after_s(deadline_s) for job in jobs]
        finally:
            for job in jobs:
                job.end()


def _healthy() -> list[Row]:
    drawn = random.Random(20261124)
    places = ("here", "elsewhere", "unseen")
    false = {where: sum(alarm for _ in range(JOBS) for alarm in _alarms(drawn, where)) for where in places}
    note = f"{ROLLOUTS} rollouts of each of {JOBS} jobs, looked at every {LOOKS_EVERY_S} s"
    return [
        Row("incidents.false_engine_here", false["here"], "of 1000", note=f"{note}; the engine works in the process"),
        Row("incidents.false_engine_elsewhere", false["elsewhere"], "of 1000", note=f"{note}; in another one"),
        Row("incidents.false_engine_unseen", false["unseen"], "of 1000", note="in one that nobody records"),
    ]


def _alarms(drawn: random.Random, where: str) -> Iterator[bool]:
    """Was anybody called stuck in each rollout of a job?"""
    from mstxkit.incidents import deciding
    from mstxkit.triggers.hang import Hang, QuietRange, limit_s, patience_s

    settings, past_s = Hang(), list[float]()
    works, waits = where == "here", {"process": "client", "waits": "others", "state": "sleeping"}
    engine = {"process": "engine", "works": True, "quiet_s": 0.1, "inside": [], "state": "running"}
    for ended in range(ROLLOUTS):
        ends_s = sorted(min(LONGEST_S, MEDIAN_S * drawn.lognormvariate(0, SIGMA)) for _ in range(SAMPLES))
        has_alarmed, now_s = False, 0.0
        while now_s < ends_s[-1]:
            quiet_s = now_s - max((end_s for end_s in ends_s if end_s <= now_s), default=0.0)
            limit = limit_s(settings, _LIMIT_S, QuietRange(quiet_s, past_s[-512:], works, "actor_generate"))
            if quiet_s > limit:
                times = {"quiet_s": quiet_s, "patience_s": patience_s(settings, limit, ended)}
                client = {**waits, "inside": [{"is_stuck": True, "since_ns": 1, **times}]}
                others = [engine] if where == "elsewhere" else []
                has_alarmed |= deciding.find_cause([client, *others], _LIMIT_S) is not None
            now_s += LOOKS_EVERY_S
        past_s.append(ends_s[-1])
        yield has_alarmed


def _watchman() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        ranks = [_started(run, rank, "waits", hang_s=30) for rank in range(8)]
        try:
            time.sleep(4)
            pid = _watchman_of(run)
            before, began = _cpu_s(pid), time.monotonic()
            time.sleep(10)
            share = (_cpu_s(pid) - before) / (time.monotonic() - began)
            memory_mb = _memory_mb(pid)
        finally:
            _end(run, ranks)
    return [
        Row("incidents.watchman_percent", 100 * share, "% of a core", note="eight processes, nobody is stuck"),
        Row("incidents.watchman_mb", memory_mb, "MB", note="its own memory"),
    ]


def _watchman_of(run: Path) -> int:
    from builders import beside

    pids = beside.pids(run, beside.WATCHMAN)
    assert pids, "nobody watches"
    return pids[0]


def _cpu_s(pid: int) -> float:
    """To the nanosecond, where `stat` has hundredths of a second."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / _NS


def _memory_mb(pid: int) -> float:
    lines: dict[str, Any] = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return int(lines["RssAnon"].split()[0]) / 1024
