"""A rank of a job: a real process that captures, and hands over summaries of steps as an engine would.

    python handing_rank.py RUN STEPS STEP_S SLOW_RANK [LIVE_FOLDER]

The stage `rollout` takes a slow rank half as long again, and all enter `actor_update` when the last is through.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import mstxkit
from mstxkit.host import identity
from mstxkit.recorder import here
from mstxkit.store.handed_over import SummaryRing
from mstxkit.store.summaries import StageSummary

STAGES = ("actor_generate", "actor_update")
_MS = 1_000_000


def rows_of(step: int, rank: int, slow: int, now_ns: int, size: int = 100) -> bytes:
    """Both stages of one step; `size` tokens."""
    took_ns = (30 if rank == slow else 20) * _MS
    begin = now_ns - 60 * _MS
    first = StageSummary(step, 1, 1, begin, begin + took_ns, took_ns, None, took_ns, size)
    second = StageSummary(step, 2, 1, begin + took_ns, now_ns, 60 * _MS - took_ns, None, 60 * _MS - took_ns)
    return first.pack() + second.pack()


def main(run: str, steps: int, step_s: float, slow: int, live_folder: str | None) -> None:
    """Hand over step after step, then say what the job's figures are."""
    rank = identity.current()["rank"]
    with mstxkit.capture(run, live_folder=live_folder):
        assert here.recorder is not None
        ring = SummaryRing(Path(here.recorder.live.path).with_suffix(".sums"))
        for step in range(steps):
            time.sleep(step_s)
            rows = rows_of(step, rank, slow, time.monotonic_ns())
            ring.put(rows, {"stages": list(STAGES), "step": step + 1})
        ring.put(b"", {"stages": list(STAGES), "step": steps, "end": True})
        deadline = time.monotonic() + (8 if len(sys.argv) > 6 else 0)
        while not mstxkit.metrics() and time.monotonic() < deadline:
            time.sleep(0.1)
        print(json.dumps(mstxkit.metrics()))


if __name__ == "__main__":
    _, folder, count, seconds, who, *live = sys.argv
    main(folder, int(count), float(seconds), int(who), live[0] if live else None)
