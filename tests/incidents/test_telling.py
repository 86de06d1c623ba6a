"""What is told of hangs and deaths, and how often, where several things happen, or the run folder takes nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import lives, soak
from builders.hanging import HANG_S, Job, Start, follow, go_on, watchmen
from builders.mounts import Mount, frozen_disk, mount  # noqa: F401

from mstxkit.incidents import folder
from mstxkit.recorder import adopt
from mstxkit.store import incidents, run_file, verdicts

pytestmark = pytest.mark.timeout(120)
BEGINS = """
    import sys, mstxkit
    mstxkit.identify(rank=int(sys.argv[2]), world_size=2, role="actor")
    with mstxkit.capture(sys.argv[1]), mstxkit.stage("reward"):
        print("ready", flush=True)
        sys.stdin.readline()
"""
# Which rank is killed, and is it before its watchman? The first two in each run.
KILLED = {
    (0, True): "the keeper before its watchman", (1, False): "another rank after its watchman",
    (0, False): "the keeper after its watchman", (1, True): "another rank before its watchman",
}  # fmt: skip
RAISES = """
        raise ValueError("no such reward")
"""


def kinds(job: Job) -> list[str]:
    return [incident.kind for incident in job.incidents()]


@pytest.mark.parametrize(("victim", "is_before"), soak.rounds(list(KILLED), list(KILLED)[:2]))
def test_a_rank_that_was_killed_while_nobody_watched_is_told_of_once(
    start: Start, victim: int, is_before: bool
) -> None:
    job = start("waits", "waits", hang_s=60.0)
    time.sleep(1)  # both are in their range
    killed = [job.ranks[victim].pid, *watchmen(job)]
    for pid in killed if is_before else killed[::-1]:
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    incident = job.incident(40)
    follow(job)
    time.sleep(2)

    assert (incident.kind, incident.rank, incident.range) == ("killed", victim, "score")
    assert job.incidents() == [incident]


def test_a_rank_that_dies_as_soon_as_it_has_begun_is_told_of(tmp_path: Path) -> None:
    """Nobody watches yet."""
    ranks = [lives.start(BEGINS, tmp_path / "run", rank, MSTXKIT_HANG_S="60") for rank in (1, 0)]
    try:
        for process in ranks:
            assert process.stdout and process.stdout.readline() == "ready\n"
        ranks[0].kill()

        run_id = run_file.id_of(tmp_path / "run") or ""
        assert lives.wait_until(lambda: bool(incidents.read_incidents(tmp_path / "run", run_id)))
        told = [
            (incident.kind, incident.rank, incident.stage)
            for incident in incidents.read_incidents(tmp_path / "run", run_id)
        ]
        assert told == [("killed", 1, "reward")]
    finally:
        for process in ranks:
            lives.killed(process)
        adopt.collect_dead(tmp_path / "run")


@pytest.mark.parametrize("victim", [0, 1], ids=["the keeper", "another rank"])
def test_a_rank_that_raises_as_soon_as_it_has_begun_is_told_of_once(tmp_path: Path, victim: int) -> None:
    """It ends in order, and nobody watches yet."""
    run, ranks = tmp_path / "run", list[subprocess.Popen[str]]()
    try:
        for rank in (0, 1):
            ranks.append(lives.start(BEGINS + RAISES * (rank == victim), run, rank, MSTXKIT_HANG_S="60"))
            assert (out := ranks[rank].stdout) and out.readline() == "ready\n"
        assert lives.finished(ranks[victim])[0] == 1
        run_id = run_file.id_of(run) or ""
        assert lives.wait_until(lambda: bool(incidents.read_incidents(run, run_id)))
        time.sleep(2)

        (told,) = incidents.read_incidents(run, run_id)
        assert (told.kind, told.rank, told.role) == ("exception", victim, "actor")
        assert told.reason == f"rank {victim} actor: nobody caught ValueError: no such reward"
        assert "in <module>\n    ValueError: no such reward" in (run / told.page).read_text()
        assert not list(lives.live_folder(run).glob(f"*-{ranks[victim].pid}-*"))
    finally:
        for process in ranks:
            if process.poll() is None:
                lives.killed(process)
        adopt.collect_dead(run)


def test_of_a_job_that_was_killed_as_a_whole_the_next_one_tells_nothing(start: Start, tmp_path: Path) -> None:
    """Its live files are still there, as nobody was left to seal them."""
    before = start("waits", "waits", hang_s=60.0)
    time.sleep(2)  # it has begun long before the next one: they do not belong together
    for pid in (*(process.pid for process in before.ranks), *watchmen(before)):
        os.kill(pid, signal.SIGKILL)
    for process in before.ranks:
        process.wait()
    job = start("progress", "progress", hang_s=60.0)
    assert lives.wait_until(lambda: len(list(job.run.glob("sealed/*"))) >= 2), "what they left is sealed"
    time.sleep(2)

    assert incidents.list_names(job.run) == []


def test_who_asks_for_an_incident_hides_no_hang(start: Start) -> None:
    job = start("sleeps", "waits", hang_s=4.0)
    folder.ask_hosts(job.run)
    assert lives.wait_until(lambda: kinds(job) == ["request"])

    assert lives.wait_until(lambda: kinds(job) == ["request", "hang"])
    assert lives.wait_until(lambda: [verdict.rank for verdict in verdicts.read_verdicts(job.run)] == [0])


def test_a_hang_whose_incident_has_made_room_for_others_is_told_of_once_and_withdrawn(start: Start) -> None:
    job = start("goes_on", "waits", hang_s=3.0, MSTXKIT_INCIDENTS="2")
    folder.ask_hosts(job.run)
    assert lives.wait_until(lambda: kinds(job) == ["request"])
    assert lives.wait_until(lambda: kinds(job) == ["request", "hang"])
    folder.ask_hosts(job.run)
    assert lives.wait_until(lambda: kinds(job) == ["request", "request"]), "the first stays, and the newest"
    time.sleep(5)
    told = [verdict.rank for verdict in verdicts.read_verdicts(job.run)]
    go_on(job)

    assert told == [0]
    assert lives.wait_until(lambda: verdicts.read_verdicts(job.run)[0].withdrawn == "it went on by itself")


def test_who_comes_to_wait_for_a_hang_later_is_no_other_one_and_who_hangs_by_himself_later_is(start: Start) -> None:
    job = start("sleeps", "waits_later", "lock_later")
    assert lives.wait_until(lambda: len(job.incidents()) == 2, 40)
    time.sleep(3)
    first, second = job.incidents()

    assert (first.rank, first.range, second.rank, second.range) == (0, "score", 2, "tensors")
    assert second.reason.endswith("stuck as well: rank 0 actor in score (reward)")
    assert second.waits_for == "rank 1 actor waits for rank 2 actor in actor_update"
    assert [verdict.rank for verdict in verdicts.read_verdicts(job.run)] == [0, 2]


def test_an_exception_in_a_thread_hides_no_hang(start: Start) -> None:
    job = start("raises_in_thread", "waits", hang_s=2.0)

    assert lives.wait_until(lambda: kinds(job) == ["exception", "hang"])


def test_a_hang_that_goes_on_inside_of_its_range_is_over_and_is_told_of_again_when_it_returns(start: Start) -> None:
    job = start("stalls", "waits")
    first = job.incident()
    go_on(job)
    assert lives.wait_until(lambda: bool(job.incidents()[0].over_ns))

    assert lives.wait_until(lambda: len(job.incidents()) == 2)
    again = job.incidents()[1]
    assert (again.rank, again.range, again.over_ns) == (first.rank, first.range, 0)
    assert lives.wait_until(
        lambda: [verdict.withdrawn for verdict in verdicts.read_verdicts(job.run)] == ["it went on by itself", ""]
    )


def test_who_stalls_again_and_again_is_told_of_less_and_less(start: Start) -> None:
    job = start("stalls", "waits")
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        time.sleep(1.5 * HANG_S)
        go_on(job)

    assert 1 <= len(incidents.list_names(job.run)) <= 2


@pytest.mark.parametrize(("deed", "kind"), [("killed", "killed"), ("crash", "signal")])
def test_a_death_that_the_run_folder_does_not_take_is_told_of_once_there_is_room(
    start: Start, deed: str, kind: str, mount: Mount  # noqa: F811
) -> None:  # fmt: skip
    run = mount("small", "size=4m") / "run"
    job = start(deed, "waits", run=run)
    with (run.parent / "fills").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    time.sleep(4)
    assert job.incidents() == []
    (run.parent / "fills").unlink()

    incident = job.incident(20)
    assert (incident.kind, incident.rank, incident.range) == (kind, 0, "score")


def test_where_the_run_folder_is_frozen_what_the_rank_itself_is_held_by_is_told(
    start: Start,
    frozen_disk: Path,  # noqa: F811
) -> None:
    """Threads of ours, and the watchman, wait for that disk: the rank does not."""
    job = start("lock", "waits", run=frozen_disk / "run", hang_s=4.0)
    subprocess.run(["fsfreeze", "-f", frozen_disk], check=True)
    try:
        time.sleep(8)
    finally:
        subprocess.run(["fsfreeze", "-u", frozen_disk], check=True)
    incident = job.incident(20)
    job.end()  # before its disk is gone

    assert (incident.kind, incident.rank) == ("hang", 0)
    assert "it waits for a lock" in incident.reason


def test_ranks_of_which_each_is_the_first_process_of_a_container_are_told_of(start: Start, tmp_path: Path) -> None:
    """Who watches is in the namespace of one of them, as its child, and knows the other by no number."""
    own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*own, "true"], capture_output=True).returncode:
        pytest.skip("this user makes no namespaces")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {" ".join(own)} {sys.executable} "$@"\n')
    python.chmod(0o755)
    incident = start("lock", "waits", python=str(python)).incident()

    assert (incident.kind, incident.rank, incident.range) == ("hang", 0, "score")
    assert incident.waits_for == "rank 1 actor waits for rank 0 actor in reward"
