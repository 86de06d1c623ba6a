"""Runs of two ranks that train with the real torch_npu while requests, cancels, signals and trouble come at random.
Not a test: run by one, under the stand-in CANN libraries.

    python escalated_lives.py FOLDER JOBS SECONDS SEED...

Imports torch_npu once and forks from there, before anything of it is initialised: each rank of each run is a process of
its own. Per seed FOLDER/<seed>/ gets the run, what each process printed, and `result.json`: what was done to whom.
Everything that is chosen comes from the seed; what meets what, from the host.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Iterator

import torch
import torch_npu

import mstxkit
import mstxkit.capturing
from mstxkit.errors import MstxkitError
from mstxkit.escalation import asking
from mstxkit.escalation.duty import duty
from mstxkit.recorder import adopt, sealer
from mstxkit.store import fate
from mstxkit.store.request import Known

STAGES = ("actor_update", "actor_generate", "advantage")
RANKS = 2
STEP_NS = 20_000_000
UP_WITHIN_S, ENDS_WITHIN_S = 60.0, 60.0
LIMITS = {"bank_bytes": 65536, "banks": 8, "slots": 64, "poll_every_s": 0.06, "cooldown_s": 0.02, "agreement_s": 1.0}
EXIT_ON_TERM = 143


def clock() -> int:
    """The step that training is in: the same on all ranks of the host, as collectives keep it."""
    return time.monotonic_ns() // STEP_NS % 1_000_000_000


# ---- one rank ----


class Rank:
    """What one process is told by whoever forks it."""

    def __init__(self, place: Path, run: Path, seed: int, rank: int, life: int, how: dict[str, Any]) -> None:
        self.place, self.run, self.rank, self.life, self.how = place, run, rank, life, how
        self.chance = random.Random(f"{seed}/{rank}/{life}")
        self.name = f"rank{rank}-{life}"

    def live(self) -> None:
        """From the fork to the exit of the process. Returns never."""
        status = 1
        try:
            self._take_the_stage()
            try:
                self._train()
                status = 0
            finally:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
        except SystemExit as exc:
            status = int(exc.code or 0)
        except BaseException:
            traceback.print_exc()
        # As the interpreter does at its exit, without seconds of freeing torch.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def _take_the_stage(self) -> None:
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(self.place / f"{self.name}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            os.dup2(file, number)
            os.close(file)
        if self.how["handles_term"]:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_ON_TERM))
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = str(self.how["device"] + self.rank)
        mstxkit.identify(rank=self.rank, world_size=RANKS)
        mstxkit.capture(self.run, light=self.how["light"], **LIMITS)

    def _train(self) -> None:
        loops, step, over = 0, clock(), self.place / "over"
        while not over.exists():
            while step >= clock():
                time.sleep(0.0005)
            step += 1
            mstxkit.step(step)
            for key in STAGES:
                try:
                    self._stage(key)
                except ZeroDivisionError:
                    pass
            loops += 1
        sys.stdout.write(f"OK {loops}\n")

    def _stage(self, key: str) -> None:
        with mstxkit.stage(key, rank=self.rank):
            with mstxkit.mstx_range("inner"):
                torch.ones(8).add_(1)
                time.sleep(0.001)
            if self.chance.random() < 0.2:
                with mstxkit.stage("inside"):
                    time.sleep(self.chance.uniform(0, 0.002))
            if self.chance.random() < 0.1:
                raise ZeroDivisionError


# ---- one run ----


class Conductor:
    """Starts the ranks of one run, and does to them what the seed says."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self.seed, self.chance, self.seconds = seed, random.Random(seed), seconds
        self.place = folder / str(seed)
        self.place.mkdir()
        self.trouble = self.chance.choice(["none", "none", "away", "full"])
        self.run = self.place / "run"
        self.how = {
            "light": self.chance.choice([None, None, "every 10 steps, 3 steps"]),
            "handles_term": self.chance.random() < 0.5,
            "device": 100 + RANKS * seed % 10_000,
        }
        self.living: dict[int, tuple[int, int]] = {}  # rank -> pid, life
        self.processes: list[dict[str, Any]] = []
        self.asked: list[Any] = []
        self.problems: list[str] = []

    def conduct(self) -> None:
        with self._disk():
            for rank in range(RANKS):
                self._start(rank, 0)
            self._wait_until_up()
            until = time.monotonic() + self.seconds
            while time.monotonic() < until:
                time.sleep(self.chance.uniform(0, 0.15))
                self._do_something()
            (self.place / "over").write_text("")
            for rank in list(self.living):
                self._await_end(rank)
            while adopt.collect_dead(self.run):
                pass
        result = {"processes": self.processes, "problems": self.problems, "trouble": self.trouble, **self.how}
        result["asked"] = [[request.id, list(request.ranks_in(RANKS, ()))] for request in self.asked]
        (self.place / "result.json").write_text(json.dumps(result))

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Where the run is: a small file system of its own where it is to be full for a while."""
        disk = self.place / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)]
        if self.trouble != "full" or subprocess.run(mount, capture_output=True).returncode:
            self.trouble = "none" if self.trouble == "full" else self.trouble
            yield
            return
        kept, self.run = self.run, disk / "run"
        try:
            yield
        finally:
            shutil.copytree(self.run, kept, symlinks=True)
            subprocess.run(["umount", "-l", str(disk)], check=True)

    def _start(self, rank: int, life: int) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            Rank(self.place, self.run, self.seed, rank, life, self.how).live()
        self.living[rank] = pid, life
        self.processes.append({"rank": rank, "life": life, "pid": pid, "killed_ns": None, "ended": None})

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + UP_WITHIN_S
        while len({one.rank for one in self._heard()}) < RANKS:
            if time.monotonic() > deadline:
                self.problems.append("the ranks did not go on duty")
                return
            time.sleep(0.01)

    def _heard(self) -> list[fate.Heard]:
        try:
            return fate.read_heard(asking.control_of(self.run))
        except MstxkitError:
            return []

    def _do_something(self) -> None:
        act = self.chance.choices(
            [self._ask, self._cancel, self._kill, self._terminate, self._restart, self._pause, self._make_trouble],
            [10, 2, 2, 1, 8, 1, 1],
        )[0]
        try:
            act()
        except MstxkitError as exc:
            if self.trouble != "full":
                self.problems.append(f"{act.__name__}: {exc}")

    def _ask(self) -> None:
        now_ns, chance = time.time_ns(), self.chance
        given: dict[str, Any] = {
            "stage": chance.choice(STAGES), "ranks": chance.choice([[0], [1], [0, 1], "all"]),
            "preset": chance.choice(["light", "kernels", "full"]), "occasion": str(len(self.asked)),
            "created_ns": now_ns, "expires_ns": now_ns + int(chance.choice([0.3, 20, 20, 20]) * 1e9),
        }  # fmt: skip
        given["occurrences" if chance.random() < 0.7 else "steps"] = chance.randint(1, 3)
        if chance.random() < 0.3:
            given["limits"] = {"seconds": chance.choice([0.001, 0.01]), "bytes": chance.choice([1, 1 << 20])}
        self.asked.append(asking.ask_ranks(self.run, given, also=Known(STAGES, range(RANKS), ())))

    def _cancel(self) -> None:
        if self.asked:
            asking.cancel_request(self.run, self.chance.choice(self.asked).id)

    def _kill(self) -> None:
        if self.living:
            rank = self.chance.choice(sorted(self.living))
            if self.chance.random() < 0.7:
                self._await_session(self.living[rank][0])
            self._signal(rank, signal.SIGKILL)
            if self.chance.random() < 0.6:
                self._restart()

    def _await_session(self, pid: int) -> None:
        """Until that process begins another session, or for a while; and a moment more."""
        deadline, profiles = time.monotonic() + 0.7, self.run / "profiles"
        known = {*profiles.glob(f"*/*/*/*-{pid}")}
        while time.monotonic() < deadline and not {*profiles.glob(f"*/*/*/*-{pid}")} - known:
            time.sleep(0.001)
        time.sleep(self.chance.choice([0, 0, 0.002, 0.01, 0.03]))

    def _terminate(self) -> None:
        if self.living:
            self._signal(self.chance.choice(sorted(self.living)), signal.SIGTERM)

    def _signal(self, rank: int, number: int) -> None:
        pid, life = self.living[rank]
        about = next(one for one in self.processes if (one["rank"], one["life"]) == (rank, life))
        is_fatal = number == signal.SIGKILL or not self.how["handles_term"]
        about["killed_ns"] = time.monotonic_ns() if is_fatal else None
        about["signal"] = number
        os.kill(pid, number)
        self._await_end(rank)

    def _await_end(self, rank: int) -> None:
        pid, life = self.living.pop(rank)
        about = next(one for one in self.processes if (one["rank"], one["life"]) == (rank, life))
        deadline, again = time.monotonic() + ENDS_WITHIN_S, time.monotonic() + 2
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                about["ended"] = os.waitstatus_to_exitcode(status)
                return
            if time.monotonic() > deadline:
                self.problems.append(f"rank {rank} (process {pid}) did not end")
                about["killed_ns"] = time.monotonic_ns()
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            if about.get("signal") == signal.SIGTERM and time.monotonic() > again:
                again += 2  # Python drops what a handler raises in a finalizer, such as that of torch_npu's profile
                os.kill(pid, signal.SIGTERM)
            time.sleep(0.002)

    def _restart(self) -> None:
        for rank in {*range(RANKS)} - {*self.living}:
            self._start(rank, sum(one["rank"] == rank for one in self.processes))

    def _pause(self) -> None:
        if self.living:
            pid = self.chance.choice(sorted(self.living.values()))[0]
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.chance.uniform(0, 0.3))
            os.kill(pid, signal.SIGCONT)

    def _make_trouble(self) -> None:
        """For a while nothing can be written into the control folder, or nowhere; ranks neither end nor begin then."""
        if self.trouble == "away":
            self._acks_away()
        elif self.trouble == "full":
            if self.living and self.chance.random() < 0.7:
                self._await_session(self.chance.choice(sorted(self.living.values()))[0])
            self._fill_the_disk()

    def _fill_the_disk(self) -> None:
        ballast = self.run.parent / "ballast"
        for piece in (b"x" * (1 << 20), b"x" * 512):  # to the last block
            with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as file:
                while file.write(piece):
                    pass
        time.sleep(self.chance.uniform(0.1, 0.5))
        ballast.unlink()

    def _acks_away(self) -> None:
        acks = self.run / "control" / "acks"
        away = acks.with_name("away")
        acks.rename(away)
        with contextlib.suppress(IsADirectoryError):  # a rank was faster, and made the folder anew
            acks.write_text("a file is where the folder was")
        time.sleep(self.chance.uniform(0.1, 0.5))
        with contextlib.suppress(IsADirectoryError):
            acks.unlink()
        with contextlib.suppress(OSError):  # there is one already: what a rank said in it is newer
            away.rename(acks)
        for file in away.iterdir() if away.exists() else ():
            with contextlib.suppress(FileExistsError):
                os.link(file, acks / file.name)
        shutil.rmtree(away, ignore_errors=True)


# ---- all runs ----


def quicken() -> None:
    """What takes seconds in a long run takes fractions of one here: messages to all, and going on duty."""
    policy = duty.policy_of
    duty.policy_of = lambda settings: policy(settings)._replace(transport_s=0.1)
    sealer._GOVERN_EVERY_NS = 50_000_000


def main(folder: str, jobs: str, seconds: str, *seeds: str) -> None:
    assert torch_npu.npu is not None and threading.active_count() == 1
    quicken()
    gc.freeze()
    waiting, running = [int(seed) for seed in seeds], set()
    while waiting or running:
        if waiting and len(running) < int(jobs):
            seed, pid = waiting.pop(0), os.fork()
            if pid == 0:
                status = 1
                try:
                    Conductor(Path(folder), seed, float(seconds)).conduct()
                    status = 0
                finally:
                    traceback.print_exc() if status else None
                    sys.stderr.flush()
                    os._exit(status)
            running.add(pid)
        else:
            running.discard(os.wait()[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
