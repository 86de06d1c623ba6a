"""Processes of ours beside a run: who judges it, who watches; and what they are tried with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from builders import lives

from mstxkit.store import job_file

JUDGE, WATCHMAN = "mstxkit.judging.judge_process", "mstxkit.incidents.watchman"
# What a rank does once it captures, until it is told to end.
TRAINS = """
    ending, step = threading.Event(), 0
    threading.Thread(target=lambda: (sys.stdin.readline(), ending.set()), daemon=True).start()
    while not ending.is_set():
        mstxkit.step(step)
        step += 1
        with mstxkit.stage("reward"):
            time.sleep(0.05)
"""
_BUSY = "import time\nwhile True: pass"


def pids(run: Path, *modules: str) -> list[int]:
    """Of the processes that were started with one of these modules and this run among their words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(run) in words and any(module.encode() in words for module in modules):
            found.append(int(folder.name))
    return found


def judged(run: Path) -> int:
    """Up to which step."""
    state = job_file.read_state(run, lives.run_id(run)) if (run / "run.json").exists() else None
    return max((role.step for role in state.roles), default=0) if state else 0


def free_port() -> int:
    """One that nobody listens at just now."""
    with socket.socket() as drawn:
        drawn.bind(("127.0.0.1", 0))
        return int(drawn.getsockname()[1])


def is_served(port: int) -> bool:
    """Is the page of figures there?"""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
            return b"mstxkit_members" in answer.read()
    except OSError:
        return False


@contextmanager
def busy_loops(count: int = 4) -> Iterator[None]:
    """Processes that take all the CPU that they can get."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
