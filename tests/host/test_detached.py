"""What is started apart from a program is none of its children: it may end or wait for all that it has."""

from __future__ import annotations

import shutil
import subprocess
import sys
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
        from mstxkit.recorder import current
        from mstxkit.store import layout
        mstxkit.capture(sys.argv[1], hang_s=1)
        lock, until_s = current.recorder.live.path.parent / layout.WATCH_LOCK, time.monotonic() + 60
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


def test_a_program_that_is_the_first_of_its_container_keeps_no_zombie_of_ours(run: Path) -> None:
    """What is nobody's child is its: its watchman is waited for once he is gone, also where another follows."""
    own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*own, "true"], capture_output=True).returncode:
        pytest.skip("this user makes no namespaces")
    program = """
        import os, signal, sys, time, mstxkit
        from mstxkit import capturing
        from mstxkit.host import detached, proc_files
        assert os.getpid() == 1
        mstxkit.capture(sys.argv[1], hang_s=60)
        starter = capturing._beside.keeper.get()._watchman
        gone = []
        for _ in range(2):
            while not detached._children or detached._children[-1] in gone:  # the keeper starts it, or this does
                starter._next_s = 0
                starter.consider()
            gone.append(detached._children[-1])
            os.kill(gone[-1], signal.SIGKILL)
            while proc_files.stat_of(f"/proc/{gone[-1]}")[0] != "Z":
                time.sleep(0.001)
        starter._next_s = 0
        starter.consider()
        print([pid for pid in gone if os.path.exists(f"/proc/{pid}")], len(detached._children))
    """
    done = subprocess.run(
        [*own, sys.executable, "-c", lives.dedented(program), str(run)], env=lives.environment(), capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, "[] 1\n"), done.stderr


@pytest.mark.parametrize("made_by", ["sys.frozen = True", "sys.executable = sys.argv[2] + '/service'"])
def test_a_program_that_is_its_own_python_is_not_started_again(run: Path, tmp_path: Path, made_by: str) -> None:
    """Of PyInstaller, or with Python inside of it: a copy of the training was started every five seconds."""
    program, log = tmp_path / "service", tmp_path / "service.log"
    program.write_text(f"#!/bin/sh\necho again >> {log}\n")
    program.chmod(0o700)
    (tmp_path / "python").symlink_to(program)
    lives.run(
        f"""
        import sys, time, mstxkit
        sys.executable = sys.argv[2] + "/python"
        {made_by}
        mstxkit.capture(sys.argv[1], hang_s=0.5)
        until_s = time.monotonic() + 20
        while "watchman" not in mstxkit.status().faults and time.monotonic() < until_s:
            time.sleep(0.05)
        """,
        run, tmp_path, has_faults=True,
    )  # fmt: skip

    assert not log.exists()
