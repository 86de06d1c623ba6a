"""A rank of a job that lets verdicts act: real stages, real torch where there is one, and one rank is slow to generate.

    python acting_rank.py START_NS STEP_MS SLOW_RANK FOLDER

It captures as its environment says. Step k lasts from START_NS + k * STEP_MS; all leave actor_update together, by the
clock. A file `end` in FOLDER ends it, one called `well` makes the slow rank as quick as the others.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

import mstxkit

_MS = 1_000_000


def until(at_ns: int) -> None:
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


def computes() -> None:
    if torch is not None:
        torch.ones(8, 8).sum()


def main(start_ns: int, step_ns: int, is_slow: bool, folder: Path) -> None:
    step = 0
    while not (folder / "end").exists():
        begin_ns = start_ns + step * step_ns
        step = max(step, (time.monotonic_ns() - start_ns) // step_ns) if step else 0
        begin_ns = start_ns + step * step_ns
        until(begin_ns)
        mstxkit.step(step)
        takes = 0.5 if is_slow and not (folder / "well").exists() else 0.3
        with mstxkit.stage("actor_generate", tokens=100):
            computes()
            until(begin_ns + int(takes * step_ns))
        with mstxkit.stage("actor_update"):
            computes()
            until(begin_ns + int(0.9 * step_ns))
        step += 1


if __name__ == "__main__":
    start, lasts, slow, place = sys.argv[1:]
    with mstxkit.capture():
        main(int(start), int(float(lasts) * _MS), os.environ["RANK"] == slow, Path(place))
