"""Runs of ranks that train in step, as tables have them: one is slow in its input, behind the barrier, or nobody is.

Each step every rank is in `reference` alone, then in `actor_update`, which all leave together.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from builders.run_files import BankFiles, ProcessFiles, new_run

from mstxkit.store import layout, verdicts
from mstxkit.store.verdicts import Verdict

MS = 1_000_000
INPUT, BEHIND, NOBODY = "input", "behind the barrier", "nobody"
# Ranges inside of actor_update: own work, and the collective in which they meet.
INSIDE = ("forward_backward", "all_reduce")


def stage_times(
    fault: str, ranks: int = 2, steps: int = 60, slow_rank: int = 1, since: int = 0, by_ms: float = 20.0, seed: int = 0
) -> list[tuple[int, int, str, int, int]]:
    """(step, rank, stage or name, begin, end) in ns: a rank is slower by so much in each step from `since` on."""
    chance, rows, now = random.Random(seed), [], 0
    for step in range(steps):
        arrived, ready = {}, []
        for rank in range(ranks):
            is_slow = rank == slow_rank and step >= since
            begin = now + int(chance.uniform(0, 0.2) * MS)
            alone = (8 + chance.gauss(0, 0.15) + (by_ms if fault == INPUT and is_slow else 0)) * MS
            rows.append((step, rank, "reference", begin, begin + int(alone)))
            arrived[rank] = begin + int(alone) + int(chance.uniform(0, 0.1) * MS)
            computes = (25 + chance.gauss(0, 0.3) + (by_ms if fault == BEHIND and is_slow else 0)) * MS
            ready.append(arrived[rank] + int(computes))
        for rank in range(ranks):
            end = max(ready) + int(chance.uniform(0, 0.05) * MS)
            rows.append((step, rank, "forward_backward", arrived[rank], ready[rank]))
            rows.append((step, rank, "all_reduce", ready[rank], end))
            rows.append((step, rank, "actor_update", arrived[rank], end))
        now = max(ready) + MS
    return rows


def recorded(
    path: Path, rows: list[tuple[int, int, str, int, int]], around_collectives: bool = False,
    outer: tuple[str, ...] = (), role: str | None = None, **more: Any,
) -> Path:  # fmt: skip
    """A sealed run of them, with ranges inside of actor_update or without; those of `outer` are around others. Of
    another role, or another attempt, they are added to the run. `more`: as `ProcessFiles` takes it.
    """
    run, banks = path if path.exists() else new_run(path), {}
    first_pid = 100 + len(list((run / "sealed").iterdir()))
    for step, rank, name, begin, end in rows:
        bank = banks.setdefault(rank, BankFiles())
        if name not in INSIDE:
            bank.range(name, begin, end, stage=name, own=True, step=step)
        elif around_collectives:
            bank.range(name, begin, end, stage="actor_update", step=step, depth=1 if name in outer else 2)
    for rank, bank in banks.items():
        ProcessFiles(run, first_pid + rank, rank=rank, world_size=len(banks), role=role, **more).seal(bank)
    return run


def verdict(**fields: Any) -> Verdict:
    """That rank 1's input makes rank 0 wait, but for what is given."""
    values: dict[str, Any] = {
        "id": "input-1", "time_ns": 5_000, "step": 40, "kind": verdicts.INPUT, "stage": "reference", "rank": 1,
        "since_step": 3, "impact_ratio": 0.31, "coverage_ratio": 0.9, "recurrence_ratio": 1.0, "confidence": 0.97,
        "group": (0, 1), "waits_for": "rank 0 waits for rank 1 in actor_update", "evidence": {"late_ms": 20.1},
        "next": "look at what feeds rank 1",
    }  # fmt: skip
    return Verdict(**{**values, **fields})


def say(run: Path, *said: Verdict) -> None:
    """Leave verdicts in a run, as its judge does."""
    folder = run / layout.VERDICTS
    folder.mkdir(exist_ok=True)
    with (folder / f"judge{layout.VERDICTS_SUFFIX}").open("ab") as file:
        file.write(b"".join(line.line() for line in said))
