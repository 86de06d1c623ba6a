"""`mstxkit collect --compact`: what it says, and that it can be said again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.judged_runs import NOBODY, recorded, stage_times
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("polars")

from typer.testing import CliRunner

from mstxkit import open_run
from mstxkit.cli import build_application


def compact(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mstxkit", "collect", "--compact", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_it_says_what_became_of_what_and_then_that_nothing_is_left(tmp_path: Path) -> None:
    recorded(tmp_path / "run", stage_times(NOBODY, steps=10))

    first, again = compact(tmp_path, "run", "--remove"), compact(tmp_path, "run", "--remove")

    assert first.returncode == again.returncode == 0
    assert "2 sealed files" in first.stdout and "removed: 2 sealed files" in first.stdout
    assert again.stdout.startswith("nothing to compact")


def test_as_json_it_is_one_object(tmp_path: Path) -> None:
    recorded(tmp_path / "run", stage_times(NOBODY, steps=10))

    document = json.loads(compact(tmp_path, "run", "--json").stdout)

    assert document["schema"] == 1 and document["sealed"] == []
    assert document["compacted"]["ranges"] == 40 and document["compacted"]["removed"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to somebody else")
def test_another_users_run_is_left_as_it_is(tmp_path: Path) -> None:
    """That user could not read it any more: what is compacted is for who compacts."""
    recorded(tmp_path / "run", stage_times(NOBODY, steps=10))
    before = sorted(os.listdir(tmp_path / "run"))
    os.chown(tmp_path / "run", 12345, -1)
    done = compact(tmp_path, "run", "--remove")

    assert done.returncode == 1 and "belongs to user 12345, not to 0; be that user" in done.stderr
    assert sorted(os.listdir(tmp_path / "run")) == before


def test_files_of_other_hosts_may_be_left(tmp_path: Path) -> None:
    recorded(tmp_path / "run", stage_times(NOBODY, steps=10))

    assert "nothing to compact" in compact(tmp_path, "run", "--host", "elsewhere").stdout


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--host", "typo"], 0, "no sealed file is of host typo: they are of vm"),
        (["--ray", "--host", "vm"], 2, "--ray"),
    ],
)
def test_a_host_that_is_not_there_is_told_of(tmp_path: Path, words: list[str], code: int, why: str) -> None:
    run = new_run(tmp_path / "run")
    ProcessFiles(run, 100, rank=0, host="vm").seal(BankFiles().range("a", 0, 5))
    done = CliRunner().invoke(build_application(), ["collect", str(run), "--compact", *words])

    assert (done.exit_code, why in done.output) == (code, True), done.output


def test_a_run_without_its_id_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    """What was compacted under no id would be nobody's as soon as the run has its id again."""
    recorded(tmp_path / "run", stage_times(NOBODY, steps=10))
    said = (tmp_path / "run" / "run.json").read_text()
    (tmp_path / "run" / "run.json").unlink()

    done = compact(tmp_path, "run", "--remove")
    (tmp_path / "run" / "run.json").write_text(said)

    assert done.returncode == 2 and "run.json does not say its id" in done.stderr
    assert len(open_run(tmp_path / "run").ranges()) == 40 and not (tmp_path / "run" / "compact").exists()


def test_what_cannot_be_read_is_left_and_told_of(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    for rank in range(2):
        file = ProcessFiles(run, 100 + rank, rank=rank).seal(BankFiles().range("a", 0, 5))
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    before = open_run(run)
    rows = before.ranges().height
    done = CliRunner().invoke(build_application(), ["collect", str(run), "--compact", "--remove"])
    after = open_run(run)

    assert done.exit_code == 1 and "left as they are: 1 sealed files" in done.output
    assert [path.name for path in (run / "sealed").iterdir()] == [file.name]
    assert (after.ranges().height, after.damage) == (rows, before.damage)
