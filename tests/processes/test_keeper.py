"""The keeper of a run's processes on one host: there is one, and what ends without a word is sealed by it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from builders import lives

import mstxkit
from mstxkit import capturing
from mstxkit.escalation.duty import watcher
from mstxkit.host import life
from mstxkit.incidents import kernel
from mstxkit.recorder import current, sealer
from mstxkit.recorder import keeper as keeper_of

WAITS = """
    import sys, mstxkit
    mstxkit.capture(sys.argv[1])
    with mstxkit.mstx_range("ended"):
        pass
    print("ready", flush=True)
    sys.stdin.readline()
"""


def started(run: Path, program: str = WAITS) -> subprocess.Popen[str]:
    process = lives.start(program, run)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def locks_of(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("keeper-*")]


def sealed_pids(run: Path) -> set[int]:
    return {int(path.name.rsplit("-", 2)[1]) for path in (run / "sealed").iterdir()}


def test_what_is_killed_is_sealed_while_the_others_go_on(run: Path) -> None:
    with mstxkit.capture(run):
        killed = started(run)
        lives.killed(killed)

        assert lives.wait_until(lambda: killed.pid in sealed_pids(run))
        assert lives.wait_until(lambda: len(list((run / "live").iterdir())) == 1)


def test_a_keeper_that_is_killed_is_followed_by_another_one(run: Path) -> None:
    keeper = started(run)
    with mstxkit.capture(run):
        lives.killed(keeper)

        assert lives.wait_until(lambda: keeper.pid in sealed_pids(run))


def test_while_nothing_is_recorded_the_watcher_of_a_rank_finds_out_that_there_is_no_keeper(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer, "_QUIET_LOOKS", 0)
    monkeypatch.setattr(watcher, "TOLD_S", 0.3)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    keeper = started(run)
    with mstxkit.capture(run):
        with mstxkit.stage("generate_sequences"):
            pass
        assert lives.wait_until(lambda: current.recorder.sealer.is_looked_for())
        lives.killed(keeper)

        assert lives.wait_until(lambda: keeper.pid in sealed_pids(run))


def test_it_is_handed_over_at_the_end(run: Path) -> None:
    keeper, second = started(run), started(run)
    lives.finished(keeper)
    third = started(run)
    lives.killed(third)

    assert lives.wait_until(lambda: third.pid in sealed_pids(run))
    lives.finished(second)
    assert sealed_pids(run) == {keeper.pid, second.pid, third.pid}


def test_the_last_one_of_a_host_seals_those_that_ended_before_it(run: Path) -> None:
    """Those that it had no time to see: they are gone a moment before its own end."""
    lives.run(
        """
        import os, signal, sys, mstxkit
        mstxkit.capture(sys.argv[1])
        for n in range(4):
            if (pid := os.fork()) == 0:
                with mstxkit.mstx_range("of a child"):
                    os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(pid, 0)
        """,
        run,
    )

    assert list((run / "live").iterdir()) == []
    assert lives.still_open(run) == {"of a child": 4}


def test_who_looks_for_a_keeper_while_the_process_ends_takes_no_lock_after_that(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file was left in shared memory: on a busy machine another thread had just looked, and took it last of all."""
    hold, looks, goes_on = life.hold_lock, threading.Event(), threading.Event()

    def hold_late(path: Path) -> bool:
        if threading.current_thread() is looking:
            looks.set()
            goes_on.wait(60)
        return hold(path)

    with mstxkit.capture(run):
        keeper = capturing._beside.keeper.get()  # type: ignore[union-attr]
        looking = threading.Thread(target=keeper.look)
        ending = threading.Thread(target=lambda: (keeper.end(time.monotonic() + 60), keeper.hand_over(lambda: True)))
        monkeypatch.setattr(life, "hold_lock", hold_late)
        life.let_go(keeper._lock)
        keeper._is_keeper = False  # there is none: it may become one
        looking.start()
        assert looks.wait(60)
        ending.start()
        ending.join(0.3)
        goes_on.set()
        ending.join()
        looking.join()

        assert locks_of(lives.live_folder(run)) == []


def test_alone_it_has_no_thread(run: Path) -> None:
    with mstxkit.capture(run):
        assert capturing._beside.keeper.get().consider() == 0
        assert not capturing._beside.keeper.get().background.runs
        folder = current.recorder.live.path.parent
        assert len(locks_of(folder)) == 1

    assert not folder.exists()


@pytest.mark.parametrize("is_let_go", [True, False])
def test_who_ends_together_with_the_keeper_takes_its_place_and_does_not_wait_for_one_that_stays(
    run: Path, is_let_go: bool
) -> None:
    """Else each takes the other one for the last, and nobody says goodbye for the host."""
    with mstxkit.capture(run):
        keeper, lock = capturing._beside.keeper.get(), capturing._beside.keeper.get()._lock
        keeper.end(time.monotonic() + 60)  # as at the end of a process: after that nobody who looks takes the lock back
        life.let_go(lock)
        holder = lives.start(HOLDS, lock, int(is_let_go))
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"

        within_s = 30 if is_let_go else 0.05
        assert keeper_of._wait_within(within_s, keeper._becomes_keeper) == is_let_go
        lives.finished(holder)


HOLDS = """
    import sys, time
    from pathlib import Path
    from mstxkit.host import life
    print("held" if life.hold_lock(Path(sys.argv[1])) else "another one's", flush=True)
    if int(sys.argv[2]):
        life.let_go(Path(sys.argv[1]))
    sys.stdin.readline()
"""


def test_while_another_keeper_lives_nobody_seals_at_the_end(run: Path) -> None:
    keeper = started(run)
    assert lives.wait_until(lambda: lives.is_kept(run))
    os.kill(keeper.pid, signal.SIGSTOP)
    try:
        killed = started(run)
        lives.killed(killed)
        with mstxkit.capture(run):
            pass
        assert killed.pid not in sealed_pids(run)
    finally:
        os.kill(keeper.pid, signal.SIGCONT)

    assert lives.wait_until(lambda: killed.pid in sealed_pids(run))
    lives.finished(keeper)


def test_a_forked_child_watches_nobody_for_its_parent(run: Path) -> None:
    """Of what the keeper holds open a child keeps nothing."""
    with mstxkit.capture(run):
        other = started(run)
        keeper = capturing._beside.keeper.get()
        assert lives.wait_until(lambda: keeper._neighbours._watched)
        pipe = keeper._neighbours._pipe
        held = [end.number for end in (*keeper._neighbours._watched.values(), pipe.end, pipe._write)]
        read, write = os.pipe()
        if os.fork() == 0:
            still_open = [fd for fd in held if os.path.exists(f"/proc/self/fd/{fd}")]
            os.write(write, repr(still_open).encode())
            os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
        assert os.read(read, 100) == b"[]"
        os.close(read), os.close(write)
        lives.finished(other)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_when_a_process_was_gone_is_known_to_the_moment(run: Path, number: int) -> None:
    with mstxkit.capture(run):
        killed = started(run)
        neighbours = capturing._beside.keeper.get()._neighbours
        assert lives.wait_until(lambda: neighbours._watched)
        began_ns = time.monotonic_ns()
        lives.killed(killed, number)
        assert lives.wait_until(lambda: killed.pid in sealed_pids(run))

    (process,) = [process for process in mstxkit.open_run(run).files.processes if process.pid == killed.pid]
    assert process.was_watched and began_ns < process.gone_ns < time.monotonic_ns()


def test_of_processes_that_come_and_go_nothing_is_kept_once_they_are_sealed(run: Path) -> None:
    with mstxkit.capture(run):
        stays = started(run)
        neighbours = capturing._beside.keeper.get()._neighbours
        for _ in range(2):
            killed = started(run)
            assert lives.wait_until(lambda: len(neighbours._watched) == 2)
            lives.killed(killed)
            assert lives.wait_until(lambda pid=killed.pid: pid in sealed_pids(run))
        assert lives.wait_until(lambda: not neighbours.gone_ns)
        lives.finished(stays)


def test_one_that_is_gone_while_another_is_sealed_is_known_to_the_moment_too(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first takes the second along: which of them it was must not depend on who seals in which order."""
    with mstxkit.capture(run):
        first, second = started(run), started(run)
        keeper = capturing._beside.keeper.get()
        assert lives.wait_until(lambda: len(keeper._neighbours._watched) == 2)
        monkeypatch.setattr(keeper.background, "sleep", lambda _: second.poll() is None and lives.killed(second))
        lives.killed(first)
        assert lives.wait_until(lambda: {first.pid, second.pid} <= sealed_pids(run))

    seen = {process.pid: process for process in mstxkit.open_run(run).files.processes if process.gone_ns}
    assert all(process.was_watched for process in seen.values())
    assert seen[first.pid].gone_ns < seen[second.pid].gone_ns


def test_whose_end_is_seen_late_is_known_in_order_too(run: Path) -> None:
    """A keeper that gets no CPU for a moment must not call the one that was ended the one that took it along."""
    with mstxkit.capture(run):
        others = [started(run) for _ in range(3)]
        keeper = capturing._beside.keeper.get()
        assert lives.wait_until(lambda: len(keeper._neighbours._watched) == 3)
        keeper.background.pause()
        for process in others:  # else a thread of theirs that ends now is queued too
            os.kill(process.pid, signal.SIGSTOP)
            assert lives.wait_until(lambda pid=process.pid: kernel.state_of(pid) == "stopped")
        keeper._neighbours.wait(0)
        in_order = [others[number] for number in (2, 0, 1)]
        for process in in_order:
            lives.killed(process)
        keeper.start()
        assert lives.wait_until(lambda: {process.pid for process in others} <= sealed_pids(run))

    seen = {process.pid: process for process in mstxkit.open_run(run).files.processes if process.gone_ns}
    assert all(process.was_watched for process in seen.values())
    assert sorted(seen, key=lambda pid: seen[pid].gone_ns) == [process.pid for process in in_order]


CLOSES_EVERYTHING = """
    import os, signal, subprocess, sys, time
    import mstxkit
    from mstxkit import capturing
    mstxkit.capture(sys.argv[1])
    records = "import mstxkit; mstxkit.capture(); input()"
    other = subprocess.Popen([sys.executable, "-c", records], stdin=subprocess.PIPE)
    neighbours = capturing._beside.keeper.get()._neighbours
    while not neighbours._watched:
        time.sleep(0.01)
    kept = os.dup2(other.stdin.fileno(), 900)
    os.closerange(3, 900)
    theirs = [os.open("/dev/null", os.O_RDONLY) for _ in range(60)]
    time.sleep(1.5)
    other.kill()
    other.wait()
    time.sleep(1.5)
    assert all(os.readlink(f"/proc/self/fd/{fd}") == "/dev/null" for fd in theirs), "files of the program's were closed"
    print(mstxkit.status().faults)
"""


def test_a_program_that_closes_every_descriptor_keeps_the_files_it_opens_then(run: Path) -> None:
    assert lives.run(CLOSES_EVERYTHING, run) == "{}\n"
    assert len(sealed_pids(run)) == 2
