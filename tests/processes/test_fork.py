"""Forks: every process records into its own live file, from the moment of the fork, and ends its own ranges only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from builders import lives

from mstxkit.engine.choose import engine
from mstxkit.recorder import adopt

pytestmark = pytest.mark.days("even")


def test_a_fork_in_the_middle_of_a_range_leaves_that_range_to_the_parent(run: Path) -> None:
    lives.run(
        """
        import os, sys, mstxkit
        mstxkit.capture(sys.argv[1])
        with mstxkit.stage("parents") as parents:
            pid = os.fork()
            if pid == 0:
                with mstxkit.mstx_range("childs"):
                    pass
                parents.__exit__(None, None, None)
                sys.exit()
            assert os.waitpid(pid, 0)[1] == 0
        """,
        run,
    )

    rows = lives.ranges(run)
    assert sorted((row["name"], row["open"], row["error"]) for row in rows) == [
        ("childs", False, False), ("parents", False, False),
    ]  # fmt: skip
    assert len({row["pid"] for row in rows}) == 2
    assert not lives.damage(run)


def test_three_generations_of_forks_are_recorded_and_sealed(run: Path) -> None:
    lives.run(
        """
        import os, sys, mstxkit
        mstxkit.capture(sys.argv[1])
        for generation in range(3):
            with mstxkit.mstx_range(f"generation {generation}"):
                pass
            if pid := os.fork():
                assert os.waitpid(pid, 0)[1] == 0
                break
        else:
            with mstxkit.mstx_range("generation 3"):
                pass
        """,
        run,
    )

    assert lives.ended(run) == {f"generation {generation}": 1 for generation in range(4)}
    assert [row["state"] for row in lives.processes(run)] == ["ended"] * 4
    assert not list((run / "live").iterdir())


def test_threads_go_on_recording_while_the_process_forks(run: Path) -> None:
    out = lives.run(
        """
        import os, sys, threading, time, mstxkit
        sys.setswitchinterval(0.0001)
        mstxkit.capture(sys.argv[1])
        goes_on, counts = True, [0, 0, 0]

        def work(k):
            while goes_on or counts[k] < 10:
                with mstxkit.mstx_range(f"thread {k}", n=counts[k]):
                    pass
                counts[k] += 1
                if counts[k] % 16 == 0:
                    time.sleep(0.001)  # lets the sealer keep up

        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            if (pid := os.fork()) == 0:
                with mstxkit.mstx_range("child"):
                    os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        goes_on = False
        for thread in threads:
            thread.join()
        print(*counts)
        """,
        run, MSTXKIT_BANK_BYTES="65536", MSTXKIT_BANKS="64",
    )  # fmt: skip
    adopt.collect_dead(run)

    rows = lives.ranges(run)
    by_thread = [[row["attributes"]["n"] for row in rows if row["name"] == f"thread {k}"] for k in range(3)]
    assert by_thread == [list(range(int(count))) for count in out.split()]
    assert Counter(row["name"] for row in rows if row["open"]) == {"child": 10}
    assert sum(row["dropped"] for row in lives.processes(run)) == 0


def test_a_child_that_dies_at_once_is_told_apart_from_its_parent(run: Path) -> None:
    lives.run(
        """
        import os, signal, sys, mstxkit
        mstxkit.capture(sys.argv[1])
        with mstxkit.mstx_range("before"):
            pass
        if (pid := os.fork()) == 0:
            with mstxkit.mstx_range("last words"):
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        """,
        run,
    )
    adopt.collect_dead(run)

    assert Counter(row["state"] for row in lives.processes(run)) == {"ended": 1, "killed": 1}
    assert lives.ended(run) == {"before": 1}
    assert lives.still_open(run) == {"last words": 1}


# Python itself survives a fork past `os.fork` only where no thread is waiting for its lock (`Python/ceval_gil.h`, whose
# conditions are made anew by `os.fork` alone): so these programs fork once all threads have gone to sleep.
FORKED_FROM_C = """
    import ctypes, os, sys, time, mstxkit
    parents = mstxkit.capture(sys.argv[1])
    with mstxkit.stage("whole"):
        time.sleep(0.2)
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            for number in range(100):
                with mstxkit.mstx_range("in the child", n=number):
                    pass
            {leaves}
        assert os.waitpid(pid, 0)[1] == 0
        with mstxkit.mstx_range("afterwards"):
            pass
"""


@pytest.mark.parametrize("leaves", ["os._exit(0)", "sys.exit()", "parents.stop(); os._exit(0)"])
def test_a_child_forked_from_c_leaves_its_parents_recording_alone(run: Path, leaves: str) -> None:
    """However it leaves. It is not recorded; on the Python twin its first range may be, until the twin sees the new
    pid.
    """
    lives.run(FORKED_FROM_C.format(leaves=leaves), run)

    found = lives.ended(run)
    assert found.pop("in the child", 0) <= (0 if engine.NATIVE else 1)
    assert found == {"whole": 1, "afterwards": 1}
    assert not lives.still_open(run)
    assert [(row["state"], row["ending"]) for row in lives.processes(run)] == [("ended", None)]


def test_a_child_forked_from_c_may_capture_and_fork_by_itself(run: Path) -> None:
    lives.run(
        """
        import ctypes, os, sys, time, mstxkit
        mstxkit.capture(sys.argv[1])
        time.sleep(0.2)
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            mstxkit.capture(sys.argv[1])
            with mstxkit.mstx_range("child"):
                pass
            if (grandchild := os.fork()) == 0:
                with mstxkit.mstx_range("grandchild"):
                    pass
                sys.exit()
            assert os.waitpid(grandchild, 0)[1] == 0
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0
        """,
        run,
    )

    assert lives.ended(run) == {"child": 1, "grandchild": 1}
    assert [row["state"] for row in lives.processes(run)] == ["ended"] * 3


def test_a_subprocess_is_recorded_by_way_of_the_environment(run: Path) -> None:
    """With a `preexec_fn`, subprocess forks through Python: that moment of a child is no process of the run."""
    lives.run(
        """
        import os, subprocess, sys, mstxkit
        mstxkit.capture(sys.argv[1])
        child = "import mstxkit\\nwith mstxkit.mstx_range('in a subprocess'): pass"
        subprocess.run([sys.executable, "-c", child], check=True)
        subprocess.run([sys.executable, "-c", child], check=True, preexec_fn=lambda: None)
        """,
        run,
    )

    assert lives.ended(run) == {"in a subprocess": 2}
    assert len(lives.processes(run)) == 3
    assert not list((run / "live").iterdir())


def test_a_child_of_multiprocessing_may_begin_to_capture_itself(run: Path) -> None:
    lives.run(
        """
        import multiprocessing, sys, mstxkit

        def work(name):
            mstxkit.capture(sys.argv[1])
            with mstxkit.mstx_range(name):
                pass

        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(f"child {k}",)) for k in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0]
        """,
        run,
    )

    assert lives.ended(run) == {"child 0": 1, "child 1": 1}
    assert [row["state"] for row in lives.processes(run)] == ["ended", "ended"]


def pythons_that_warn() -> dict[str, str]:
    """Interpreters from 3.12 on, this one or others on this machine, by version: they warn of a fork with threads."""
    named = filter(None, (shutil.which(f"python3.{minor}") for minor in range(12, 16)))
    made = Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python")
    found = {version_of(path): path for path in [*named, *map(str, made), sys.executable]}
    return {version: path for version, path in found.items() if version >= "3.12"}


def version_of(python: str) -> str:
    asked = [python, "-c", "import sys; print('%d.%02d' % sys.version_info[:2])"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()


def test_a_fork_under_capture_is_no_fork_with_threads_to_python(run: Path) -> None:
    """Python counts all threads of a process that forks, those made in C too: some versions before, some after it."""
    pythons = pythons_that_warn()
    if not pythons:
        pytest.skip("no Python from 3.12 on is found on this machine")
    for version, python in pythons.items():
        process = lives.start(
            FORKS_AND_WARNS, run, version, python=python, MSTXKIT_NATIVE=str(int(engine.NATIVE and can_load(python)))
        )
        status, _, err = lives.finished(process)
        under_capture, _, with_a_thread = err.partition("with a thread of its own\n")

        assert (status, under_capture) == (0, "")
        assert "DeprecationWarning" in with_a_thread
    assert lives.ended(run) == {f"in {version}": 3 for version in pythons}


FORKS_AND_WARNS = """
    import os, sys, threading, time, warnings
    warnings.simplefilter("always")
    import mstxkit
    mstxkit.capture(sys.argv[1])
    os.register_at_fork(after_in_parent=lambda: [n for n in range(100)])  # as logging does, where it is imported later
    for _ in range(3):
        with mstxkit.mstx_range("in " + sys.argv[2]):
            pid = os.fork()
            if pid == 0:
                sys.exit()
            assert os.waitpid(pid, 0)[1] == 0
    deadline = time.monotonic() + 30
    wanted = ["MainThread"] + ["mstxkit-heartbeat"] * (not mstxkit.status().native) + ["mstxkit-sealer"]
    while sorted(t.name for t in threading.enumerate() if t.name != "mstxkit-keeper") != wanted:
        assert time.monotonic() < deadline, "threads are back"
        time.sleep(0.01)
    sys.stderr.write("with a thread of its own\\n")
    threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()
    if os.fork() == 0:
        sys.exit()
    os.wait()
"""


def can_load(python: str) -> bool:
    """Is there a C engine for that interpreter, too?"""
    asked = [python, "-c", "import mstxkit.engine.native.hot"]
    return subprocess.run(asked, env=lives.environment(), capture_output=True).returncode == 0


def test_what_the_parent_coalesces_for_its_cost_the_child_records(run: Path) -> None:
    lives.run(
        """
        import os, sys, mstxkit
        from mstxkit import capturing
        from mstxkit.recorder import current
        mstxkit.capture(sys.argv[1], budget_ratio=1e-9)
        for _ in range(1000):
            with mstxkit.mstx_range("x"):
                pass
        current.recorder.sealer._govern()
        assert mstxkit.status().governor["coalescing"] == ["x"]
        if (pid := os.fork()) == 0:
            assert mstxkit.status().governor["coalescing"] == []
            for _ in range(10):
                with mstxkit.mstx_range("x"):
                    pass
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0
        """,
        run,
    )

    assert sorted(Counter(row["pid"] for row in lives.ranges(run)).values()) == [10, 1000]


# A real failure, without any privilege: no address space has room for such a stack.
NO_THREADS = """
    import os, sys, threading, time, mstxkit
    mstxkit.capture(sys.argv[1])

    def forked(child):
        threading.stack_size(1 << 47)
        if (pid := os.fork()) == 0:
            child()
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0

    def are_back():
        return "mstxkit-sealer" in {thread.name for thread in threading.enumerate()}

    def record_until(is_so):
        until = time.monotonic() + 30
        while not is_so() and time.monotonic() < until:
            with mstxkit.mstx_range("after"):
                time.sleep(0.01)
"""


def test_where_no_thread_can_be_started_after_a_fork_a_range_tries_again(run: Path) -> None:
    out = lives.run(
        NO_THREADS
        + lives.ENDING_THREADS
        + """
    forked(lambda: None)
    with mstxkit.mstx_range("without"):
        print(len(threading.enumerate()))
    threading.stack_size(0)
    record_until(are_back)
    print(are_back())
""",
        run, has_faults=True,
    )  # fmt: skip

    assert out.split() == ["1", "True"]
    assert lives.ended(run)["without"] == 1 and lives.ended(run)["after"] >= 1


def test_a_child_whose_thread_cannot_be_started_records_once_it_can(run: Path) -> None:
    lives.run(
        NO_THREADS
        + """
    def child():
        from mstxkit.recorder import current
        threading.stack_size(0)
        record_until(lambda: current.recorder)
        with mstxkit.mstx_range("recorded"):
            pass
    forked(child)
""",
        run, has_faults=True,
    )  # fmt: skip

    assert lives.ended(run)["recorded"] == 1
