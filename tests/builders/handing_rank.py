"""A rank of a job: a real process that captures, and hands over summaries of steps as an engine would.

    python handing_rank.py RUN START_NS STEPS STEP_MS SLOW_RANK [LIVE_FOLDER]

HOST_NAME puts it on a host of its own, whose wall clock is WALL_OFF_S wrong.

Step k lasts from START_NS + k * STEP_MS; in its first half each rank generates, then all update together. The slow one
takes half as long again to generate, for the same work.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

import mstxkit
from mstxkit.host import identity
from mstxkit.recorder import current
from mstxkit.store.handed_over import SummaryRing
from mstxkit.store.summaries import StageSummary

STAGES = ("actor_generate", "actor_update")
_MS = 1_000_000


def rows_of(step: int, rank: int, slow: int, begin_ns: int, step_ns: int, size: int = 100) -> bytes:
    """Both stages of one step; `size` tokens."""
    noise = random.Random(step * 1000 + rank).uniform(0.98, 1.02)
    took_ns = int(step_ns * (0.45 if rank == slow else 0.3) * noise)
    middle_ns, left_ns = begin_ns + took_ns, begin_ns + int(step_ns * 0.9)
    first = StageSummary(step, 1, 1, begin_ns, middle_ns, took_ns, None, took_ns, size)
    second = StageSummary(step, 2, 1, middle_ns, left_ns, left_ns - middle_ns, None, left_ns - middle_ns)
    return first.pack() + second.pack()


def hand_over(start_ns: int, steps: int, step_ms: float, slow: int, first: int = 0) -> None:
    """Step after step of this process, which captures."""
    assert current.recorder is not None
    rank, step_ns = identity.read_current()["rank"] or 0, int(step_ms * _MS)
    ring = SummaryRing(Path(current.recorder.live.path).with_suffix(".sums"))
    who = identity.of_process(current.recorder.run_id, True, "0")
    mstxkit.step(first)  # whoever is in no step, and alone on its host, hands nothing on
    for step in range(first, steps):
        begin_ns = start_ns + step * step_ns
        time.sleep(max(0.0, (begin_ns + step_ns - time.monotonic_ns()) / 1e9))
        ring.put(rows_of(step, rank, slow, begin_ns, step_ns), {"stages": list(STAGES), "step": step + 1, "who": who})
    ring.put(b"", {"stages": list(STAGES), "step": steps, "end": True, "who": who})


def figures(within_s: float) -> dict[str, float]:
    """Those that come within so many seconds."""
    deadline = time.monotonic() + within_s
    while not mstxkit.metrics() and time.monotonic() < deadline:
        time.sleep(0.1)
    return mstxkit.metrics()


if __name__ == "__main__":
    run, start, count, lasts, who, *live = sys.argv[1:]
    if os.environ.get("HOST_NAME"):
        from other_host import move_to

        move_to(os.environ["HOST_NAME"], float(os.environ.get("WALL_OFF_S", "0")))
    with mstxkit.capture(run, live_folder=live[0] if live else None):
        hand_over(int(start), int(count), float(lasts), int(who))
        sys.stdout.write(json.dumps(figures(0.0 if os.environ.get("MSTXKIT_JUDGE") == "0" else 60.0)))
