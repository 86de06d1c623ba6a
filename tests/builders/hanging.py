"""Ranks of a small job that hang, die or merely take long, each in a way that it is told; and the incidents of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Callable

from builders import beside, lives

from mstxkit.host import folders, life
from mstxkit.recorder import adopt
from mstxkit.store import incidents, run_file
from mstxkit.store.incidents import Incident

HANG_S = 1.0

RANK = """
    import ctypes, os, queue, signal, sys, threading, time, mstxkit

    def lock():
        held = threading.Lock()
        held.acquire()
        held.acquire(timeout=60)

    def native():
        mutex = ctypes.create_string_buffer(64)  # no signal ends that
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)

    def disk():
        with open(sys.argv[4], "wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())

    def stopped():
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)

    def killed():
        os.kill(os.getpid(), signal.SIGKILL)

    def killed_later():
        time.sleep(1.8)  # of 3: whoever waits is stuck before it is decided what that was
        killed()

    def grows():
        with open(sys.argv[4] + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
        blocks = []
        while len(blocks) < 1000:
            blocks.append(bytearray(b"x") * (1 << 23))

    def exits():
        os._exit(int(sys.argv[4]))

    def becomes_another():
        os.execv(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(20)"])

    def crash():
        ctypes.string_at(0)

    def raises():
        raise ValueError("no such reward")

    def raises_in_thread():
        thread = threading.Thread(target=raises, name="scorer")
        thread.start()
        thread.join()
        time.sleep(60)

    def waits():
        try:
            queue.Queue().get(timeout=60)
        except queue.Empty:
            pass

    def breakpoint_():
        import pdb
        pdb.set_trace()
        time.sleep(60)

    def progress():
        for _ in range(60):
            with mstxkit.mstx_range("sample"):
                time.sleep(0.1)

    def works_on():
        while True:
            progress()

    def waits_later():
        for _ in range(2):
            progress()
        with mstxkit.stage("actor_update"), mstxkit.mstx_range("gradients"):
            waits()

    def lock_later():
        for _ in range(3):
            progress()
        with mstxkit.stage("weight_load"), mstxkit.mstx_range("tensors"):
            lock()

    def computes():
        end = time.monotonic() + 6
        while time.monotonic() < end:
            pass

    def builds():
        import subprocess
        end = time.monotonic() + 6
        while time.monotonic() < end:  # as a compiler: each does little, and is gone before anybody looks twice
            subprocess.run([sys.executable, "-S", "-c", "sum(range(3_000_000))"])

    def compiles():
        end = time.monotonic() + 14
        while time.monotonic() < end:
            body = "def f(x):\\n return " + " + ".join(f"x.sin() * {time.monotonic()}" for _ in range(20))
            exec(body, names := {})
            sys.modules["torch"].compile(names["f"])(sys.modules["torch"].ones(8))

    def checkpoint():
        with mstxkit.stage("save_checkpoint"), mstxkit.mstx_range("shards"):
            time.sleep(6)

    def validates():
        with mstxkit.stage("evaluate"), mstxkit.stage("actor_generate"), mstxkit.mstx_range("greedy"):
            time.sleep(60)

    def waits_seconds():
        threading.Event().wait(4)

    def takes_four_seconds():
        for _ in range(40):
            time.sleep(0.1)

    def sleeps():
        time.sleep(60)

    def goes_on():
        sys.stdin.readline()

    def stalls():
        while sys.stdin.readline():
            mstxkit.mark("sample")

    def child_raises():
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=raises_later, name="worker")
        child.start()
        child.join()
        time.sleep(60)

    def raises_later():
        with mstxkit.mstx_range("worker's"):
            time.sleep(2)  # it is watched by then
            raises()

    if sys.argv[4] == "own handler":  # it is nobody else's to call
        signal.signal(signal.SIGURG, lambda *_: None)
    if sys.argv[3] == "compiles":
        import torch
    mstxkit.identify(rank=int(sys.argv[2]), world_size=2, role="actor")
    running = mstxkit.capture(sys.argv[1])
    with mstxkit.at_step(1), mstxkit.stage("actor_generate"):
        pass
    for _ in range(3):  # how long it takes is known
        with mstxkit.at_step(1), mstxkit.stage("reward"), mstxkit.mstx_range("score"):
            pass
    print("ready", flush=True)
    sys.stdin.readline()
    with running:
        with mstxkit.at_step(2), mstxkit.stage("reward"), mstxkit.mstx_range("score"):
            globals()[sys.argv[3]]()
        if sys.argv[3] == "goes_on":
            time.sleep(60)
"""


class Job:
    """Two ranks of a run, each of which does what it is told once both are watched.

    `places`: parents of the live files of each, which then are on a host of their own, as far as the run can tell.
    """

    def __init__(
        self, run: Path, *deeds: str, word: str = "", hang_s: float = HANG_S, places: list[Path] | None = None,
        program: str = RANK, **variables: str,
    ) -> None:  # fmt: skip
        self.run = run
        variables = {"MSTXKIT_HANG_S": str(hang_s), **variables}
        self.locks: list[Path] = []
        self.places = places or [Path(folders.SHARED_MEMORY)]
        where = [{"MSTXKIT_LIVE_FOLDER": str(place)} for place in places or ()]
        self.ranks = [
            lives.start(program, run, rank, deed, word, **variables, **(where[rank] if where else {}))
            for rank, deed in enumerate(deeds)
        ]
        try:
            self._begin(None if places is None else len(places))
        except BaseException:
            self.end()
            raise

    def _begin(self, hosts: int | None) -> None:
        for process in self.ranks:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "ready\n", process.stderr and process.stderr.read()
        assert lives.wait_until(self.is_watched), "nobody watches"
        assert hosts is None or lives.wait_until(lambda: len(list(self.run.glob("now/[!.]*"))) >= hosts)
        time.sleep(0.3)  # the watchman has seen all of them
        self.began_ns = time.time_ns()
        for process in self.ranks:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def is_watched(self) -> bool:
        """Does somebody hold the lock of the host's watchman?"""
        self.locks = self.locks or [lives.live_folder(self.run, str(p)) / "control-watch" for p in self.places]
        return all(life.has_holder(lock) for lock in self.locks)

    def incidents(self) -> list[Incident]:
        """Those that have come to something."""
        return incidents.read_incidents(self.run, run_file.id_of(self.run) or "")

    def incident(self, within_s: float = 15.0) -> Incident:
        """The first."""
        assert lives.wait_until(lambda: bool(self.incidents()), within_s), "no incident"
        return self.incidents()[0]

    def reports(self) -> list[dict[str, Any]]:
        """Of all processes, in the first incident."""
        of_hosts = incidents.reports_of(self.run, self.incidents()[0].incident, run_file.id_of(self.run) or "")
        return [report for reports in of_hosts.values() for report in reports]

    def end(self) -> None:
        """Kill what is left, and whoever is stopped."""
        for process in self.ranks:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait(timeout=lives.FINISHES_WITHIN_S)
        if (self.run / "run.json").exists():
            adopt.collect_dead(self.run)  # what killed ranks left
        lives.wait_until(lambda: not self.is_watched(), 10)


Start = Callable[..., Job]


def watchmen(job: Job) -> list[int]:
    """Of this run, by the words that they were started with."""
    return beside.pids(job.run, beside.WATCHMAN)


def follow(job: Job) -> list[int]:
    """Kill the watchman; its successors."""
    before = watchmen(job)
    assert before
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert lives.wait_until(lambda: bool(set(watchmen(job)) - set(before)), 90)
    return sorted(set(watchmen(job)) - set(before))


def go_on(job: Job) -> None:
    """Let rank 0 leave its range, or go on in it."""
    stream = job.ranks[0].stdin
    assert stream is not None
    stream.write("\n")
    stream.flush()
