"""The keeper says where the processes of its host are: real processes, one small file, and nobody waits for it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from builders import lives
from builders.mounts import frozen_disk  # noqa: F401
from builders.waiting import until

from mstxkit.store import run_file, whereabouts
from mstxkit.store.lookout import EVERY_S, Lookout

RANK = """
    import os, sys, time, mstxkit
    from mstxkit.store import lookout
    lookout.EVERY_S = 0.2
    mstxkit.identify(rank=int(sys.argv[2]), world_size=2)
    mstxkit.capture(sys.argv[1])
    for step in (1, 2):
        with mstxkit.at_step(step), mstxkit.stage("actor_generate"):
            pass
    with mstxkit.at_step(5 + int(sys.argv[2])), mstxkit.stage("actor_update"):
        print("there", flush=True)
        sys.stdin.readline()
"""


def steps(run: Path) -> dict[int | None, tuple[int | None, str | None]]:
    seen = whereabouts.read_seen(run, run_file.id_of(run) or "") if run.exists() else []
    return {where.rank: (where.step, where.stage) for where in seen}


@pytest.fixture(autouse=True)
def of_this_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_LIVE_FOLDER", str(tmp_path))


def test_one_file_a_host_says_where_every_rank_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ranks = [lives.start(RANK, run, rank) for rank in range(2)]

    there = until(lambda: len(steps(run)) == 2 and steps(run))
    files = list((run / "now").iterdir())
    for rank in ranks:
        lives.finished(rank)

    assert there == {0: (5, "actor_update"), 1: (6, "actor_update")}
    assert len([file for file in files if not file.name.startswith(".")]) == 1


def test_when_the_keeper_is_killed_another_rank_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ranks = {rank: lives.start(RANK, run, rank) for rank in range(2)}
    assert until(lambda: len(steps(run)) == 2)
    (file,) = (path for path in (run / "now").iterdir() if not path.name.startswith("."))
    keeper = json.loads(file.read_text())["keeper"]
    (killed,) = (rank for rank, process in ranks.items() if process.pid == keeper)

    lives.killed(ranks.pop(killed))
    left = 1 - killed
    there = until(lambda: set(steps(run)) == {left} and steps(run))
    lives.finished(ranks[left])

    assert there == {left: (5 + left, "actor_update")}


def test_a_process_alone_needs_no_thread_for_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    program = (
        RANK
        + """
    import threading
    print(sorted(thread.name for thread in threading.enumerate()), flush=True)
"""
    )
    process = lives.start(program, run, 0)

    assert until(lambda: steps(run)) == {0: (5, "actor_update")}
    assert "mstxkit-keeper" not in lives.finished(process)[1]


FROZEN = """
    import os, subprocess, sys, time, mstxkit
    from mstxkit.store import lookout
    lookout.EVERY_S = 0.2
    run, disk, now = sys.argv[1], os.path.dirname(sys.argv[1]), os.path.join(sys.argv[1], "now")
    mstxkit.identify(rank=0, world_size=2)
    mstxkit.capture(run)
    def step(n):
        with mstxkit.at_step(n), mstxkit.stage("actor_update"): pass
    def file():
        return os.stat(os.path.join(now, next(name for name in os.listdir(now) if name[0] != "."))).st_mtime_ns
    while not os.path.isdir(now) or not os.listdir(now): step(1); time.sleep(0.01)
    subprocess.run(["fsfreeze", "-f", disk], check=True)
    before, ends = file(), time.monotonic() + 2
    while time.monotonic() < ends: step(2); time.sleep(0.005)
    stood_still = file() == before
    subprocess.run(["fsfreeze", "-u", disk], check=True)
    while file() == before: time.sleep(0.01)
    print(stood_still)
"""


def test_while_the_run_folder_hangs_training_goes_on_and_the_file_only_gets_older(
    frozen_disk: Path,  # noqa: F811
) -> None:
    """The thread that trains thaws it when its steps are over: waiting for it, it would do so for ever."""
    assert lives.run(FROZEN, frozen_disk / "run").split() == ["True"]


def test_it_writes_when_it_is_due_and_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, run_id = run_file.open_run_folder(tmp_path / "run")
    lookout = Lookout(run, run_id, tmp_path)
    lookout.tell_if_due([])
    assert not (run / "now").exists()

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + EVERY_S)
    lookout.tell_if_due(["no such process"])

    assert [file.suffix for file in (run / "now").iterdir()] == [".json"]
    assert whereabouts.read_seen(run, run_id) == []


def test_what_was_removed_is_not_made_anew_and_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, run_id = run_file.open_run_folder(tmp_path / "run")
    lookout = Lookout(run, run_id, tmp_path)
    run.rename(tmp_path / "away")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + EVERY_S)

    lookout.tell_if_due([])

    assert not os.path.lexists(run)
