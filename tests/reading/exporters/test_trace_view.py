"""`trace_view.json` has the form that MindStudio Insight reads, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.run import open_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = new_run(tmp_path / "run")
    bank = BankFiles().track(0, 77, False, "MainThread").mark("m", 5)
    ProcessFiles(run, 42, rank=3).seal(bank.range("<b>\x1b更新", 1_001, 3_003, stage="s", domain="d"))
    ProcessFiles(run, 43, rank=3, under="pool", part="pool 1").seal(BankFiles().range("beside", 0, 5))
    ProcessFiles(run, 44, rank=None).seal(BankFiles().range("driver", 0, 5))
    (tmp_path / "out").mkdir()
    load_exporter("trace-view").write(open_run(run), tmp_path / "out")
    return tmp_path / "out"


def events(folder: Path, pid: int) -> list[dict[str, Any]]:
    (file,) = folder.glob(f"*_{pid}_*_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json")
    loaded: list[dict[str, Any]] = json.loads(file.read_text())
    assert isinstance(loaded, list)
    return loaded


def test_a_range_has_its_time_as_a_text_and_its_duration_as_a_number(folder: Path) -> None:
    (event,) = (event for event in events(folder, 42) if event["ph"] == "X" and event["pid"] == 42)

    assert event == {
        "name": "<b>\x1b更新", "ph": "X", "dur": 2.002, "pid": 42, "tid": 77, "ts": "1700000000000001.001",
        "args": {"event_type": "start/end", "domain": "d"},
    }  # fmt: skip


def test_only_kinds_of_events_that_insight_knows_are_written(folder: Path) -> None:
    assert {event["ph"] for event in events(folder, 42)} == {"M", "X", "I"}


def test_processes_are_labelled_as_hosts_do(folder: Path) -> None:
    labels = {event["args"]["labels"] for event in events(folder, 42) if event["name"] == "process_labels"}

    assert labels == {"CPU"}


def test_a_rank_is_a_folder_with_all_its_processes(folder: Path) -> None:
    assert {event["pid"] for event in events(folder, 42)} == {42, 43}
    assert {event["name"] for event in events(folder, 44) if event["ph"] == "X"} == {"driver"}
    assert len(list(folder.glob("*_ascend_pt/profiler_info_3.json"))) == 1
