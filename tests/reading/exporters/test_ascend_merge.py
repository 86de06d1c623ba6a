"""`--into`: profiles that are locked, that Insight has opened, or that are of another age."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import profiler_database
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.errors import MstxkitError
from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.run import open_run

UNUSED = 4294967295


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Rank 1, two steps of 500 ns, and a range in which it was killed."""
    run, bank = new_run(tmp_path / "run"), BankFiles()
    for step in range(2):
        bank.range("update", step * 1000, step * 1000 + 500, stage="update", own=True, step=step)
    inside = [{"name": "hung", "domain": "d", "start": 2500}]
    ProcessFiles(run, 100, rank=1).seal_indexed(bank, inside=inside, ended="killed")
    return run


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A database of torch_npu's without kernels, of the run's time."""
    file = profiler_database.write_database(tmp_path / "real" / "host_7_20260101_ascend_pt", 1, 1, [("own", 500)])
    change(file, f"update SESSION_TIME_INFO set startTimeNs = {WALL_OFFSET_NS}, endTimeNs = {WALL_OFFSET_NS + 9_000}")
    return file


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as base:
        for statement in statements:
            base.execute(statement)


def ask(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as base:
        return base.execute(query).fetchall()


def joined(run: Path, profile: Path) -> Path:
    folder = run.parent / "out"
    folder.mkdir()
    load_exporter("ascend-db").write(open_run(run), folder, into=str(profile))
    (file,) = folder.rglob("ascend_pytorch_profiler_1.db")
    return file


def names_in(file: Path) -> list[str]:
    query = "select value from MSTX_EVENTS join STRING_IDS on id = message order by startNs"
    return [name for (name,) in ask(file, query)]


@pytest.fixture
def somebody_writes(profile: Path) -> Iterator[None]:
    with closing(sqlite3.connect(profile, isolation_level=None)) as writer:
        writer.execute("pragma cache_size = 1")
        writer.execute("begin exclusive")
        writer.execute("update MSTX_EVENTS set endNs = endNs + 1")
        Path(f"{profile}-journal").write_bytes(b"somebody is at work")
        yield
        writer.execute("rollback")


def test_a_locked_profile_is_an_error_and_not_a_wait_for_ever(run: Path, profile: Path, somebody_writes: None) -> None:
    with pytest.raises(MstxkitError, match=r"ascend_pytorch_profiler_1\.db cannot be read as a database.*locked"):
        joined(run, profile)


def test_a_profile_with_a_log_format_is_read_where_nothing_can_be_written(
    run: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would make its log beside the file; what needs no log is read without one."""
    change(profile, "pragma journal_mode = wal")
    before = sorted(os.listdir(profile.parent))
    connect, asked = sqlite3.connect, []
    monkeypatch.setattr(sqlite3, "connect", lambda path, **how: asked.append(str(path)) or connect(path, **how))

    assert "update" in names_in(joined(run, profile))
    assert all("immutable=1" in path for path in asked if str(profile) in path)
    assert sorted(os.listdir(profile.parent)) == before


def test_a_profile_that_insight_opened_gets_ranges_and_is_read_anew_by_it(run: Path, profile: Path) -> None:
    """It adds a column, and notes what it has computed: without that note it computes it for all rows."""
    change(
        profile,
        "alter table MSTX_EVENTS add depth integer",
        "update MSTX_EVENTS set depth = 0",
        "create table status_info(id integer primary key autoincrement, key text, value text)",
        "insert into status_info(key, value) values ('unit', 'FINISH')",
    )

    file = joined(run, profile)

    assert names_in(file).count("update") == 2
    assert ask(file, "select distinct depth from MSTX_EVENTS") == [(None,)]
    assert ask(file, "select * from status_info") == []


@pytest.mark.parametrize("column", ["domainId", "rangeId", "category", "endGlobalTid"])
def test_a_profile_of_an_older_profiler_gets_what_its_tables_can_hold(run: Path, profile: Path, column: str) -> None:
    change(profile, f"alter table MSTX_EVENTS rename column {column} to other")

    assert "update" in names_in(joined(run, profile))


def test_a_profile_whose_ranges_have_no_times_is_refused(run: Path, profile: Path) -> None:
    change(profile, "alter table MSTX_EVENTS rename column startNs to begin")

    with pytest.raises(MstxkitError, match=r"not a profile that can be added to.*startNs"):
        joined(run, profile)


def test_connections_of_added_ranges_are_above_those_of_the_profile(run: Path, profile: Path) -> None:
    """One that is no connection, 4294967295, is not the highest."""
    change(profile, f"insert into MSTX_EVENTS select startNs, endNs, 2, 0, 0, 1, 1, 1, 0, {UNUSED} from MSTX_EVENTS")

    connections = ask(joined(run, profile), "select connectionId from MSTX_EVENTS order by 1")

    assert connections == [(4000000001,), (4000000002,), (4000000003,), (4000000004,), (UNUSED,)]


def test_what_is_open_is_a_mark_in_a_profile_too(run: Path, profile: Path) -> None:
    assert names_in(joined(run, profile)) == ["update", "update", "open: hung", "own"]


def test_what_began_to_be_open_at_another_time_is_not_in_the_profile(run: Path, profile: Path) -> None:
    change(profile, f"update SESSION_TIME_INFO set endTimeNs = {WALL_OFFSET_NS + 2_000}")

    assert names_in(joined(run, profile)) == ["update", "update", "own"]


@pytest.mark.parametrize("table", ["STRING_IDS(id)", "MSTX_EVENTS(connectionId)"])
def test_a_profile_whose_numbers_leave_no_room_is_refused(run: Path, profile: Path, table: str) -> None:
    change(profile, f"insert into {table} values ({2**63 - 1})")

    with pytest.raises(MstxkitError, match="not a profile that can be added to"):
        joined(run, profile)
