"""Forks while something below hangs, or a fault is met: `os.fork` waits 50 ms at most, and nothing is lost by that."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import lives

from mstxkit.recorder import adopt

# A write into the run folder that nobody answers, until `answer` is set: as on a dead NFS.
HANGING = """
    import os, sys, threading, time, mstxkit
    from mstxkit.recorder import sealed
    from mstxkit.recorder.forking import WAITS_AT_MOST_S
    answer, hangs = threading.Event(), threading.Event()
    append = sealed.SealedFiles.append
    def dead(self, block, is_last=False):
        hangs.set()
        answer.wait()
        append(self, block, is_last)
    mstxkit.capture(sys.argv[1], bank_bytes=16 << 10, banks=4, seal_every_s=0.05)
    sealed.SealedFiles.append = dead
    for number in range(10):
        with mstxkit.mstx_range(f"early {number}"): pass
    assert hangs.wait(20)
    def fork(child):
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            try:
                child(time.monotonic() - began)
            finally:
                os._exit(3)
        return time.monotonic() - began, pid
"""
# Far beyond what is promised, far below what a hang is: the machine may be busy.
BUSY_S = 5.0


@pytest.mark.parametrize("around", ["", lives.ENDING_THREADS], ids=["held", "ended"])
def test_a_fork_goes_on_while_the_run_folder_does_not_answer(run: Path, around: str) -> None:
    """Each of them, not only the first; what was being written is written once when it answers again."""
    done = lives.run(
        HANGING
        + around
        + """
    waits = []
    for _ in range(5):
        took, pid = fork(lambda took: os._exit(0))
        waits.append(took)
        assert os.waitpid(pid, 0)[1] == 0
    assert len([thread for thread in threading.enumerate() if thread.name == "mstxkit-sealer"]) == 1
    with mstxkit.mstx_range("late"): pass
    answer.set()
    print(max(waits))
    """,
        run, is_patient=False,
    )  # fmt: skip

    assert float(done) < BUSY_S
    adopt.collect_dead(run)
    names = sorted(row["name"] for row in lives.ranges(run))
    assert names == sorted([f"early {number}" for number in range(10)] + ["late"])
    assert not lives.damage(run)


def test_a_child_does_not_wait_for_that_folder_either_and_records_once_it_answers(run: Path) -> None:
    started = lives.start(
        HANGING
        + """
    from mstxkit.recorder import process
    open_run_folder = process.run_file.open_run_folder
    # The child's own folder hangs as well: patched before the fork, for both.
    def slow(path):
        answer.wait()
        return open_run_folder(path)
    process.run_file.open_run_folder = slow
    def work(took):
        assert took < 5, took
        began = time.monotonic()
        with mstxkit.mstx_range("unrecorded"): pass
        assert time.monotonic() - began < 5
        assert not mstxkit.status().on
        assert mstxkit.status().faults["a late child"] == 1
        answer.set()
        while not mstxkit.status().on: time.sleep(0.01)
        with mstxkit.mstx_range("recorded"): pass
        mstxkit.capturing.stop_recording()
        os._exit(0)
    took, pid = fork(work)
    assert os.waitpid(pid, 0)[1] == 0
    answer.set()
    """,
        run, is_patient=False,
    )  # fmt: skip
    status, _, err = lives.finished(started)

    assert status == 0, err
    assert "late" not in err and "fault" not in err, "a program may fork for each sample: it is counted, and not logged"
    names = {row["name"] for row in lives.ranges(run)}
    assert "recorded" in names
    assert "unrecorded" not in names


@pytest.mark.parametrize("ends", ["", "capturing.stop_recording()"])
def test_children_that_give_up_and_leave_are_counted_by_their_parent(run: Path, ends: str) -> None:
    """Nothing else tells of them. The process that is stopped counts them then."""
    program = """
    from mstxkit import capturing
    from mstxkit.recorder import process
    process.run_file.open_run_folder = lambda path: answer.wait(60)
    def work(took):
        with mstxkit.mstx_range("unrecorded"): pass
        os._exit(0)
    for _ in range(3):
        took, pid = fork(work)
        assert os.waitpid(pid, 0)[1] == 0
    answer.set()
    STOP
    while mstxkit.status().faults.get("a late child") != 3: time.sleep(0.01)
    """
    lives.run(HANGING + program.replace("STOP", ends), run, is_patient=False)

    assert [row["faults"] for row in lives.processes(run)] == [3]
    assert "unrecorded" not in lives.ended(run)


def test_a_child_that_records_already_is_not_counted_as_late_where_the_rest_of_its_beginning_takes_long(
    run: Path,
) -> None:
    program = """
    from mstxkit.recorder import process
    def work(took):
        process.exits.watch_exits = lambda say: answer.wait(60)
        with mstxkit.mstx_range("recorded"): pass
        assert "a late child" not in mstxkit.status().faults
        os._exit(0)
    took, pid = fork(work)
    assert os.waitpid(pid, 0)[1] == 0
    answer.set()
    """
    lives.run(HANGING + program, run, is_patient=False)
    adopt.collect_dead(run)

    assert {row["faults"] for row in lives.processes(run)} == {0}
    assert "recorded" in {row["name"] for row in lives.ranges(run)}


def test_children_that_cannot_be_recorded_are_counted_by_their_parent(run: Path) -> None:
    """As those that are another user by their first range, to whom the run folder is closed."""
    lives.run(
        """
        import os, sys, time, mstxkit
        from mstxkit.errors import CaptureError
        from mstxkit.recorder import process
        mstxkit.capture(sys.argv[1])
        def closed(path): raise CaptureError(f"{path} belongs to somebody else")
        for _ in range(2):
            if not (pid := os.fork()):
                process.run_file.open_run_folder = closed
                with mstxkit.mstx_range("unrecorded"): pass
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        while mstxkit.status().faults.get("a late child") != 2: time.sleep(0.01)
        """,
        run,
    )

    assert [row["faults"] for row in lives.processes(run)] == [2]


@pytest.mark.parametrize("leaves", ["by_atexit()", "in_pool()"])
def test_a_child_that_ends_before_it_could_begin_waits_for_that_at_its_end(run: Path, leaves: str) -> None:
    """Its host was slow for a moment: what it does afterwards is in the run, and so is the process."""
    lives.run(
        HANGING
        + """
    from mstxkit.recorder import process
    open_run_folder = process.run_file.open_run_folder
    def slow(path):
        time.sleep(0.5)
        return open_run_folder(path)
    process.run_file.open_run_folder = slow
    def in_pool():
        import multiprocessing.util
        multiprocessing.util._run_after_forkers()
        multiprocessing.util._exit_function()
        os._exit(0)
    def by_atexit():
        atexit._run_exitfuncs()
        os._exit(0)
    def work(took):
        os.environ["RANK"] = "7"
        answer.set()
        mstxkit.mark("first")
        LEAVES
    import atexit, multiprocessing.util
    took, pid = fork(work)
    assert os.waitpid(pid, 0)[1] == 0
    answer.set()
    """.replace("LEAVES", leaves),
        run, is_patient=False,
    )  # fmt: skip

    assert [row["rank"] for row in lives.processes(run)].count(7) == 1


def test_a_fault_that_is_met_while_logging_is_locked_for_a_fork_does_not_stop_the_fork(run: Path) -> None:
    """logging, imported after capture, takes its locks for the fork before our threads are parked."""
    done = lives.run(
        """
        import os, sys, threading, mstxkit
        from mstxkit import faults
        from mstxkit.recorder import sealed
        assert "logging" not in sys.modules
        mstxkit.capture(sys.argv[1], bank_bytes=16 << 10, banks=4)
        import logging
        lines = []
        class Handler(logging.Handler):
            def emit(self, record): lines.append(record.getMessage())
        logging.getLogger("mstxkit").addHandler(Handler())
        at_fork, is_held = threading.Event(), threading.Event()
        def full(self, block, count):
            at_fork.wait()
            is_held.wait(5)
            raise OSError(28, "No space left on device")
        sealed.SealedFiles.append = full
        os.register_at_fork(before=lambda: (at_fork.set(), is_held.set()))
        for number in range(700):
            with mstxkit.mstx_range("a"): pass
        for _ in range(3):
            pid = os.fork()
            if pid == 0: os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        while not faults.counts: pass
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        print(len(lines), faults.counts["sealer.write"] > 0)
        os._exit(0)
        """,
        run, is_patient=False,
    )  # fmt: skip

    assert done.split() == ["1", "True"]
    adopt.collect_dead(run)


def test_a_fork_on_a_file_system_that_is_really_frozen(frozen_disk: Path) -> None:
    done = lives.run(
        """
        import os, subprocess, sys, threading, time, mstxkit
        run = sys.argv[1]
        mstxkit.capture(run, bank_bytes=16 << 10, banks=4, seal_every_s=0.05)
        with mstxkit.stage("s"): pass
        time.sleep(0.3)
        subprocess.run(["fsfreeze", "-f", os.path.dirname(run)], check=True)
        for _ in range(700):
            with mstxkit.mstx_range("a"): pass
        time.sleep(0.3)
        began = time.monotonic()
        mstxkit.status()
        mstxkit.step()
        pid = os.fork()
        if pid == 0: os._exit(0)
        print(time.monotonic() - began)
        subprocess.run(["fsfreeze", "-u", os.path.dirname(run)], check=True)
        os.waitpid(pid, 0)  # the kernel holds its thread until the disk answers
        """,
        frozen_disk / "run", is_patient=False,
    )  # fmt: skip

    assert float(done) < BUSY_S
    adopt.collect_dead(frozen_disk / "run")
