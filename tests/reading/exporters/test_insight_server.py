"""MindStudio Insight's server itself imports exports and profiles of requests, and draws of them what it should."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import insight_server, real_files
from builders.run_files import BankFiles, ProcessFiles, anchor, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")
if not insight_server.PATH:
    pytest.skip("no server of MindStudio Insight is here: INSIGHT_SERVER", allow_module_level=True)

from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.run import open_run

STAGES = {"actor_generate": "generate_sequences", "reward": "reward", "actor_update": "update_actor"}
STEP, STEPS, RANKS = 10_000, 3, 3
LEVELS = sorted(real_files.TOP.glob("msinsight/test/data/pytorch/db/*"))


def drawn(folder: Path, logs: Path, pieces: int = 1) -> list[Counter[Any]]:
    """Rows of each rank."""
    logs.mkdir()
    with insight_server.started(logs) as server:
        return [server.drawn(rank, pieces) for rank in server.take_in(folder)]


def run_of_stages(folder: Path) -> Path:
    run = new_run(folder)
    for rank in range(RANKS):
        bank = BankFiles().track(0, 100 + rank)
        for step in range(STEPS):
            for place, stage in enumerate(STAGES):
                at = step * STEP + place * 1_000
                bank.range(stage, at, at + 900 + rank, stage=stage, own=True, step=step)
        ProcessFiles(run, 100 + rank, rank=rank, role="actor").seal(bank)
    return run


FORMS = [("ascend-db", {}), ("ascend-db", {"layout": "torch-npu"}), ("trace-view", {})]


@pytest.mark.parametrize(("to", "options"), FORMS)
def test_it_draws_each_range_of_an_export_once(tmp_path: Path, to: str, options: dict[str, str]) -> None:
    folder, logs = tmp_path / "out", tmp_path / "logs"
    folder.mkdir()
    logs.mkdir()
    load_exporter(to).write(open_run(run_of_stages(tmp_path / "run")), folder, **options)

    with insight_server.started(logs) as server:
        ranks = server.take_in(folder)
        rows = [Counter((name, length) for _, name, _, length in server.drawn(rank, 1).elements()) for rank in ranks]
        tab = server.ask("rl", "RL/pipeline", {})

    each = [Counter({(name, 900 + rank): STEPS for name in STAGES.values()}) for rank in range(RANKS)]
    assert sorted(sorted(row.items()) for row in rows) == sorted(sorted(row.items()) for row in each)
    tasks = Counter((rank["rankId"], task["name"]) for rank in tab["taskData"] for task in rank["lists"])
    assert tasks == Counter(
        {(str(rank), name): STEPS for rank in range(RANKS) for name in ("generate_sequences", "update_actor")}
    )


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: str(level.name))
def test_of_a_real_profile_with_ranges_added_it_draws_what_it_drew_of_the_request(level: Path, tmp_path: Path) -> None:
    request = tmp_path / "run" / "profiles" / "a_request"
    shutil.copytree(level, request)
    joined = tmp_path / "joined"
    joined.mkdir()
    for database in level.glob("*_ascend_pt/*/ascend_*.db"):
        told, rank = real_files.told(database), int(database.stem.rpartition("_")[2])
        assert told is not None
        run, first = new_run(tmp_path / f"rank{rank}"), told.begin - 1_000
        bank = BankFiles().range("step", 1_000, told.end - first, stage="step", own=True, step=1)
        anchors = tuple(anchor(ticks, offset_ns=first) for ticks in (0, told.end - first))
        ProcessFiles(run, 100, rank=rank, anchors=anchors, start_ns=told.begin).seal(bank)
        load_exporter("ascend-db").write(open_run(run), joined, into=str(database))

    before = sum(drawn(request, tmp_path / "logs_before", 20), Counter())
    after = sum(drawn(joined, tmp_path / "logs_after", 20), Counter())

    assert sum(before.values()) > 4_000
    assert before - after == Counter()
    assert Counter(row[:2] for row in (after - before).elements()) == {("MSTX_EVENTS", "step"): 2}
