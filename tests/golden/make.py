"""Writes `v2/`: one small run, as the newest version of its blocks ships. Run once per version, never to make a test
pass: `v1/` was written by this file as it was then.

Usage: python tests/golden/make.py, from the project's root.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE, VERSION = Path(__file__).parent, "v2"
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from builders.run_files import NO_STEP, TSC, BankFiles, ProcessFiles, Slot, anchor, new_run  # noqa: E402

ANCHORS = (anchor(0, 1_000, error_ns=20), anchor(6_000_000_000, 2_000_001_000, error_ns=10))


def make(folder: Path) -> None:
    """The run folder, with the live file of its second process in it. A test writes the pointer, which names a path."""
    run = new_run(folder)
    about = {"host": "node-a", "anchors": ANCHORS, "clock": TSC, "ticks_per_ns": 3.0}
    first = ProcessFiles(run, 100, rank=0, role="actor", start="aa", **about)
    bank = BankFiles(1, origin=3_000).track(0, 4711).track(1, 4711, is_task=True)
    bank.range("generate", 3_000, 9_000, stage="actor_generate", own=True, step=0, prompts=8, temperature=0.5)
    bank.range("wait", 3_600, 4_200, stage="actor_generate", step=0, depth=1, track=1, error=True, busy=300)
    bank.mark("weights ready", 9_300, step=0, ok=True, note="done", value=[1])
    inside = {"name": "all_reduce", "domain": "comm", "stage": "actor_update", "own_stage": False}
    first.seal_indexed(
        bank, ended="killed", inside=[{**inside, "step": 1, "track": 0, "depth": 1, "start": 12_000, "tid": 4711}]
    )
    second = ProcessFiles(run, 101, rank=1, role=None, start="bb", **about)
    bank = BankFiles(7, origin=0).track(0, 99)
    bank.range("reward", 1 << 41, (1 << 41) + (3 << 41), stage="reward", own=True)
    slot = Slot(600_000, bank.site("résumé", "default"), 0, NO_STEP, 0, 0, 99)
    live = second.live(bank, slots=(slot,), bank_bytes=4096)
    live.rename(run / "second.live")
    (run / "live" / f"{second.name}.json").unlink()
    (run / "live").rmdir()


if __name__ == "__main__":
    make(HERE / VERSION)
