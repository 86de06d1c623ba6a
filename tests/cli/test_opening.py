"""What `analyse`, `escalate --wait` and the demo say at their end: how to open a request's result, with this viewer."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import msprof_analyze
from builders.profiler_database import OUTPUT, write_database
from builders.run_files import RUN_ID

pytest.importorskip("typer")

from mstxkit.cli import _opening
from mstxkit.store import run_file, session_file

REQUEST = "ab" * 8


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_file.open_run_folder(tmp_path / "it's a run")[0]


def session(run: Path, name: str, *, rank: int = 0, step: int = 5, only: bool = True, **fields: Any) -> Path:
    """What a session of a request leaves; its data."""
    folder = run / "profiles" / "actor_update" / f"step{step}" / f"rank{rank}" / f"{1000 + step}-{70 + rank}"
    folder.mkdir(parents=True, mode=0o700)
    raw = folder / name
    raw.mkdir() if "_ascend_" in name else raw.write_text("{}")
    document: dict[str, Any] = {
        "format": 1, "run": RUN_ID, "rank": rank, "stage": "actor_update", "step": step, "request": REQUEST,
        "state": "recorded", "output": raw.name, "backend": "torch_npu", "is_only_window": only,
        **fields,
    }  # fmt: skip
    document["output"] = session_file.into_request(run, folder, document, raw)
    (folder / "session.json").write_text(json.dumps(document))
    return folder / str(document["output"])


def raw_name(rank: int, step: int) -> str:
    return f"node_{70 + rank}_2026112200000000{step}_ascend_pt"


def parsed(run: Path, rank: int, step: int, only: bool = True) -> Path:
    raw = session(run, raw_name(rank, step), rank=rank, step=step, only=only)
    write_database(raw, rank, step, [("update_actor", 1_000_000 * (1 + rank)), ("reward", 500_000)])
    (raw / f"profiler_info_{rank}.json").write_text("{}")
    return raw


def told(run: Path) -> list[str]:
    return list(_opening.describe_opening(run, RUN_ID, [REQUEST]))


def commands(run: Path) -> list[str]:
    return re.findall(r"msprof-analyze .*", "\n".join(told(run)))


def test_one_window_is_opened_as_the_folder_of_the_request(run: Path) -> None:
    for rank in range(2):
        parsed(run, rank, 5)
    place = run / "profiles" / REQUEST

    assert f"MindStudio Insight, Import Data, {shlex.quote(str(place))}" in told(run)[0]
    assert commands(run) == [f"msprof-analyze -m mstx_sum --export_type text -d {shlex.quote(str(place))}"]
    assert sorted(raw.name for raw in place.iterdir()) == [raw_name(0, 5), raw_name(1, 5)]


def test_each_of_several_windows_has_a_command_and_all_open_at_once(run: Path) -> None:
    for step in (5, 6):
        parsed(run, 0, step, only=False)

    assert told(run)[0].endswith(shlex.quote(str(run / "profiles" / REQUEST)))
    assert [shlex.split(command)[-1] for command in commands(run)] == [
        str(run / "profiles" / REQUEST / f"actor_update.step{step}") for step in (5, 6)
    ]


@pytest.mark.skipif(not msprof_analyze.IS_HERE, reason="needs msprof-analyze: make setup")
def test_the_commands_work_as_they_are_printed_and_no_window_is_lost(run: Path, tmp_path: Path) -> None:
    for step in (5, 6):
        for rank in range(2):
            parsed(run, rank, step, only=False)
    environ = msprof_analyze.install(tmp_path / "bin")

    for command, step in zip(commands(run), (5, 6)):
        done = subprocess.run(command, shell=True, env=environ, capture_output=True, text=True, timeout=300)
        place = run / "profiles" / REQUEST / f"actor_update.step{step}"
        file = place / "cluster_analysis_output" / "MstxSum" / "all_cann_stats.csv"
        assert file.exists(), done.stdout[-1500:] + done.stderr[-3000:]
        with open(file, encoding="utf-8") as table:
            rows = {row["Name"]: row for row in csv.DictReader(table)}

        assert done.returncode == 0, done.stderr
        assert {row["StepId"] for row in rows.values()} == {str(step)}
        assert (float(rows["update_actor"]["Count"]), rows["update_actor"]["MaxRank"]) == (2, "1")


def test_what_is_not_parsed_comes_with_the_command_that_parses_it(run: Path) -> None:
    session(run, raw_name(0, 5))

    assert told(run) == [
        f"Parse it, on any host with CANN: mstxkit profiles {shlex.quote(str(run))} --analyse --request {REQUEST}"
    ]


def test_a_trace_of_torch_is_for_perfetto(run: Path) -> None:
    trace = session(run, "node_70_5.pt.trace.json", backend="torch").resolve()

    assert told(run) == [f"Timeline: open {shlex.quote(str(trace))} in https://ui.perfetto.dev"]


@pytest.mark.parametrize(
    ("tables", "mode"),
    [
        ("create table TASK (a); insert into TASK values (1);", None),
        ("create table TASK (a);", "mstx_sum"),
        ("create table TASK (a); insert into TASK values (1);"
         "create table COMPUTE_TASK_INFO (a); insert into COMPUTE_TASK_INFO values (1);", "compute_op_sum"),
    ],
)  # fmt: skip
def test_the_recipe_is_one_that_the_data_allow(run: Path, tables: str, mode: str | None) -> None:
    import sqlite3

    raw = parsed(run, 0, 5)
    with sqlite3.connect(raw / OUTPUT / "ascend_pytorch_profiler_0.db") as base:
        base.executescript(tables)
    base.close()

    assert [shlex.split(command)[2] for command in commands(run)] == ([mode] if mode else [])


def test_where_the_parser_analysed_too_all_is_the_recipe(run: Path) -> None:
    raw = parsed(run, 0, 5)
    (raw / OUTPUT / "analysis.db").write_bytes(b"")

    assert [shlex.split(command)[2] for command in commands(run)] == ["all"]


@pytest.mark.parametrize("is_pipe", [False, True])
def test_a_database_that_is_none_costs_the_command_only(run: Path, is_pipe: bool) -> None:
    """Whoever opens a pipe waits for who writes into it."""
    file = parsed(run, 0, 5) / OUTPUT / "ascend_pytorch_profiler_0.db"
    file.unlink()
    os.mkfifo(file) if is_pipe else file.write_bytes(b"no database" * 100)

    assert commands(run) == []
    assert "MindStudio Insight" in told(run)[0]


def test_many_windows_do_not_fill_the_terminal(run: Path) -> None:
    for step in range(9):
        session(run, f"node_70_{step}.pt.trace.json", step=step, only=False)

    assert len(told(run)) == 5
    assert told(run)[-1] == "… and 5 more like these"


def test_data_on_a_hosts_own_disk_say_so(run: Path) -> None:
    session(run, "node_70_5.pt.trace.json", stored={"host": "node7", "folder": "/x"})

    assert f"On the disk of node7: mstxkit profiles {shlex.quote(str(run))} --fetch, there" in told(run)
