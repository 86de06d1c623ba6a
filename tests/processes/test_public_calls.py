"""No public call raises into the program, whatever else goes on in its process: threads, forks, signals, shortages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from builders import soak

_BEFORE = """
import collections, gc, faulthandler, json, os, random, resource, shutil, signal, sys, threading, time, traceback
import mstxkit
from mstxkit.errors import MstxkitError

run, seconds = sys.argv[1], float(sys.argv[2])
target = mstxkit.Target("textwrap:shorten", stage="reward")
quiet = {"judge": 0, "hang_s": 0, "banks": 2, "bank_bytes": 16384}
raised = collections.Counter()

def decorate():
    @mstxkit.mstx_timer(stage="decorated")
    def f(x): return x
    return f(1)

def around(what):
    with what: pass

ASKED = {
    "status": mstxkit.status, "stage_times": mstxkit.stage_times, "stage_times of": lambda: mstxkit.stage_times(3),
    "metrics": mstxkit.metrics, "patch_report": mstxkit.patch_report, "current_stage": mstxkit.current_stage,
    "current_step": mstxkit.current_step, "step": mstxkit.step, "decorate": decorate,
    "identify": lambda: mstxkit.identify(rank=0, world_size=1),
    "mark": lambda: mstxkit.mark("m", n=1), "at_step": lambda: around(mstxkit.at_step(7)),
    "mstx_range": lambda: around(mstxkit.mstx_range("r", n=1)), "stage": lambda: around(mstxkit.stage("s", n=1)),
}
SLOW = {
    "autopatch": lambda: mstxkit.autopatch(targets=target), "unpatch": mstxkit.unpatch,
    "escalate": lambda: mstxkit.escalate("reward", run=run, ranks=0),
    "capture": lambda: around(mstxkit.capture(run, **quiet)),
}
# Who arranges or reads a run is told that it cannot be, where not even a file of ours can be opened.
TELLS = {"configure": lambda: mstxkit.configure({}), "open_run": lambda: mstxkit.open_run(run)}
assert set(mstxkit.__all__) <= {*ASKED, *SLOW, *TELLS, "mstx_timer", "Patch", "Seam", "Target"}

def tried(name, call):
    try:
        call()
    except MstxkitError as exc:  # what configures or asks may say that it cannot be
        raised[f"{name}: {exc}"] += name in ASKED
    except BaseException:
        raised[f"{name}: {traceback.format_exc()[-600:]}"] += 1

def all_calls():
    for name, call in ASKED.items(): tried(name, call)
"""
_AFTER = """
print(json.dumps({what: count for what, count in raised.items() if count}))
"""


def what_is_raised(run: Path, program: str, seconds: float = 2) -> object:
    """By public call and exception, in a process of its own."""
    code = _BEFORE + dedent(program) + _AFTER
    done = subprocess.run(
        [sys.executable, "-c", code, str(run), str(seconds)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "MSTXKIT_JUDGE": "0"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(300)
def test_no_call_raises_while_threads_use_new_names_fork_patch_start_and_stop(tmp_path: Path) -> None:
    found = what_is_raised(
        tmp_path / "run",
        """
        sys.setswitchinterval(1e-6)
        over, number = time.monotonic() + seconds, iter(range(1 << 40))

        def new_names():
            n = next(number)
            with mstxkit.mstx_range(f"new {n}"), mstxkit.stage(f"stage {n % 99}"): mstxkit.step(n)

        def fork():
            child = os.fork()
            if not child:
                faulthandler.dump_traceback_later(30, exit=True)
                raised.clear()
                all_calls()
                os._exit(bool(sum(raised.values())))
            raised["in a forked child"] += os.waitpid(child, 0)[1]

        def again(name, call):
            while time.monotonic() < over:
                tried(name, call)
                time.sleep(0.01 if name in {*SLOW, *TELLS, "fork"} else 0.0002)

        others = {"new names": new_names, "new names too": new_names, "fork": fork, **SLOW, **TELLS}
        with mstxkit.capture(run, **quiet):
            for of in {**ASKED, **SLOW, **TELLS}.items(): tried(*of)  # else a fork is in the midst of imports
        threads = [threading.Thread(target=again, args=of) for of in {**ASKED, **others}.items()]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
        soak.rounds(60, 2),
    )

    assert found == {}


@pytest.mark.parametrize("short_of", ["descriptors", "memory", "files"])
def test_no_call_raises_when_something_is_short(tmp_path: Path, short_of: str) -> None:
    found = what_is_raised(
        tmp_path / "run",
        """
        with mstxkit.capture(run, **quiet) as capture:
            all_calls()
            if SHORT == "descriptors":
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            elif SHORT == "files":
                shutil.rmtree(run)
                open(run, "w").close()
            else:
                used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
                limits = resource.getrlimit(resource.RLIMIT_AS)
                resource.setrlimit(resource.RLIMIT_AS, (used, limits[1]))
                full = []
                try:
                    while True: full.append(bytes(1 << 20))
                except MemoryError: pass
            for _ in range(20): all_calls()
            if SHORT == "memory":
                del full
                resource.setrlimit(resource.RLIMIT_AS, limits)
        """.replace("SHORT", repr(short_of)),
    )

    assert found == {}


def test_no_name_raises_that_is_used_for_the_first_time_when_no_descriptor_is_left(tmp_path: Path) -> None:
    """What it needs cannot be loaded then. Each name in a process of its own, which has loaded nothing of ours."""
    found = what_is_raised(
        tmp_path / "run",
        """
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for name, call in {**ASKED, **SLOW}.items():
            child = os.fork()
            if not child:
                raised.clear()
                tried(name, call)
                os._exit(bool(sum(raised.values())))
            raised[name] += os.waitpid(child, 0)[1]
        """,
    )

    assert found == {}


def test_no_call_raises_in_a_signals_handler_or_a_finalizer_in_the_midst_of_another(tmp_path: Path) -> None:
    found = what_is_raised(
        tmp_path / "run",
        """
        is_in = []

        def beside(*_):
            if not is_in:
                is_in.append(1)
                all_calls()
                for name in ("autopatch", "unpatch"): tried(name, SLOW[name])
                is_in.clear()

        class Cycle:
            def __init__(self): self.me = self
            __del__ = beside

        signal.signal(signal.SIGALRM, beside)
        over = time.monotonic() + seconds
        with mstxkit.capture(run, **quiet):
            all_calls()
            gc.set_threshold(50)
            while time.monotonic() < over:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.002))
                Cycle()
                all_calls()
                for name in ("autopatch", "unpatch"): tried(name, SLOW[name])
            signal.setitimer(signal.ITIMER_REAL, 0)
        """,
        soak.rounds(30, 1),
    )

    assert found == {}
