"""Files that are cut, locked, foreign or hostile: an error with file and place, or what is whole of them."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import device_profiles, imported_run, soak
from builders.device_profiles import MS, WRITERS
from builders.mounts import Mount, mount  # noqa: F401

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading.importers import _importing, _places
from mstxkit.reading.importers._importing import Imported
from mstxkit.reading.run import open_run
from mstxkit.store import documents

STEPS = 6


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imported_run.run_of(tmp_path_factory.mktemp("import") / "run", STEPS)


def imported(run: Path, *paths: Path, rank: int | None = None) -> list[Imported]:
    return _importing.import_all(open_run(run).files, _places.find_files(paths, []), lambda _: None, rank)


def database(folder: Path, **more: Any) -> Path:
    return device_profiles.ascend_db(folder / "ascend_pytorch_profiler_0.db", imported_run.device_of(STEPS), **more)


@pytest.mark.parametrize("format", sorted(WRITERS))
@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_file_that_is_cut_says_so_and_keeps_what_is_whole(
    run: Path, tmp_path: Path, format: str, part: float
) -> None:
    name, write = WRITERS[format]
    file = write(tmp_path / name, imported_run.device_of(STEPS))
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * part)])
    damage: list[Any] = []
    made = _importing.import_all(open_run(run).files, _places.find_files([file], damage), lambda _: None)
    told = [*damage, *(loss for each in made for loss in each.damage)]

    assert told or format == "kernel_details"  # a line of a table that is cut is a line without a time
    assert all(loss.path == str(file) and loss.reason for loss in told)


def test_packed_spans_that_are_cut_say_so_and_leave_the_other_files(run: Path, tmp_path: Path) -> None:
    spans = device_profiles.otlp(tmp_path / "spans.json", imported_run.device_of(STEPS)).read_bytes()
    noise = b"".join(b'{"noise":"%b"}\n' % os.urandom(1000).hex().encode() for _ in range(200))
    packed = gzip.compress(spans.rstrip() + b"\n" + noise)
    (tmp_path / "spans.json.gz").write_bytes(packed[: len(packed) * 9 // 10])
    cut, other = imported(run, tmp_path / "spans.json.gz", database(tmp_path))

    assert [loss.reason[:25] for loss in cut.damage] == ["cannot be unpacked furthe"]
    assert len(cut.rows) == len(other.rows) > 0


@pytest.mark.parametrize("format", ["trace_view", "torch_trace", "flight_recorder"])
def test_most_of_a_cut_trace_is_joined(run: Path, tmp_path: Path, format: str) -> None:
    name, write = WRITERS[format]
    file = write(tmp_path / name, imported_run.device_of(STEPS))
    if format == "trace_view":  # as torch_npu writes it: names of processes come first
        events = json.loads(file.read_text())
        file.write_text(json.dumps(events[-5:] + events[:-5]))
    file.write_bytes(file.read_bytes()[:-100])
    (made,) = imported(run, file)

    assert len(made.rows) > STEPS
    assert "ends in the middle" in made.damage[0].reason
    assert made.damage[0].offset > 0


@pytest.mark.parametrize("at", [0.1, 0.4, 0.7])
def test_a_corrupted_database_gives_a_line_and_never_a_traceback(run: Path, tmp_path: Path, at: float) -> None:
    file = database(tmp_path)
    content = bytearray(file.read_bytes())
    place = int(len(content) * at)
    content[place : place + 6000] = os.urandom(6000)
    file.write_bytes(content)

    for made in imported(run, file):
        assert made.damage or made.problem or made.rows


@pytest.mark.parametrize("format", sorted(WRITERS))
def test_any_bytes_changed_anywhere_raise_nothing(run: Path, tmp_path: Path, format: str) -> None:
    chance, opened = random.Random(f"{soak.seed()} {format}"), open_run(run)
    name, write = WRITERS[format]
    file = write(tmp_path / name, imported_run.device_of(STEPS))
    whole = file.read_bytes()

    for _ in range(soak.rounds(400, 12)):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(content))
            content[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        file.write_bytes(content)
        for made in _importing.import_all(opened.files, _places.find_files([file], []), lambda _: None, 0):
            assert made.rows or made.problem


def test_names_in_a_schema_that_are_no_text_are_damage(run: Path, tmp_path: Path) -> None:
    """sqlite3 raises UnicodeDecodeError while it makes the message of its own error."""
    file = database(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content.replace(b"CREATE TABLE TASK(startNs", b'CREATE TABLE TASK(\x87\xff"(('))
    (made,) = imported(run, file)

    assert made.damage[0].path == str(file)


def test_a_table_that_cannot_be_read_leaves_the_others(run: Path, tmp_path: Path) -> None:
    """The pages of COMMUNICATION_OP are overwritten: tasks are read all the same."""
    file = database(tmp_path)
    base = sqlite3.connect(file)
    (page,) = base.execute("select rootpage from sqlite_master where name = 'COMMUNICATION_OP'").fetchone()
    (size,) = base.execute("pragma page_size").fetchone()
    base.close()
    content = bytearray(file.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    file.write_bytes(content)
    (made,) = imported(run, file)

    assert made.damage[0].path == str(file)
    assert sum(row["computing_ns"] for row in made.rows) == STEPS * 50 * MS


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"SQLite format 3\0" + b"\0" * 5000, b"no database"])
def test_what_only_has_the_name_of_a_database_is_an_error_with_its_path(
    run: Path, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "ascend_pytorch_profiler_0.db"
    file.write_bytes(content)
    (made,) = imported(run, file)

    assert made.rows == []
    assert made.damage[0].path == str(file)


def test_a_foreign_database_says_what_it_has_instead(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "library.db"
    with sqlite3.connect(file) as base:
        base.execute("create table books(title text)")
    base.close()
    (made,) = imported(run, file)

    assert "not a profiler's" in made.problem
    assert "books" in made.problem


def test_empty_tables_are_a_recording_of_nothing(run: Path, tmp_path: Path) -> None:
    file = database(tmp_path)
    with sqlite3.connect(file) as base:
        for table in ("TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "MSTX_EVENTS", "STRING_IDS"):
            base.execute(f"delete from {table}")
    base.close()
    (made,) = imported(run, file)

    assert made.problem == "holds no time of a device"


def test_views_and_triggers_are_never_run(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "ascend_pytorch_profiler_0.db"
    with sqlite3.connect(file) as base:
        base.execute("create view TASK as select randomblob(1000000000) as startNs, 1 as endNs, 1 as globalTaskId")
    base.close()
    (made,) = imported(run, file)

    assert "not a profiler's" in made.problem


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_database_that_somebody_writes_is_read_as_of_its_last_commit(run: Path, tmp_path: Path, journal: str) -> None:
    file = database(tmp_path, journal=journal)
    writer = sqlite3.connect(file, isolation_level=None)
    first = imported_run.device_of(STEPS).kernels[0][0]
    writer.execute("insert into TASK select startNs - 5000000, startNs, 0, 0, 999, 0, 0, 0, 0, 0, 0 from TASK limit 1")
    writer.execute("insert into COMPUTE_TASK_INFO values (0, 999, 8, 0, 0)")
    (made,) = imported(run, file)
    writer.close()

    assert made.damage == []
    assert first > 0
    assert max(row["computing_ns"] for row in made.rows if row["stage"] == "reference") == 25 * MS


def test_a_locked_database_is_an_error_and_not_a_wait_for_ever(run: Path, tmp_path: Path) -> None:
    file = database(tmp_path)
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("pragma cache_size = 1")
    writer.execute("begin exclusive")
    writer.execute("update TASK set endNs = endNs + 1")  # the journal beside it says that somebody is at work
    (made,) = imported(run, file)
    writer.execute("rollback")
    writer.close()

    assert "locked" in made.problem
    assert made.damage[0].path == str(file)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_neither_the_file_nor_its_folder_is_changed(run: Path, tmp_path: Path, journal: str) -> None:
    file = database(tmp_path, journal=journal)
    before = (file.read_bytes(), file.stat().st_mtime_ns, sorted(os.listdir(tmp_path)))
    (made,) = imported(run, file)

    assert made.problem == ""
    assert (file.read_bytes(), file.stat().st_mtime_ns, sorted(os.listdir(tmp_path))) == before


HOSTILE = (
    "<script>alert(1)</script>", "'; drop table TASK; --", "\x1b[31mred\x1b[0m", "\u202eright to left", "\U0001f680",
    "生成", "a" * 10_000_000, "\x00\x01",
)  # fmt: skip


@pytest.mark.parametrize("format", sorted(WRITERS))
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_hostile_names_are_names(run: Path, tmp_path: Path, name: str, format: str) -> None:
    """Of one group of ranks, and of a range."""
    device = imported_run.device_of(STEPS)
    device.ranges.append((name, *device.ranges[0][1:]))
    _, start, end = device.collectives[0]
    device.collectives[0] = name, start, end
    file, write = WRITERS[format]
    (made,) = imported(run, write(tmp_path / file, device))
    shown = json.dumps([*made.notes, made.problem, *(loss.reason for loss in made.damage)])

    assert made.problem == "" and len({row["step"] for row in made.rows}) == STEPS, shown[:2000]
    assert len(shown) < 10_000


@pytest.mark.parametrize("format", sorted(WRITERS))
@pytest.mark.parametrize("length_ns", [0, -5, -(10**19), 10**19])
def test_what_takes_no_time_or_less_adds_none(run: Path, tmp_path: Path, length_ns: int, format: str) -> None:
    """Or centuries: a number that does not fit is no time."""
    whole, odd = imported_run.device_of(STEPS), imported_run.device_of(STEPS)
    begin = whole.kernels[0][0]
    odd.kernels.append((begin, begin + length_ns))
    odd.collectives.append(("114", begin, begin + length_ns))
    name, write = WRITERS[format]
    try:
        file = write(tmp_path / "odd" / name, odd)
    except OverflowError:
        pytest.skip("the format has no such number")
    (expected,) = imported(run, write(tmp_path / "whole" / name, whole))
    (made,) = imported(run, file)

    assert made.rows == expected.rows


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_database_on_a_disk_that_is_read_only_is_read(run: Path, mount: Mount, journal: str) -> None:  # noqa: F811
    disk = mount("disk", "size=32m")
    file = database(disk, journal=journal)
    (whole,) = imported(run, file)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    (made,) = imported(run, file)

    assert (made.problem, made.damage, made.rows) == ("", [], whole.rows)


def test_a_rank_that_the_run_has_not_is_a_line(run: Path, tmp_path: Path) -> None:
    file = device_profiles.ascend_db(tmp_path / "ascend_pytorch_profiler_7.db", imported_run.device_of(STEPS))
    (made,) = imported(run, file)

    assert made.problem == "is of rank 7, of which the run has no stage"


def test_a_file_that_does_not_say_whose_it_is_needs_a_rank(run: Path, tmp_path: Path) -> None:
    file = device_profiles.kernel_details(tmp_path / "kernel_details.csv", imported_run.device_of(STEPS))
    (unknown,) = imported(run, file)
    (named,) = imported(run, file, rank=0)

    assert "--rank" in unknown.problem
    assert named.problem == ""


def test_a_rank_may_come_twice_once_a_file(run: Path, tmp_path: Path) -> None:
    """One for each window, as of a discrete capture; both are read, and waiting is not bounded by comparing these."""
    whole, later = imported_run.device_of(STEPS), imported_run.device_of(STEPS, first=1)
    files = [device_profiles.ascend_db(tmp_path / name / "ascend_pytorch_profiler_0.db", device, "msmonitor")
             for name, device in (("a", whole), ("b", later))]  # fmt: skip
    first, second = imported(run, *files)

    assert (len(first.rows), len(second.rows)) == (2 * STEPS, 2 * STEPS - 2)
    assert {row["known"] for row in first.rows} == {None}


@pytest.mark.parametrize("format", ["ascend_db", "kernel_details", "trace_view"])
def test_a_copy_of_a_file_is_named_and_does_not_count_twice(run: Path, tmp_path: Path, format: str) -> None:
    name, write = WRITERS[format]
    files = [write(tmp_path / copy / name, imported_run.device_of(STEPS)) for copy in "ab"]
    first, second = imported(run, *files)

    assert (len(first.rows), first.problem) == (2 * STEPS, "")
    assert (second.rows, second.problem) == ([], f"tells the same as {files[0]}: left out")


@pytest.mark.parametrize("format", ["ascend_db", "trace_view", "torch_trace"])
def test_clocks_an_hour_apart_are_told_by_ranges(run: Path, tmp_path: Path, format: str) -> None:
    name, write = WRITERS[format]
    (made,) = imported(run, write(tmp_path / name, imported_run.device_of(STEPS).shifted(3_600_000_000_000)))
    updates = [row for row in made.rows if row["stage"] == "actor_update"]

    assert len(updates) == STEPS
    assert all(abs(row["computing_ns"] - 30 * MS) <= row["error_ns"] for row in updates)
    assert all(row["error_ns"] < MS for row in updates)


def test_clocks_an_hour_apart_and_no_range_is_no_join_but_says_how_far(run: Path, tmp_path: Path) -> None:
    device = imported_run.device_of(STEPS).shifted(3_600_000_000_000)
    (made,) = imported(run, device_profiles.kernel_details(tmp_path / "rank0" / "kernel_details.csv", device))

    assert made.rows == []
    assert "s outside of all stages of rank 0, by the wall clock: is it of this run?" in made.problem
    assert "3599" in made.problem


def test_a_database_of_one_kernel_is_read(run: Path, tmp_path: Path) -> None:
    device = imported_run.device_of(STEPS)
    device.kernels, device.collectives, device.waits, device.moves = device.kernels[:1], [], [], []
    (made,) = imported(run, device_profiles.ascend_db(tmp_path / "ascend_pytorch_profiler_0.db", device))

    assert [row["computing_ns"] for row in made.rows if row["step"] == 0] == [0, 20 * MS]


def test_a_run_of_nothing_has_no_stage_to_join(tmp_path: Path) -> None:
    from builders.run_files import new_run

    (made,) = imported(new_run(tmp_path / "run"), database(tmp_path))

    assert made.problem == "is of rank 0, of which the run has no stage"


def test_a_fifo_and_a_missing_file_are_lines_and_the_rest_is_read(run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.pt.trace.json")
    damage: list[Any] = []
    files = _places.find_files([tmp_path / "a.pt.trace.json", tmp_path / "none", database(tmp_path / "b")], damage)

    assert [source.path.name for source in files] == ["ascend_pytorch_profiler_0.db"]
    assert [loss.reason for loss in damage] == ["not a regular file", "No such file or directory"]


def test_what_cannot_be_read_below_a_folder_is_a_line_and_the_rest_is_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, secret, packed = database(tmp_path), tmp_path / "profiler_1.db", tmp_path / "trace.json.gz"
    packed.write_bytes(b"\x1f\x8bnot")
    secret.touch()
    open_regular = documents.open_regular

    def refused(path: Path) -> int:
        if path == secret:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_regular(path)

    monkeypatch.setattr(documents, "open_regular", refused)
    damage: list[Any] = []

    assert [source.path for source in _places.find_files([tmp_path], damage)] == [file]
    assert {loss.path: loss.reason.partition(":")[0] for loss in damage} == {
        str(secret): "Permission denied", str(packed): "cannot be unpacked",
    }  # fmt: skip


def test_a_folder_with_nothing_that_can_be_read_says_what_was_there(run: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(b"\x1f\x8bnot")
    damage: list[Any] = []

    assert _places.find_files([tmp_path], damage) == []
    assert [loss.path for loss in damage] == [str(tmp_path / "trace.json.gz")]


def test_a_folder_below_that_cannot_be_listed_is_a_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").mkdir()
    file, scandir = database(tmp_path), os.scandir

    def refused(path: str) -> Any:
        if str(path).endswith("secret"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    damage: list[Any] = []

    assert [source.path for source in _places.find_files([tmp_path], damage)] == [file]
    assert [(loss.path, loss.reason) for loss in damage] == [(str(tmp_path / "secret"), "Permission denied")]


def test_links_below_a_folder_are_not_followed(run: Path, tmp_path: Path) -> None:
    outside = database(tmp_path / "outside")
    (tmp_path / "inside").mkdir()
    os.symlink(outside, tmp_path / "inside" / outside.name)
    os.symlink(tmp_path / "outside", tmp_path / "inside" / "folder")
    damage: list[Any] = []

    assert _places.find_files([tmp_path / "inside"], damage) == []
    assert "holds nothing to import" in damage[0].reason
