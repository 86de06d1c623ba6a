"""`mstxkit compact`: what it says, and that it can be said again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders.judged_runs import NOBODY, recorded, stage_times

pytest.importorskip("polars")


def compact(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mstxkit", "compact", *arguments]
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

    assert document["schema"] == 1 and document["ranges"] == 40 and document["removed"] == 0


def test_files_of_other_hosts_may_be_left(tmp_path: Path) -> None:
    recorded(tmp_path / "run", stage_times(NOBODY, steps=10))

    assert "nothing to compact" in compact(tmp_path, "run", "--host", "elsewhere").stdout


def test_a_folder_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    done = compact(tmp_path, "nowhere")

    assert done.returncode == 2 and "no such run folder" in done.stderr
