"""The process that judges a run beside rank 0: when it ends."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit.judging import judge_process
from mstxkit.recorder import adopt
from mstxkit.store import documents, job_file, layout, process_pointer, run_file
from mstxkit.store.verdicts import JudgeLife

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
    adopt.collect_dead(run)

    assert not judging.is_alive()


@pytest.mark.parametrize("silence_s", [1e12, 1.0])
def test_of_very_many_ranks_on_other_hosts_no_more_than_one_is_looked_at(
    run: Path, silence_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks each three seconds while a stage lasts: of 10,000 ranks that would be 10,000 files of a shared disk."""
    run_id, pointers = run_file.open_run_folder(run)[1], run / layout.LIVE
    pointers.mkdir(exist_ok=True)
    for rank in range(100):
        who = {"run": run_id, "host": f"node{rank}", "boot": "another", "pid": 1, "pidns": 1, "pid_start": 1}
        process_pointer.write_pointer(pointers / f"node{rank}-1-1{layout.POINTER}", run / "gone", {**who, "start": 1})
    reads, read = list[Path](), documents.read_small

    def counted(file: Path, *more: Any) -> bytes | None:
        reads.append(file)
        return read(file, *more)

    monkeypatch.setattr(documents, "read_small", counted)
    judging = threading.Thread(target=judge_process.judge, args=(run, run_id, -1, silence_s), daemon=True)

    judging.start()
    judging.join(1.5)
    is_silent_and_over = not judging.is_alive()
    for pointer in pointers.iterdir():
        pointer.unlink()
    judging.join(30)

    assert sum(file.parent == pointers for file in reads) <= 1
    assert (is_silent_and_over, judging.is_alive()) == (silence_s == 1.0, False)


def judged_step(run: Path) -> int:
    state = job_file.read_state(run, run_file.id_of(run) or "")
    return max((role.step for role in state.roles), default=-1) if state else -1
