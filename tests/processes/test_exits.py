"""What a process says of its own end: `os._exit` with its status, and the exception that ended the program."""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import lives

import mstxkit
from mstxkit.recorder import adopt


def end_of(run: Path) -> tuple[str, str | None]:
    adopt.collect_dead(run)
    (row,) = lives.processes(run)
    return row["state"], row["ending"]


@pytest.mark.parametrize(("status", "state"), [(0, "left"), (3, "killed")])
def test_the_status_of_os_exit_is_read_back(run: Path, status: int, state: str) -> None:
    lives.run(
        """
        import os, sys, mstxkit
        mstxkit.capture(sys.argv[1])
        with mstxkit.mstx_range("before"):
            pass
        os._exit(status=int(sys.argv[2]))
        """,
        run, status, status=status,
    )  # fmt: skip

    assert [(row["state"], row["ending"]) for row in lives.processes(run)] == [(state, f"by os._exit({status})")]
    assert end_of(run) == (state, f"by os._exit({status})"), "when it is sealed as well"
    assert lives.ended(run) == {"before": 1}


@pytest.mark.parametrize(("program", "error"), [("raise ValueError(5)", "by ValueError"), ("sys.exit(1)", None)])
def test_the_exception_that_ended_the_program_is_read_back(run: Path, program: str, error: str | None) -> None:
    lives.run(f"import sys, mstxkit\nmstxkit.capture(sys.argv[1])\n{program}", run, status=1)

    assert end_of(run) == ("ended", error)


def test_at_a_prompt_an_exception_ends_what_was_typed_and_no_process(run: Path) -> None:
    typed = f"import mstxkit; mstxkit.capture({str(run)!r}, hang_s=1)\n1 / 0\nimport time; time.sleep(3)\nexit()\n"
    done = subprocess.run([sys.executable, "-i"], input=typed, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0 and "ZeroDivisionError" in done.stderr
    assert end_of(run) == ("ended", None)
    assert not (run / "incidents").exists()


def test_a_child_of_multiprocessing_that_raises_says_so(run: Path) -> None:
    lives.run(
        """
        import multiprocessing, sys, mstxkit
        def fail():
            raise KeyError("x")
        mstxkit.capture(sys.argv[1])
        child = multiprocessing.get_context("fork").Process(target=fail)
        child.start()
        child.join()
        """,
        run,
    )

    assert sorted((row["state"], row["ending"] or "") for row in lives.processes(run)) == [
        ("ended", ""), ("ended", "by KeyError"),
    ]  # fmt: skip


def test_os_exit_is_the_same_to_everybody_and_put_back(run: Path) -> None:
    before: Any = os._exit
    with mstxkit.capture(run):
        ours: Any = os._exit
        assert ours is not before and ours.__wrapped__ is before
        assert inspect.signature(ours) == inspect.signature(before)
        assert pickle.loads(pickle.dumps(ours)) is ours

    assert os._exit is before


def test_what_somebody_else_put_in_its_place_stays(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(status: int) -> None:
        raise SystemExit(status)

    with mstxkit.capture(run):
        with monkeypatch.context() as patched:
            patched.setattr(os, "_exit", theirs)
            mstxkit.capture(run).stop()
            assert os._exit is theirs


def test_a_signal_says_nothing(run: Path) -> None:
    process = lives.start("import sys, mstxkit\nmstxkit.capture(sys.argv[1])\nprint(flush=True)\nsys.stdin.read()", run)
    assert process.stdout is not None
    process.stdout.readline()
    lives.killed(process, signal.SIGKILL)

    assert end_of(run) == ("killed", "while the others went on")
