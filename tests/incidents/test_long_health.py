"""A long job that hangs nowhere, with rollouts of heavy tails whose engine nobody records: no incident. `make soak`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from builders import soak
from builders.hanging import Job

LASTS_S, HANG_S = 600.0, 1.2
pytestmark = [
    pytest.mark.skipif(not soak.is_soaking(), reason=f"takes {LASTS_S:.0f} s: make soak"),
    pytest.mark.timeout(LASTS_S + 120),
]
# Rollouts are those of `benchmarks/bench_incidents.py`, in a 25th of the time: samples end when a thread says so that
# is in no range and takes no CPU time, as an engine elsewhere.
RANK = """
    import queue, random, sys, threading, time, mstxkit

    mstxkit.identify(rank=int(sys.argv[2]), world_size=2, role="actor")
    running = mstxkit.capture(sys.argv[1])
    chance = random.Random(f"{sys.argv[3]} {sys.argv[2]}")

    def rollout():
        ended = queue.Queue()
        taken = [min(6.4, 0.8 * chance.lognormvariate(0, 0.8)) for _ in range(16)]
        for seconds in taken:
            threading.Timer(seconds, ended.put, ["sample"]).start()
        for _ in taken:
            mstxkit.mark(ended.get())

    def train():
        for _ in range(16):
            with mstxkit.mstx_range("micro_batch"):
                time.sleep(chance.uniform(0, 0.1))

    with mstxkit.stage("warm_up"):
        pass
    print("ready", flush=True)
    sys.stdin.readline()
    with running:
        for step in range(1 << 30):
            with mstxkit.at_step(step):
                with mstxkit.stage("actor_generate"):
                    rollout()
                with mstxkit.stage("actor_update"):
                    train()
                if step % 20 == 19:
                    with mstxkit.stage("save_checkpoint"):
                        time.sleep(3 * chance.random())
"""


def test_nobody_is_alarmed_as_long_as_a_healthy_job_lasts(tmp_path: Path) -> None:
    seed = str(soak.seed())
    job = Job(tmp_path / "run", seed, seed, hang_s=HANG_S, program=RANK)
    try:
        deadline_s = time.monotonic() + LASTS_S
        while time.monotonic() < deadline_s and not job.incidents():
            time.sleep(1)
        assert job.incidents() == [], f"MSTXKIT_TEST_SEED={seed}"
        assert all(rank.poll() is None for rank in job.ranks)
    finally:
        job.end()
