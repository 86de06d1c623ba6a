"""What is started apart from a program is none of its children: it may end or wait for all that it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import lives


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_program_that_waits_for_all_of_its_children_has_none_of_ours(run: Path) -> None:
    said = lives.run(
        """
        import os, sys, time, mstxkit
        from mstxkit.recorder import here
        from mstxkit.store import layout
        mstxkit.capture(sys.argv[1], hang_s=1)
        lock, until_s = here.recorder.live.path.parent / layout.WATCH_LOCK, time.monotonic() + 60
        while not lock.exists() and time.monotonic() < until_s:
            time.sleep(0.001)
        assert lock.exists()
        try:
            print("a child:", os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("no child")
        """,
        run,
    )

    assert said == "no child\n"
