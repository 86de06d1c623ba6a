"""A bar is for whoever looks at a terminal: it is gone when its work is done, and never in a pipe."""

from __future__ import annotations

import os
import pty
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from builders import terminals
from builders.judged_runs import NOBODY, recorded, stage_times

pytest.importorskip("typer")

from mstxkit.cli import _output, _show
from mstxkit.errors import MstxkitError

WORK = """
import sys, time
from mstxkit.cli._show import show_progress
with show_progress("Counting [sheep]", total=3) as advance:
    for _ in range(2):
        time.sleep(0.12)
        advance(1)
    sys.stdin.read()  # whoever looks has seen that
    advance(1)
"""
INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from mstxkit.cli._output import write_whole
with write_whole(Path(sys.argv[1]), is_folder=sys.argv[2] == "folder") as draft:
    (draft / "part" if draft.is_dir() else draft).write_text("half of it")
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
"""


def on_a_terminal(*words: str, until: str = "", **environment: str) -> str:
    """What a Python of these words shows there; its input ends once it has shown `until`. What it prints is lost."""
    ours, theirs = pty.openpty()
    command, pipes = [sys.executable, *words], {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command, stderr=theirs, env={**os.environ, **environment}, **pipes) as done:  # type: ignore[call-overload]
        os.close(theirs)
        shown = terminals.up_to(ours, until)
        done.stdin.close()
        shown += terminals.all_of(ours)
        assert done.wait(30) == 0
    return shown


def test_a_bar_shows_on_a_terminal_how_far_the_work_has_come() -> None:
    shown = on_a_terminal("-c", WORK, until="67%", TERM="xterm")

    assert "Counting [sheep]" in shown
    assert "67%" in shown


def test_a_dumb_terminal_shows_nothing() -> None:
    assert on_a_terminal("-c", WORK, TERM="dumb") == ""


def test_a_pipe_gets_nothing() -> None:
    environment = {**os.environ, "FORCE_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", WORK], input=b"", capture_output=True, env=environment)

    assert (done.stdout, done.stderr) == (b"", b"")


def test_comparing_shows_a_bar_on_a_terminal(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    runs = [str(recorded(tmp_path / name, stage_times(NOBODY, ranks=2))) for name in "ab"]

    assert "Comparing" in on_a_terminal("-m", "mstxkit", "compare", *runs, TERM="xterm")


def test_errors_pass_through_a_bar() -> None:
    with pytest.raises(ZeroDivisionError), _show.show_progress("Counting") as advance:
        advance(1 / 0)


@pytest.mark.parametrize("form", ["file", "folder"])
def test_ctrl_c_leaves_no_half_file(tmp_path: Path, form: str, ctrl_c: None) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, tmp_path / "out", form], capture_output=True)

    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_what_was_there_before(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")

    with pytest.raises(ZeroDivisionError), _output.write_whole(tmp_path / "out") as draft:
        draft.write_text("half of it")
        raise ZeroDivisionError

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out", "before")]


def test_a_folder_of_ours_is_replaced_whole(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with _output.write_whole(tmp_path / "out", is_folder=True) as draft:
            (draft / name).touch()

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [_output.MADE_BY_US, "second"]


@pytest.mark.parametrize("umask", [0, 0o077])
def test_a_folder_may_be_read_by_whom_the_run_may_and_is_nobody_elses(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with _output.write_whole(tmp_path / "out", is_folder=True):
            pass
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "out" / _output.MADE_BY_US).stat().st_mode) in (0o640, 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()

    with pytest.raises(MstxkitError, match="holds other files"), _output.write_whole(tmp_path / "out", is_folder=True):
        pass

    assert (tmp_path / "out" / "thesis.tex").exists()


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MstxkitError, match="is a folder"), _output.write_whole(tmp_path):
        pass
