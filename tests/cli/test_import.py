"""`mstxkit import`: commands of its guide page, what a person sees, and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders import device_profiles, escalated_run, imported_run
from builders.device_profiles import MS

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("typer")

pytestmark = pytest.mark.days("even")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "import.md"


def mstxkit(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mstxkit", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(PAGE.parents[2])}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """`runs/exp7` of two ranks, and what was recorded of their devices, as the guide page has it."""
    (tmp_path / "runs").mkdir()
    imported_run.run_of(tmp_path / "runs" / "exp7", ranks=2)
    for rank in (0, 1):
        device = imported_run.device_of(rank=rank)
        folder = (
            tmp_path / "profiles" / f"{device.host}_{device.pid}_20261124101010123_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        )
        device_profiles.ascend_db(folder / f"ascend_pytorch_profiler_{rank}.db", device)
    device_profiles.kernel_details(tmp_path / "kernel_details.csv", imported_run.device_of())
    return tmp_path


def commands() -> list[str]:
    blocks = re.findall(r"^    (mstxkit import .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [block.partition("#")[0].strip() for block in blocks]


def test_the_page_shows_commands() -> None:
    assert len(commands()) >= 4


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_page_works(here: Path, command: str) -> None:
    words = command.split()[1:]
    done = mstxkit(*words, folder=here)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_person_sees_each_file_its_clock_and_its_stages(here: Path) -> None:
    done = mstxkit("import", "profiles", "--run", "runs/exp7", folder=here)

    assert done.returncode == 0, done.stderr
    assert "rank 1, 48 events, 12 stages; clocks by ranges (12 agree)" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("actor_update  "))
    assert row.split() == [
        "actor_update", "0", "6", "60.0", "ms", "30.0", "ms", "20.0", "ms", "10.0", "ms", "10.0", "ms", "10.0", "ms"
    ]  # fmt: skip


def test_two_files_of_one_rank_are_two_lines_with_the_steps_of_each(here: Path) -> None:
    name = "ascend_pytorch_profiler_0.db"
    (database,) = here.rglob(name)
    done = mstxkit("import", database, "kernel_details.csv", "--run", "runs/exp7", "--rank", 0, folder=here)

    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["actor_update"]]
    assert [row[:4] for row in rows] == [
        ["actor_update", name, "0", "6"], ["actor_update", "kernel_details.csv", "0", "6"]
    ]  # fmt: skip


def test_a_narrow_terminal_cuts_no_figure(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        shown.append(re.findall(r"[\d.]+ ms", mstxkit("import", "profiles", "--run", "runs/exp7", folder=here).stdout))

    assert shown[0] == shown[1] and len(shown[1]) >= 12


def test_spans_of_somebody_elses_tracing_have_a_column(here: Path) -> None:
    name, write = device_profiles.WRITERS["otlp"]
    write(here / name, imported_run.device_of())
    done = mstxkit("import", name, "--run", "runs/exp7", "--rank", 0, folder=here)

    assert done.returncode == 0, done.stderr
    header, row = (line for line in done.stdout.splitlines() if line.startswith(("stage  ", "actor_update  ")))
    assert header.split()[-1] == "spans"
    assert row.split()[-2:] == ["30.0", "ms"]


def test_json_says_the_same(here: Path) -> None:
    done = mstxkit("import", "profiles", "--run", "runs/exp7", "--json", folder=here)
    document = json.loads(done.stdout)

    assert document["schema"] == 1
    assert [file["ranks"] for file in document["files"]] == [[0], [1]]
    assert {row["computing_ns"] for file in document["files"] for row in file["rows"]} == {20 * MS, 30 * MS}


def test_what_was_imported_is_read_by_python(here: Path) -> None:
    from mstxkit import open_run

    mstxkit("import", "profiles", "--run", "runs/exp7", folder=here)

    assert open_run(here / "runs" / "exp7").device().height == 24


def test_the_runs_own_profiles_need_no_path_and_are_imported_once(here: Path) -> None:
    folder = escalated_run.session(here / "runs" / "exp7", rank=0, output="x_ascend_pt")
    output = folder / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    device_profiles.ascend_db(output / "ascend_pytorch_profiler_0.db", imported_run.device_of())
    first, again = (mstxkit("import", "--run", "runs/exp7", folder=here) for _ in range(2))

    assert (first.returncode, again.returncode) == (0, 0)
    assert "rank 0" in first.stdout
    assert again.stdout == "No profile of the run is left to import.\n"


def test_what_cannot_be_read_ends_with_1_and_the_rest_is_imported(here: Path) -> None:
    (here / "broken.db").write_bytes(b"SQLite format 3\0" + b"x" * 1000)
    done = mstxkit("import", "broken.db", "none.json", "profiles", "--run", "runs/exp7", folder=here)

    assert done.returncode == 1
    assert "not imported: broken.db cannot be read as a database" in done.stdout
    assert "none.json: No such file or directory" in done.stdout
    assert "rank 1, 48 events" in done.stdout


def test_a_pickle_ends_with_1_and_how_to_write_json(here: Path) -> None:
    (here / "nccl_trace_rank_0").write_bytes(b"\x80\x02}q\x00.")
    done = mstxkit("import", "nccl_trace_rank_0", "--run", "runs/exp7", folder=here)

    assert done.returncode == 1
    assert "_dump_fr_trace_json" in done.stdout


def test_a_name_cannot_drive_a_terminal(here: Path) -> None:
    evil = here / "\x1b[31mred.pt.trace.json"
    device_profiles.torch_trace(evil, imported_run.device_of())
    done = mstxkit("import", evil.name, "--run", "runs/exp7", folder=here)

    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\\x1b[31mred" in done.stdout
