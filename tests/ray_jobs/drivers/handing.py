"""What drivers share whose workers hand over their steps to whoever judges: the worker, and what is judged by now."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Callable

import ray

import mstxkit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from builders import handing_rank

from mstxkit.store import layout, settings_file

HEAD_START_NS, SLOW_RANK = 10**9, 1


class HandingWorker:
    """One rank of so many; a driver's `ray.remote` makes an actor of it."""

    def __init__(self, rank: int, ranks: int) -> None:
        mstxkit.identify(rank=rank, world_size=ranks, role="actor")

    def work(self, start_ns: int, steps: int, step_ms: float, first: int = 0) -> int:
        """Step after step, from `first` on; how many there are."""
        handing_rank.hand_over(start_ns, steps, step_ms, SLOW_RANK, first)
        return steps

    def join(self, start_ns: int, steps: int, step_ms: int) -> int:
        """The same, from the step on that the others are in."""
        now = max(0, time.monotonic_ns() - start_ns) // (step_ms * 10**6)
        return self.work(start_ns, steps, step_ms, int(now))

    def node(self) -> str:
        """On which it runs."""
        return str(ray.get_runtime_context().get_node_id())

    def pid(self) -> int:
        """Of its process, in which mstxkit is by then."""
        return os.getpid()

    def figures(self) -> dict[str, float]:
        """As its own logger would take them."""
        return handing_rank.figures(60)

    def faults(self) -> dict[str, int]:
        """What went wrong there."""
        return dict(mstxkit.status().faults)


def judged(run: Path) -> int:
    """The step that was judged last."""
    figures = settings_file.read_figures(run / layout.VERDICTS / layout.FIGURES, "")
    return -1 if figures is None or figures.step is None else figures.step


def until(is_so: Callable[[], bool], within_s: float = 100.0) -> bool:
    """Has it come to that?"""
    deadline = time.monotonic() + within_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_so()
