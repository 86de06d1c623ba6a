"""How far the durations that mstxkit records of verl's driver are from those that verl measures itself, `timing_s/*`.

The same blocks of the same run: a job of `tests/builders/main_ppo.py`, PPO with a critic on a CPU. No budgets: both
clocks are read one after the other, and on a busy machine a thread may lose the core in between. Left out where verl is
not set up (`make setup-frameworks`).
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from .harness import HERE, Row

VERSIONS = ("0.7.1", "0.9.1")
VARIANTS = {version: {"PYTHONPATH": str(HERE.parent / "tests")} for version in VERSIONS}
OF_A_BLOCK = "timing_s/"


class Compared(NamedTuple):
    """One block in one step, ms."""

    name: str
    step: int
    ours: float
    verls: float

    @property
    def apart(self) -> float:
        """By how much."""
        return abs(self.ours - self.verls)


def measure(variant: str) -> list[Row]:
    """The greatest and the middle difference over all blocks of all steps."""
    from builders.contracts.where import FRAMEWORKS_PYTHON

    if not FRAMEWORKS_PYTHON.exists():
        return []
    blocks = _blocks_of(variant)
    worst = max(blocks, key=lambda block: block.apart)
    middle = statistics.median(block.apart for block in blocks)
    said = f"{worst.name} in step {worst.step}: {worst.ours:.3f} ms, verl's own {worst.verls:.3f}"
    return [
        Row(f"main_ppo.{variant}.farthest_ms", worst.apart, "ms", note=said),
        Row(f"main_ppo.{variant}.middle_ms", middle, "ms", note=f"of {len(blocks)} blocks"),
    ]


def _blocks_of(version: str) -> list[Compared]:
    """A job from its start to its end."""
    from builders.main_ppo import Job, Kind, prepare

    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        job = Job(Kind(version), prepare(Path(folder) / "task"), Path(folder) / "job")
        try:
            code = job.end()
        finally:
            job.clear()
        assert code == 0, job.output[-2000:]
        return _compared(job.run, job.metrics)


def _compared(run: Path, metrics: list[dict[str, Any]]) -> list[Compared]:
    """What both have measured, and each once."""
    from mstxkit import open_run

    ours: dict[tuple[str, int], list[float]] = {}
    for row in open_run(run).ranges().to_dicts():
        if row["role"] == "trainer":
            ours.setdefault((row["name"], row["step"]), []).append(row["duration_ns"] / 1e6)
    verls = {
        (name[len(OF_A_BLOCK) :], step["training/global_step"]): value * 1e3
        for step in metrics
        for name, value in step.items()
        if name.startswith(OF_A_BLOCK)
    }
    return [Compared(*key, *ours[key], verls[key]) for key in sorted(verls) if len(ours.get(key, ())) == 1]
