"""A job whose ranks die again and again, suddenly, in every way: what was read is counted against what each of them has
counted itself, in a mapping of its own that mstxkit knows nothing of.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from collections import Counter
from pathlib import Path

from builders import lives, soak
from typer.testing import CliRunner

from mstxkit.cli import build_application

DEATHS, RANKS = soak.rounds(230, 8), 3
# Entered and left, of the range outside and of the one inside of it.
_COUNTS = struct.Struct("<4Q")
LIVES = """
    import ctypes, mmap, os, struct, sys, time
    counts = mmap.mmap(os.open(sys.argv[2], os.O_RDWR | os.O_CREAT), 32)
    import mstxkit
    mstxkit.capture(sys.argv[1], seal_every_s=0.5)
    def count(place):
        struct.pack_into("<Q", counts, 8 * place, struct.unpack_from("<Q", counts, 8 * place)[0] + 1)
    ends_s, n = time.monotonic() + float(sys.argv[4]), 0
    os.write(1, b".")
    while True:
        mstxkit.step(n)
        n += 1
        count(0)
        with mstxkit.stage("update"):
            for _ in range(20):
                count(2)
                with mstxkit.mstx_range("work"):
                    if time.monotonic() > ends_s:
                        if sys.argv[3] == "SIGSEGV":
                            ctypes.string_at(0)
                        if sys.argv[3] == "os._exit":
                            os._exit(3)
                        os.kill(os.getpid(), 9)
                count(3)
        count(1)
        time.sleep(0.002)
"""


def test_nothing_is_lost_doubled_or_invented_by_any_sudden_death(run: Path, tmp_path: Path) -> None:
    chance = random.Random(soak.seed())
    logs: dict[int, Path] = {}
    living = []
    started = 0
    while started < DEATHS or living:
        while started < DEATHS and len(living) < RANKS:
            how, log = chance.choice(("SIGKILL", "SIGSEGV", "os._exit", "from outside")), tmp_path / f"log {started}"
            log.write_bytes(bytes(_COUNTS.size))
            ends_s = 600 if how == "from outside" else chance.uniform(0.05, 1.5)
            rank = lives.start(LIVES, run, log, how, ends_s, RANK=str(started % RANKS), WORLD_SIZE=str(RANKS))
            logs[rank.pid], started = log, started + 1
            assert rank.stdout is not None and rank.stdout.read(1) == "."
            living.append((rank, how, time.monotonic() + chance.uniform(0.05, 1.5)))
        for rank, how, due_s in list(living):
            if how == "from outside" and time.monotonic() > due_s:
                os.kill(rank.pid, signal.SIGKILL)
            if rank.poll() is not None:
                rank.communicate()
                living.remove((rank, how, due_s))
        time.sleep(0.02)

    assert CliRunner().invoke(build_application(), ["collect", str(run)]).exit_code == 0
    read = {pid: Counter[tuple[str, bool]]() for pid in logs}
    for row in lives.ranges(run):
        read[row["pid"]][row["name"], row["open"]] += 1
    for pid, log in logs.items():
        entered, left, begun, ended = _COUNTS.unpack(log.read_bytes())
        of = read[pid]
        assert of["update", False] in (left, left + 1) and of["work", False] in (ended, ended + 1), pid
        # What it was entering when it died may be open, or not be there yet.
        assert entered - 1 <= of["update", False] + of["update", True] <= entered, pid
        assert begun - 1 <= of["work", False] + of["work", True] <= begun, pid
    assert {row["pid"] for row in lives.processes(run)} == set(logs)
    assert lives.damage(run) == []
