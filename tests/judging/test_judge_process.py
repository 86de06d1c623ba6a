"""The process that judges a run beside rank 0: when it ends."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit.judging import judge_process
from mstxkit.recorder import adopt
from mstxkit.store import job_file, run_file
from mstxkit.store.judge_life import JudgeLife

STEPS = """
    import itertools, sys, time, mstxkit
    with mstxkit.capture(sys.argv[1]):
        for step in itertools.count():
            with mstxkit.at_step(step), mstxkit.stage("actor_update"):
                time.sleep(0.2)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    with lives.own_run(tmp_path) as folder:
        yield folder


def test_it_ends_where_another_one_judges_in_its_place_although_the_job_goes_on(run: Path) -> None:
    with mstxkit.capture(run):
        words = run, run_file.id_of(run) or ""
        judging = threading.Thread(target=judge_process.judge, args=words, daemon=True)
        judging.start()
        assert lives.wait_until(lambda: bool(list((run / "verdicts").glob("controller*"))), 20)
        time.sleep(1)
        judged_before = judging.is_alive()

        JudgeLife(run, judge_process.WHO)  # as where its lock was in a folder that somebody has removed
        judging.join(30)

        assert (judged_before, judging.is_alive()) == (True, False)


def test_it_ends_where_the_job_was_killed_after_the_wall_clock_was_set_back(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, wall_s = lives.start(STEPS, run), time.time
    monkeypatch.setattr(time, "time", lambda: wall_s() + 8 * 3600)
    try:
        assert lives.wait_until(lambda: bool(list(run.glob("live/*.json"))), 20)
        judging = threading.Thread(target=judge_process.judge, args=(run, run_file.id_of(run)), daemon=True)
        judging.start()
        assert lives.wait_until(lambda: judged_step(run) >= 5, 30)
    finally:
        lives.killed(rank)
    monkeypatch.setattr(time, "time", wall_s)
    judging.join(30)
    adopt.collect(run)

    assert not judging.is_alive()


def judged_step(run: Path) -> int:
    state = job_file.read(run, run_file.id_of(run) or "")
    return max((role.step for role in state.roles), default=-1) if state else -1
