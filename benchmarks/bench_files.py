"""What a process on duty asks of the run folder and of its environment's folder, each second: the file system that a
whole cluster shares answers for all of them.

Ranks of one host under `capture()` with its defaults, `strace` attached to them. Counted is every call that names a
file below a folder, or asks about an open one, but reading and writing themselves. `idle`: nothing is recorded; `busy`:
5,000 ranges a second. What is done once for a host is told apart: `host` is what the others ask
more than the rank that asks least, and all that the host's watchman does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Iterator

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"idle": {}, "busy": {}}
RANKS, RANGES_A_SECOND = 3, 5000
# The first seal loads what it packs with; who records nothing is looked at rarely after some seconds.
# Some calls come once in a minute: the window holds several.
SETTLES_S, MEASURED_S = 50.0, 120.0
_DATA = ("read", "pread64", "write", "pwrite64", "close", "lseek", "mmap", "munmap", "poll", "getdents64")


def measure(variant: str) -> list[Row]:
    """Calls a second: the rank that asks least, and what all others of the host ask more than it."""
    if shutil.which("strace") is None:
        raise RuntimeError("strace is needed: it counts the calls")
    sys.path.insert(0, str(HERE.parent / "tests"))
    from builders import beside

    with tempfile.TemporaryDirectory() as folder, _job(Path(folder), variant) as pids:
        time.sleep(SETTLES_S)
        watchman = beside.pids(Path(folder, "run"), beside.WATCHMAN)
        assert len(watchman) == 1, watchman
        traces = _traced([*pids, *watchman], Path(folder))
        *calls, of_watchman = [_calls(trace, Path(folder)) for trace in traces]
    run = sorted(sum(asked["run"].values()) / MEASURED_S for asked in calls)
    watching = sum(of_watchman["run"].values()) / MEASURED_S
    environment = max(sum(asked["environment"].values()) / MEASURED_S for asked in calls)
    most = max((asked["run"] for asked in calls), key=lambda asked: sum(asked.values()))
    note = ", ".join(f"{count / MEASURED_S:.2f} {name}" for name, count in most.most_common(6))
    once = sum(run) - RANKS * run[0] + watching
    return [
        Row(f"files.{variant}_rank_per_s", run[0], "/s", note=f"{RANKS} ranks of one host"),
        Row(
            f"files.{variant}_host_per_s",
            once,
            "/s",
            note=f"once a host; the watchman {watching:.2f}, the rank that asks most: {note}",
        ),
        Row(f"files.{variant}_environment_per_s", environment, "/s"),
    ]


@contextmanager
def _job(folder: Path, variant: str) -> Iterator[list[int]]:
    (folder / "host").mkdir(mode=0o700)
    with ExitStack() as stack:
        ranks = []
        for rank in range(RANKS):
            command = [
                sys.executable,
                "-m",
                "benchmarks.bench_files",
                str(folder / "run"),
                str(folder / "host"),
                variant,
            ]
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
            process = subprocess.Popen(command, env=env, cwd=HERE.parent, stdin=subprocess.PIPE)
            ranks.append(stack.enter_context(process))
        try:
            yield [process.pid for process in ranks]
        finally:
            for process in ranks:
                process.communicate()


def _traced(pids: list[int], folder: Path) -> list[str]:
    files = [folder / f"trace{pid}" for pid in pids]
    command = ["strace", "-f", "-y", "-qq", "-e", "trace=%file,%desc"]
    tracers = [subprocess.Popen([*command, "-o", file, "-p", str(pid)]) for file, pid in zip(files, pids)]
    time.sleep(MEASURED_S)
    for tracer in tracers:
        tracer.terminate()
        tracer.wait()
    return [file.read_text(errors="replace") for file in files]


def _calls(trace: str, folder: Path) -> dict[str, Counter[str]]:
    """Names of calls that ask something of the run folder, and of the environment's folders."""
    places = {"run": [str(folder / "run")], "environment": [*{*sysconfig.get_paths().values()}, str(HERE.parent)]}
    asked: dict[str, Counter[str]] = {name: Counter() for name in places}
    for line in trace.replace(f"AT_FDCWD<{HERE.parent}>", "").splitlines():
        called = re.match(r"(?:\d+ +)?(\w+)\((.*)", line)
        if called is None or called[1] in _DATA or called[2].startswith('"/proc/'):
            continue  # the kernel says itself what an open file is called
        for name, folders in places.items():
            asked[name][called[1]] += any(place in called[2] for place in folders)
    return {name: +counted for name, counted in asked.items()}


def _rank(run: str, host: str, variant: str) -> None:
    """One rank: it has entered its stage once, and records, or waits, until its standard input is closed."""
    import select

    import mstxkit

    with mstxkit.capture(run, live_folder=host):
        with mstxkit.stage("actor_update"):
            pass
        at_once = RANGES_A_SECOND // 100
        while not select.select([sys.stdin], [], [], 0.01 if variant == "busy" else None)[0]:
            for _ in range(at_once):
                with mstxkit.mstx_range("work"):
                    pass


if __name__ == "__main__":
    _rank(*sys.argv[1:4])
