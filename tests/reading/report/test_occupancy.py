"""When nobody is in a stage, and who alone is: against a count, millisecond by millisecond."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading.report import step_means
from mstxkit.reading.run import open_run

MS, STEPS, STEP_MS, FIRST = 10**6, 12, 100, 2
# What a process is in in its stages; a stage that waits is no work.
STAGES = {"actor_generate": None, "actor_update": None, "wait_for_samples": "rollout"}


def test_shares_are_what_a_count_of_each_millisecond_gives(tmp_path: Path) -> None:
    chance, run, busy = random.Random(5), new_run(tmp_path / "run"), [set[int]() for _ in range(3)]
    alone: dict[str, set[int]] = {}
    for rank, its in enumerate(busy):
        bank = BankFiles()
        for step in range(STEPS):
            at = step * STEP_MS
            times = [at, *sorted(chance.sample(range(at + 1, at + STEP_MS), 4)), at + STEP_MS]
            for begin, end, name in zip(times[::2], times[1::2], STAGES):
                waits = {"waits_for": STAGES[name]} if STAGES[name] else {}
                bank.range(name, begin * MS, end * MS, stage=name, own=True, step=step, **waits)
                if not waits and step >= FIRST:
                    its.update(range(begin, end))
                    alone.setdefault(f"{rank} {name}", set()).update(range(begin, end))
        ProcessFiles(run, 100 + rank, rank=rank).seal(bank)
    whole = (STEPS - FIRST) * STEP_MS
    only = [its - set().union(*(other for other in busy if other is not its)) for its in busy]
    longest = max(range(3), key=lambda rank: len(only[rank]))

    seen = step_means.mean_occupancy(open_run(run))

    assert seen is not None and (seen["label"], seen["others"]) == (f"rank {longest}", 2)
    assert seen["nobody"] == pytest.approx(1 - len(set().union(*busy)) / whole)
    assert seen["alone"] == pytest.approx(len(only[longest]) / whole)
    own = {key[2:]: times for key, times in alone.items() if int(key[0]) == longest}
    of_stages = {name: len(only[longest] & times) / whole for name, times in own.items()}
    assert dict(seen["stages"]) == pytest.approx(of_stages)


def test_of_a_run_without_steps_nothing_is_said(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    ProcessFiles(run, 100, rank=0).seal(BankFiles().range("a", 0, MS, stage="a", own=True))

    assert step_means.mean_occupancy(open_run(run)) is None
