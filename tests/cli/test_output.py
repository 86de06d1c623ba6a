"""JSON is one object. Output that cannot be written is one line and exit code 74; an unread pipe is SIGPIPE."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Callable

import pytest
from builders import lives
from builders.local_profiles import Place
from builders.local_seals import SealedPlace
from builders.mounts import Mount, mount  # noqa: F401
from builders.odd_runs import one_range
from builders.run_files import RUN_ID, BankFiles, ProcessFiles, new_run

pytest.importorskip("polars")
pytest.importorskip("typer")

from typer.testing import CliRunner

from mstxkit.cli import _output, build_application
from mstxkit.errors import MstxkitError

pytestmark = pytest.mark.days("even")

WORDS = [["report"], ["report", "--json"], ["status"], ["--help"], ["export", "--help"], ["config", "--help"]]


def command(words: list[str], run: Path) -> list[str]:
    return [sys.executable, "-m", "mstxkit", *words, *([] if "--help" in words else [str(run)])]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = new_run(tmp_path / "run")
    for pid in range(40, 140):
        ProcessFiles(run, pid, rank=pid).seal(BankFiles().range("gen", 0, 5, stage="gen", own=True, step=0))
    return run


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_full_disk_is_one_line_and_74(run: Path, words: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            command(words, run), stdout=full, stderr=subprocess.PIPE, text=True, env=lives.environment(), timeout=60
        )

    assert done.stderr == "mstxkit: the output cannot be written: No space left on device\n"
    assert done.returncode == 74


@pytest.mark.parametrize("words", WORDS[:4], ids=" ".join)
def test_with_its_output_closed_it_is_one_line_and_74(run: Path, words: list[str]) -> None:
    """As by `>&-` in a shell: what could not be written was not."""
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command(words, run)]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, env=lives.environment(), timeout=60)

    assert (done.returncode, done.stderr) == (74, "mstxkit: the output cannot be written: Bad file descriptor\n")


@pytest.mark.parametrize("words", WORDS[:3], ids=" ".join)
def test_a_pipe_that_nobody_reads_ends_it_as_any_command(run: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(words, run), stdout=writing, stderr=subprocess.PIPE, text=True, env=lives.environment(), timeout=60
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize(
    "words",
    [
        "doctor",
        "status",
        "status RUN",
        "profiles RUN",
        "collect RUN",
        "profiles RUN --analyse",
        "doctor --patches",
        "collect RUN --compact",
        "top RUN",
    ],
)
def test_json_is_one_object_with_the_number_of_its_form(
    tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_range(new_run(tmp_path / "RUN"))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(build_application(words.split()[0]), [*words.split(), "--json"])

    assert json.loads(done.stdout)["schema"] >= 1, done.output


@pytest.mark.parametrize("moves", [1, 2])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, OSError])
def test_what_ends_between_two_moves_leaves_one_whole_folder(
    tmp_path: Path, moves: int, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or a disk that is gone, once so many moves are done: that of the old folder away, that of the new one."""
    for name in ("old", "new"):
        with pytest.raises((raised, MstxkitError)) if name == "new" else nullcontext():
            with _output.write_whole(tmp_path / "out", is_folder=True) as draft:
                (draft / name).touch()
                if name == "new":
                    monkeypatch.setattr(os, "rename", ending_after(moves, raised))

    left = {file.name for file in (tmp_path / "out").iterdir()} - {_output.MADE_BY_US}
    assert (left, [path.name for path in tmp_path.iterdir()]) == ({"old" if moves == 1 else "new"}, ["out"])


def ending_after(moves: int, raised: type[BaseException]) -> Callable[[Path, Path], None]:
    """`os.rename`, which raises once when it has done so many."""
    rename, done = os.rename, []

    def moved(old: Path, new: Path) -> None:
        rename(old, new)
        done.append(old)
        if len(done) == moves:
            raise raised

    return moved


@pytest.mark.parametrize(
    "words", [["report", "--html"], ["export", "--to", "csv", "-o"], ["export", "--to", "otlp", "-o"]]
)
def test_where_nothing_may_be_written_it_is_one_line(run: Path, mount: Mount, words: list[str]) -> None:  # noqa: F811
    disk = mount("disk", "size=1m")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    command = [sys.executable, "-m", "mstxkit", words[0], str(run), *words[1:], str(disk / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=lives.environment(), timeout=60)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"mstxkit: {disk}/out cannot be written: Read-only file system\n"


@pytest.mark.parametrize("form", ["csv", "parquet", "ascend-db"])
def test_a_disk_that_gets_full_is_one_line_and_leaves_nothing(run: Path, mount: Mount, form: str) -> None:  # noqa: F811
    disk = mount("disk", "size=16k")
    command = [sys.executable, "-m", "mstxkit", "export", str(run), "--to", form, "-o", str(disk / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=lives.environment(), timeout=60)

    assert (done.returncode, done.stdout, os.listdir(disk)) == (1, "", [])
    assert done.stderr.startswith(f"mstxkit: {disk}/out cannot be written: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("part", "why"), [("run", "not moved: "), ("all", "mstxkit: [Errno 30] Read-only file system: ")]
)
def test_what_a_disk_does_not_take_is_said_in_a_line(tmp_path: Path, mount: Mount, part: str, why: str) -> None:  # noqa: F811
    disk = mount(part, "size=1m")
    place = SealedPlace(tmp_path if part == "run" else disk)
    place.write(place.process(1), 1)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    command = [sys.executable, "-m", "mstxkit", "collect", str(place.run)]
    done = subprocess.run(command, capture_output=True, text=True, env=lives.environment(), timeout=60)

    assert (done.returncode, (done.stdout + done.stderr).count("\n")) == (1, 1)
    assert (done.stdout + done.stderr).startswith(why)


def test_what_cannot_be_sealed_is_told_of_and_stays(tmp_path: Path, mount: Mount) -> None:  # noqa: F811
    """Who gives a host back once `collect` has ended well must not lose what is in its memory."""
    run, folder = new_run(tmp_path / "run"), tmp_path / "shm" / RUN_ID
    killed = ProcessFiles(run, 100, start="5eed")
    made = killed.live(BankFiles().range("gen", 0, 5, stage="gen", own=True, step=0))
    folder.mkdir(parents=True)
    killed.point_to(made.rename(folder / made.name))
    (run / "sealed").rmdir()
    mount("run/sealed", "ro")
    done = CliRunner().invoke(build_application("collect"), ["collect", str(run)])
    told = CliRunner().invoke(build_application("collect"), ["collect", str(run), "--json"])

    assert (done.exit_code, told.exit_code, done.output.count("\n")) == (1, 1, 1)
    assert done.output.startswith("not sealed: ") and "Read-only file system" in done.output
    assert len(json.loads(told.stdout)["not_sealed"]) == 1 and (folder / made.name).exists()


def test_a_full_disk_of_the_run_does_not_pass_for_standard_output(mount: Mount) -> None:  # noqa: F811
    disk = mount("disk", "size=1m")
    place = Place(disk)
    for number in (1, 2):
        place.record(local=False, number=number, end_ns=number)
    room = os.statvfs(disk)
    (disk / "others").write_bytes(bytes(room.f_bavail * room.f_frsize))
    done = CliRunner().invoke(build_application("profiles"), ["profiles", str(place.run), "--keep", "1k"])

    assert done.exit_code == 1 and done.output.count("\n") == 1
    assert done.output.startswith(f"mstxkit: [Errno 28] No space left on device: '{place.run}/profiles/")
