"""A program whose threads gevent has replaced: ours would be tasks in its one thread, and it would never go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import lives

pytest.importorskip("gevent")

_SAYS = "gevent has replaced threads by tasks"


def test_it_is_not_recorded_is_told_why_and_goes_on(run: Path) -> None:
    said = lives.run(
        """
        import gevent.monkey
        gevent.monkey.patch_all()
        import sys, time, mstxkit
        from mstxkit.errors import CaptureError
        try:
            mstxkit.capture(sys.argv[1])
        except CaptureError as exc:
            print(exc)
        with mstxkit.stage("serve"):
            time.sleep(0.01)
        print("went on")
        """,
        run,
    )

    assert _SAYS in said and "patch_all(thread=False)" in said and "MSTXKIT_OFF=1" in said
    assert said.splitlines()[-1] == "went on"
    assert not list((run / "live").iterdir())


def test_a_run_of_the_environment_costs_it_one_line(run: Path) -> None:
    program = "import gevent.monkey; gevent.monkey.patch_all(); import mstxkit; print('went on')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path}; {program}"],
        env={**os.environ, "MSTXKIT_RUN": str(run)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, "went on\n")
    assert _SAYS in done.stderr and len(done.stderr.splitlines()) == 1


def test_where_they_are_replaced_later_a_fork_goes_on_and_what_was_recorded_is_kept(run: Path) -> None:
    lives.run(
        """
        import os, sys, time, mstxkit
        mstxkit.capture(sys.argv[1])
        with mstxkit.stage("before"):
            pass
        while not mstxkit.capturing._beside.keeper.made:
            time.sleep(0.01)  # gevent's own set-up fails where another thread imports meanwhile, whoever's that is
        import gevent.monkey
        gevent.monkey.patch_all()
        with mstxkit.stage("replaced"):
            time.sleep(0.01)
        forked, tell = os.pipe()
        if (pid := os.fork()) == 0:
            os.read(forked, 1)  # gevent misses the end of a child that is faster than its own fork
            os._exit(0)
        os.write(tell, b"!")
        assert os.waitpid(pid, 0)[1] == 0
        with mstxkit.stage("after"):
            time.sleep(0.01)
        """,
        run,
        has_faults=True,
    )

    assert [row["name"] for row in lives.ranges(run)] == ["before", "replaced", "after"]
    assert not lives.damage(run)
