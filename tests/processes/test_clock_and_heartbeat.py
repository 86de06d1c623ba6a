"""What a process says of its time: the clock it was told to use, its error, a heartbeat that the GIL does not stop."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import pytest
from builders import lives

import mstxkit
from mstxkit.engine.choose import engine
from mstxkit.host import clock
from mstxkit.recorder import current
from mstxkit.store import livefile

SLEEP_S = 0.25
COUNTER = clock.COUNTERS.get(os.uname().machine, clock.MONOTONIC)
KINDS = ["monotonic", {clock.TSC: "tsc", clock.CNTVCT: "cntvct"}.get(COUNTER, "monotonic")]


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_a_range_lasts_as_long_as_the_kernel_says_within_the_stated_error(
    run: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The range lies between two readings of CLOCK_MONOTONIC inside it and two around it; so it does on the run's
    clock.
    """
    monkeypatch.setenv("MSTXKIT_CLOCK", kind)
    if not engine.NATIVE and kind != "monotonic":
        pytest.skip("the Python twin has no other clock")
    with mstxkit.capture(run):
        around = time.monotonic_ns()
        with mstxkit.mstx_range("sleep"):
            inside = time.monotonic_ns()
            time.sleep(SLEEP_S)
            inside = time.monotonic_ns() - inside
        around = time.monotonic_ns() - around

    (row,), (told,) = lives.ranges(run), lives.processes(run)
    error_ns = told["clock_error_ns"]
    assert told["clock"] == kind
    assert inside - 2 * error_ns <= row["duration_ns"] <= around + 2 * error_ns
    assert error_ns < SLEEP_S / 4 * 1e9, "an error that says nothing"


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_starts_are_on_the_wall_clock(run: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("MSTXKIT_CLOCK", kind)
    with mstxkit.capture(run):
        before = time.time_ns()
        with mstxkit.mstx_range("now"):
            pass
        after = time.time_ns()

    (row,), (told,) = lives.ranges(run), lives.processes(run)
    slack_ns = told["clock_error_ns"] + 1_000_000
    assert before - slack_ns <= row["start_ns"] <= after + slack_ns


def test_a_long_range_holds_its_clock_over_many_anchors(run: Path) -> None:
    """Anchors are added while the process runs: at its start, and by the heartbeat."""
    with mstxkit.capture(run, heartbeat_s=0.01), mstxkit.mstx_range("long"):
        view = current.live_view()
        assert view is not None
        assert lives.wait_until(lambda: len(livefile.read_anchors(view)) >= 3)
        anchors = livefile.read_anchors(view)

    assert [a.monotonic_ns for a in anchors] == sorted({a.monotonic_ns for a in anchors})
    assert all(a.error_ns < 50_000_000 for a in anchors)


def test_the_heartbeat_goes_on(run: Path) -> None:
    with mstxkit.capture(run, heartbeat_s=0.01):
        view = current.live_view()
        assert view is not None
        first = livefile.heartbeat_ns(view)
        assert lives.wait_until(lambda: livefile.heartbeat_ns(view) > first)
        beats_at = livefile.heartbeat_ns(view)

    assert beats_at <= time.monotonic_ns()


@pytest.mark.skipif(not engine.NATIVE, reason="the Python twin's heartbeat needs the GIL")
def test_the_heartbeat_goes_on_while_a_call_holds_the_gil(run: Path) -> None:
    """A process stuck in C is still there: only one that stands still as a whole has no heartbeat."""
    with mstxkit.capture(run, heartbeat_s=0.01):
        view = current.live_view()
        assert view is not None
        began = time.monotonic_ns()
        ctypes.PyDLL(None).usleep(600_000)  # PyDLL does not release the GIL
        last_beat = livefile.heartbeat_ns(view)

    assert last_beat > began + 100_000_000


def test_the_heartbeat_survives_a_fork_in_parent_and_child(run: Path) -> None:
    out = lives.run(
        """
        import os, sys, time, mstxkit, mstxkit.capturing
        from mstxkit.recorder import current
        from mstxkit.store import livefile
        mstxkit.capture(sys.argv[1], heartbeat_s=0.01)
        pid = os.fork()
        forked = time.monotonic_ns()
        mstxkit.mark("goes on")
        view = current.live_view()
        deadline = time.monotonic() + 20
        while livefile.heartbeat_ns(view) < forked and time.monotonic() < deadline:
            time.sleep(0.005)
        told = f"{'child' if pid == 0 else 'parent'} {livefile.heartbeat_ns(view) >= forked}\\n"
        os.write(1, told.encode())  # in one piece: both write into one pipe
        if pid:
            os.waitpid(pid, 0)
        """,
        run,
    )

    assert sorted(out.splitlines()) == ["child True", "parent True"]
