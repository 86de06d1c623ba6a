"""MindStudio Insight draws of a database that was added to what it drew before, and the added ranges; of one that was
written it draws each range once.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Callable

import pytest
from builders import insight_views
from builders.device_profiles import MS, NONE, PID, ascend_db
from builders.imported_run import STAGES, STEP, device_of, lengths, run_of
from builders.insight_views import Rows, Views
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.importers import _importing, _places
from mstxkit.reading.run import open_run

FIRST = 4_000_000_001
SECOND = 1_000 * MS
NOTHING: Rows = Counter()
Change = Callable[[sqlite3.Connection], object]


def ids_of(table: str, columns: str, first: int) -> Change:
    """Twelve rows of a table, with connections from `first` on."""

    def change(base: sqlite3.Connection) -> None:
        base.execute(f"create table if not exists {table}({columns})")
        names = [column.split()[0] for column in columns.split(",")]
        values = ", ".join("?" if name == "connectionId" else "1" for name in names)
        for number in range(first, first + 12):
            base.execute(f"insert into {table}({', '.join(names)}) values ({values})", (number,))

    return change


def tasks_from(first: int) -> Change:
    return lambda base: base.execute("update TASK set connectionId = ? + rowid", (first,))


def insight_has_opened(base: sqlite3.Connection) -> None:
    for table in ("TASK", "MSTX_EVENTS"):
        base.execute(f"alter table {table} add depth integer")
        base.execute(f"update {table} set depth = 0")
    base.execute("create table status_info(id integer primary key, key text, value text)")
    base.execute("insert into status_info(key, value) values ('unit', 'FINISH')")


def has_parts_of_ranges(base: sqlite3.Connection) -> None:
    """The device's part of each of the profile's own ranges."""
    base.execute(
        "insert into TASK select startNs, endNs, 0, connectionId, 900 + rowid, 1, 0, 0, 5, 1, 1 from MSTX_EVENTS"
    )


SHAPES: dict[str, tuple[str, Change]] = {
    "no task has a connection": ("1.2.0", lambda base: None),
    "no table of ranges": ("1.0.0", lambda base: None),
    "no kernels but tasks": ("level none", lambda base: None),
    "no tasks of collectives": ("msmonitor", lambda base: None),
    "tasks have the first connections": ("1.2.0", tasks_from(FIRST)),
    "the next connection would be none": ("1.2.0", tasks_from(NONE - 60)),
    "connections beyond 32 bits": ("1.2.0", tasks_from(1 << 40)),
    "calls have them": ("1.2.0", ids_of("CANN_API", "startNs, endNs, type, globalTid, connectionId, name", FIRST)),
    "operators have them": ("1.1.0", ids_of("CONNECTION_IDS", "id, connectionId", FIRST)),
    "collectives have them": ("1.2.0", lambda base: base.execute(
        "update COMMUNICATION_OP set connectionId = ? + opId", (FIRST,))),
    "they are texts": ("1.2.0", ids_of("CANN_API", "startNs, endNs, type, globalTid, connectionId text, name", FIRST)),
    "a stranger's table has them": ("1.2.0", ids_of('"odd ""name"', "connectionId", FIRST)),
    "its own ranges have none": ("1.2.0", lambda base: base.execute(
        "update MSTX_EVENTS set connectionId = ?", (NONE,))),
    "its own ranges have parts": ("1.2.0", has_parts_of_ranges),
    "insight has opened it": ("1.2.0", insight_has_opened),
    "numbers of texts are not told": ("1.2.0", lambda base: base.execute("update TASK set taskType = ?", (NONE,))),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("run") / "run")


def profile(folder: Path, schema: str = "1.2.0", change: Change = lambda base: None, first: int = 0) -> Path:
    """Of the steps from `first` on."""
    raw = folder / "host_100_20231114221320000_ascend_pt"
    file = ascend_db(raw / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db", device_of(first=first), schema)
    with closing(sqlite3.connect(file)) as base, base:
        change(base)
    return file


def joined(run: Path, file: Path, folder: Path) -> Path:
    folder.mkdir()
    load_exporter("ascend-db").write(open_run(run), folder, into=str(file))
    (made,) = folder.rglob(file.name)
    return made


def ranges_of_the_run(first: int = 0) -> Rows:
    """As Insight shows them: thread, domain, name, begin, end."""
    begins = [WALL_OFFSET_NS + begin * MS for begin in lengths(6)[first:]]
    thread = PID << 32 | 1 << 30
    names = {"reference": "reference", "actor_update": "update_actor"}
    return Counter(
        (thread, "default", names[name], begin + start * MS, begin + end * MS)
        for begin in begins
        for name, start, end in STAGES
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_profile_shows_what_it_showed_and_the_added_ranges(run: Path, tmp_path: Path, shape: str) -> None:
    file = profile(tmp_path, *SHAPES[shape])
    before = Views(file)

    after = Views(joined(run, file, tmp_path / "out"))

    assert {view: rows for view, rows in insight_views.added(before.device, after.device).items() if rows} == {}
    more = insight_views.added(before.ranges, after.ranges)
    assert more["lanes"] == more["events"] == ranges_of_the_run()
    assert after.rl_tab({"update_actor"}).total() == before.rl_tab({"update_actor"}).total() + 6


def test_ranges_of_two_runs_in_one_profile_are_no_parts_of_each_other(run: Path, tmp_path: Path) -> None:
    file = profile(tmp_path)

    once = joined(run, file, tmp_path / "once")
    twice = joined(run, once, tmp_path / "twice")

    assert Views(twice).device == Views(once).device == Views(file).device
    with closing(sqlite3.connect(twice)) as base:
        ids = [id for (id,) in base.execute("select connectionId from MSTX_EVENTS")]
    assert len(ids) == len({*ids}) == 36


def test_the_stage_for_which_the_profiler_was_started_is_drawn(run: Path, tmp_path: Path) -> None:
    """It began before the profiler did; Insight draws nothing from before the first session."""
    file = profile(tmp_path, first=3)
    late = WALL_OFFSET_NS + lengths(6)[3] * MS + 32 * MS
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("update SESSION_TIME_INFO set startTimeNs = ?", (late,))

    made = joined(run, file, tmp_path / "out")

    begun = [row for row in Views(made).ranges["lanes"] if row[2] == "update_actor" and row[3] < late]
    assert [row[3:] for row in begun] == [(late - 2 * MS, late + 58 * MS)]
    with closing(sqlite3.connect(made)) as base:
        sessions = base.execute("select startTimeNs, endTimeNs from SESSION_TIME_INFO").fetchall()
    assert sessions == [(late, sessions[0][1]), (late - 2 * MS, sessions[0][1])]


def test_what_lasts_for_days_does_not_draw_the_timeline_out(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    bank = BankFiles().range("stage", 99 * SECOND, 101 * SECOND).range("fit", 0, 200 * SECOND)
    ProcessFiles(run, PID, rank=0).seal(bank)
    file = profile(tmp_path)
    session = WALL_OFFSET_NS + 100 * SECOND, WALL_OFFSET_NS + 102 * SECOND
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("update SESSION_TIME_INFO set startTimeNs = ?, endTimeNs = ?", session)

    made = joined(run, file, tmp_path / "out")

    views = Views(made)
    assert {row[2] for row in views.ranges["lanes"]} == {"stage"}
    assert {row[2] for row in views.ranges["events"]} >= {"stage", "fit"}


def test_a_profile_with_ranges_added_tells_the_same_of_its_device(run: Path, tmp_path: Path) -> None:
    """That of the profiler is the first session: what came before it is not told to have been free."""
    file = profile(tmp_path, first=3)
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("update SESSION_TIME_INFO set startTimeNs = startTimeNs + ?", (32 * MS,))
    made = joined(run, file, tmp_path / "out")

    (alone,), (together,) = (
        _importing.import_all(open_run(run).files, _places.find_files([source], []), lambda _: None)
        for source in (file, made)
    )

    assert [{**row, "file": ""} for row in together.rows] == [{**row, "file": ""} for row in alone.rows]


@pytest.mark.parametrize("layout", ["msmonitor", "torch-npu"])
def test_of_a_database_that_is_written_each_range_and_mark_is_drawn_once(tmp_path: Path, layout: str) -> None:
    run = new_run(tmp_path / "run")
    for pid, role in ((1, "actor"), (2, "rollout")):
        bank = BankFiles().track(0, 7).track(1, 8, is_task=True)
        for step in range(3):
            bank.range("g", step * STEP, step * STEP + 9, stage="actor_generate", own=True, step=step)
            bank.range("更新 '\"\\\n", step * STEP, step * STEP + 9, domain="d", step=step, track=1)
            bank.mark("<m>", step * STEP + 3, step=step)
        ProcessFiles(run, pid, rank=0, role=role).seal(bank, inside=[{"name": "open", "domain": "d", "start": 5}])
    ProcessFiles(run, 3, rank=None).seal(BankFiles())
    folder = tmp_path / "out"
    folder.mkdir()

    load_exporter("ascend-db").write(open_run(run), folder, layout=layout)

    drawn = {file: Views(file) for file in folder.rglob("*.db")}
    each = Counter({"generate_sequences": 3, "更新 '\"\\\n": 3, "<m>": 3, "open: open": 1})
    for views in drawn.values():
        assert {view: rows for view, rows in views.device.items() if rows} == {}
        assert views.ranges["lanes"] == views.ranges["events"]
    names = sorted((Counter(row[2] for row in views.ranges["lanes"].elements()) for views in drawn.values()), key=len)
    assert names == [Counter(), each, each]
    assert sum(views.rl_tab({"generate_sequences"}).total() for views in drawn.values()) == 6
