"""A process begins while its run folder does not answer: it goes on, and is recorded once the folder does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import lives
from builders.mounts import frozen_disk  # noqa: F401

BEGINS = """
    import os, sys, time
    import mstxkit
    from mstxkit import capturing
    if "MSTXKIT_RUN" not in os.environ:
        mstxkit.capture(sys.argv[1])
    with mstxkit.stage("before"):
        print("began", flush=True)
    sys.stdin.readline()
    while not mstxkit.status().on:
        time.sleep(0.01)
    with mstxkit.stage("after"):
        pass
"""


@pytest.mark.parametrize("how", ["capture()", "MSTXKIT_RUN"])
def test_it_goes_on_where_the_disk_is_frozen_and_is_recorded_once_it_answers(
    frozen_disk: Path,  # noqa: F811
    how: str,
) -> None:
    run = frozen_disk / "run"
    subprocess.run(["fsfreeze", "-f", frozen_disk], check=True)
    program = lives.start(BEGINS, run, **({"MSTXKIT_RUN": str(run)} if how == "MSTXKIT_RUN" else {}))
    assert program.stdout is not None
    began = program.stdout.readline()
    subprocess.run(["fsfreeze", "-u", frozen_disk], check=True)
    status, _, err = lives.finished(program)

    assert (began, status) == ("began\n", 0), "it went on while the disk was frozen"
    assert err.count("has not answered for 1.5 s: the program goes on") == 1 and "fault" not in err
    assert lives.ended(run) == {"after": 1}


HANGS = """
    import os, sys, tempfile, threading, time
    import mstxkit
    from mstxkit import capturing
    answers, made = threading.Event(), tempfile.mkdtemp
    def waits(*words, **named):
        answers.wait()
        return made(*words, **named)
    tempfile.mkdtemp = waits
    capture = mstxkit.capture(sys.argv[1])
"""


def test_who_is_stopped_before_it_answers_never_begins(run: Path) -> None:
    lives.run(
        HANGS
        + """
    before = os.environ.get("MSTXKIT_RUN")
    capture.stop()
    answers.set()
    time.sleep(0.3)
    assert before and not mstxkit.status().on and "MSTXKIT_RUN" not in os.environ
    with mstxkit.stage("never"):
        pass
        """,
        run,
    )

    assert not (run / "run.json").exists()


def test_a_fork_and_a_second_capture_meanwhile_are_recorded_once_it_answers(run: Path) -> None:
    lives.run(
        HANGS
        + """
    again = mstxkit.capture(sys.argv[1])
    pid = os.fork()
    if pid == 0:
        with mstxkit.stage("child"):
            pass
        sys.exit()
    os.waitpid(pid, 0)
    answers.set()
    while not mstxkit.status().on:
        time.sleep(0.01)
    with mstxkit.stage("parent"):
        pass
        """,
        run,
        is_patient=False,
    )

    assert lives.ended(run)["parent"] == 1
    assert {row["ending"] for row in lives.processes(run)} == {None}


def test_a_command_is_started_all_the_same(frozen_disk: Path) -> None:  # noqa: F811
    """It ends when the kernel lets go of its thread."""
    words = [sys.executable, "-m", "mstxkit", "run", "--run", str(frozen_disk / "run"), "--", "echo", "ran"]
    subprocess.run(["fsfreeze", "-f", frozen_disk], check=True)
    command = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=lives.environment()
    )  # fmt: skip
    assert command.stdout is not None
    said = command.stdout.readline()
    subprocess.run(["fsfreeze", "-u", frozen_disk], check=True)
    _, err = command.communicate(timeout=60)

    assert (said, command.returncode) == ("ran\n", 0) and "does not answer: CMD is started all the same" in err
