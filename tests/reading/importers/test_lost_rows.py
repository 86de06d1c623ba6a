"""Rows that cannot be used are never lost in silence, and never become time of another kind, whatever is wrong.

Truth is the same file without a fault. Where nothing is said, its figures must be those, or open; where something is,
no time may be there that is not in the truth.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from itertools import product
from pathlib import Path
from typing import Any, Callable

import pytest
from builders import soak
from builders.device_profiles import WRITERS, us
from builders.imported_run import device_of, run_of

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading.importers import _importing, _places
from mstxkit.reading.importers._importing import Imported
from mstxkit.reading.run import open_run

STEPS = 4
WHICH: dict[str, Callable[[int], bool]] = {"one": lambda n: n == 0, "half": lambda n: n % 2 == 0, "all": lambda n: True}
# What stands in place of a time in ns, or in place of a text or number of microseconds or milliseconds.
OF_SQL = {
    "null": "null", "zero": "0", "negative": "-5", "text": "'n/a'", "empty": "''", "blob": "x'00ff'",
    "in µs": "{} / 1000", "infinite": "9e999", "huge": "9223372036854775807",
}  # fmt: skip
OF_JSON: dict[str, Any] = {
    "null": None, "text": "n/a", "negative": "-5.000", "nan": float("nan"), "list": [1], "true": True, "huge": 10**30,
    "empty": "",
}  # fmt: skip
TABLES = {
    "TASK": ("startNs", "endNs", "startNs+endNs", "globalTaskId"),
    "COMMUNICATION_OP": ("startNs", "endNs", "startNs+endNs"),
    "COMPUTE_TASK_INFO": ("globalTaskId",), "COMMUNICATION_TASK_INFO": ("globalTaskId", "taskType"),
    "MSTX_EVENTS": ("startNs", "endNs", "startNs+endNs"),
}  # fmt: skip
IN_DATABASE = [
    ("ascend_db", table, columns, value, which)
    for table, every in TABLES.items()
    for columns, value, which in product(every, OF_SQL, WHICH)
    if not (columns in ("globalTaskId", "taskType") and value == "in µs")  # another id is another task
    if not (columns == "taskType" and value == "zero")
]
OF_NSYS = {"CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "start+end"), "NVTX_EVENTS": ("start", "end", "start+end")}
IN_DATABASE += [
    ("nsys", table, columns, value, which)
    for table, every in OF_NSYS.items()
    for columns, value, which in product(every, OF_SQL, WHICH)
]
OF_TABLES = [
    ("ascend_db", table, what, "", "all") for table in (*TABLES, "STRING_IDS") for what in ("dropped", "doubled")
]
IN_TEXT = [
    (format, key, "", value, which)
    for format, keys in {
        "trace_view": ("ts", "dur"), "torch_trace": ("ts", "dur"), "kernel_details": ("Start Time(us)", "Duration(us)"),
        "communication": ("Start Timestamp(us)", "Elapse Time(ms)", "Wait Time(ms)"),
        "otlp": ("startTimeUnixNano", "endTimeUnixNano"),
        "flight_recorder": ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"),
    }.items()
    for key, value, which in product(keys, (*OF_JSON, "missing", "in other units"), WHICH)
]  # fmt: skip
EVERY = [*IN_DATABASE, *OF_TABLES, *IN_TEXT]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("lost") / "run", STEPS)


@pytest.fixture(scope="module")
def without_fault(run: Path) -> dict[str, Imported]:
    """What becomes of a file of each format that has no fault."""
    files = {format: write(run.parent / "whole" / name, device_of(STEPS)) for format, (name, write) in WRITERS.items()}
    return {format: imported(run, file) for format, file in files.items()}


def imported(run: Path, file: Path) -> Imported:
    (made,) = _importing.import_all(open_run(run).files, _places.find_files([file], []), lambda _: None, 0)
    return made


def spoil_database(file: Path, table: str, columns: str, value: str, which: str) -> None:
    with sqlite3.connect(file) as base:
        if columns == "dropped":
            base.execute(f"drop table {table}")
        elif columns == "doubled":
            _without_keys(base, table)
            base.execute(f"insert into {table} select * from {table}")
            if table == "TASK":
                base.execute("update TASK set endNs = endNs + 1000000 where rowid > (select count(*) / 2 from TASK)")
        else:
            _without_keys(base, table)
            rows = [row for (row,) in base.execute(f"select rowid from {table} order by rowid")]
            chosen = [row for number, row in enumerate(rows) if WHICH[which](number)]
            changes = ", ".join(f"{name} = {OF_SQL[value].format(name)}" for name in columns.split("+"))
            base.executemany(f"update {table} set {changes} where rowid = ?", [(row,) for row in chosen])
    base.close()


def _without_keys(base: sqlite3.Connection, table: str) -> None:
    """As the tables of msprof are: without constraints."""
    columns = ", ".join(row[1] + " " + row[2] for row in base.execute(f"pragma table_info({table})"))
    base.execute(f"create table copied({columns})")
    base.execute(f"insert into copied select * from {table}")
    base.execute(f"drop table {table}")
    base.execute(f"alter table copied rename to {table}")


def spoil_text(file: Path, format: str, key: str, value: str, which: str) -> None:
    if format == "kernel_details":
        spoil_csv(file, key, value, which)
        return
    lines = file.read_text().splitlines() if format == "otlp" else [file.read_text()]
    documents, count = [json.loads(line) for line in lines], 0

    def walk(node: Any) -> None:
        nonlocal count
        if isinstance(node, dict) and key in node and node.get("ph", "X") == "X":
            if WHICH[which](count):
                spoil(node, key, value)
            count += 1
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(inner)

    for document in documents:
        walk(document)
    file.write_text("\n".join(map(json.dumps, documents)) + "\n")


def spoil(fields: dict[str, Any], key: str, value: str) -> None:
    if value == "missing":
        del fields[key]
    elif value == "in other units":  # a length in them may be one
        if key in ("ts", "Start Timestamp(us)", "startTimeUnixNano", "endTimeUnixNano"):
            number = float(fields[key]) / 1000
            fields[key] = us(int(number * 1000)) if isinstance(fields[key], str) and "." in fields[key] else number
            if key.endswith("UnixNano"):
                fields[key] = str(int(number))
    else:
        fields[key] = OF_JSON[value]


def spoil_csv(file: Path, key: str, value: str, which: str) -> None:
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    for number, row in enumerate(rows):
        if WHICH[which](number):
            spoil_field(row, key, value)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    file.write_text(out.getvalue())


def spoil_field(row: dict[str, Any], key: str, value: str) -> None:
    if value == "missing":
        row[key] = ""
    elif value != "in other units":
        row[key] = OF_JSON[value]
    elif key.startswith("Start"):
        row[key] = f"{float(row[key]) / 1000:.3f}"


FIGURES = ("computing_ns", "communicating_ns", "transfer_ns", "waiting_ns", "overlapped_ns", "free_ns", "spans_ns")


def figures(made: Imported) -> dict[Any, dict[str, Any]]:
    return {(row["step"], row["stage"]): row for row in made.rows}


def is_within(spoilt: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Is there no time in it that is not in the truth? What no longer lies under a kernel is communication alone."""

    def least(row: dict[str, Any], *names: str) -> int:
        return sum(row[name] or 0 for name in names)

    everything = ("communicating_ns", "overlapped_ns")
    return (
        least(spoilt, "computing_ns") <= least(whole, "computing_ns")
        and least(spoilt, "spans_ns") <= least(whole, "spans_ns")
        and least(spoilt, *everything) <= least(whole, *everything)
        and (spoilt["free_ns"] or 0) <= spoilt["stage_ns"]
    )


def test_there_are_as_many_kinds_of_faults_as_were_found() -> None:
    assert len(EVERY) >= 300


@pytest.mark.parametrize("case", soak.sample(EVERY, 115), ids=" ".join)
def test_what_cannot_be_used_is_told_and_never_becomes_free_time(
    run: Path, without_fault: dict[str, Imported], tmp_path: Path, case: Any
) -> None:
    format, place, columns, value, which = case
    name, write = WRITERS[format]
    whole = without_fault[format]
    file = write(tmp_path / "spoilt" / name, device_of(STEPS))
    if format in ("ascend_db", "nsys"):
        spoil_database(file, place, columns, value, which)
    else:
        spoil_text(file, format, place, value, which)
    made = imported(run, file)
    says = [*made.damage, *([made.problem] if made.problem else []), *(set(made.notes) - set(whole.notes))]
    truth, shown = figures(whole), figures(made)

    if not says:
        assert shown.keys() == truth.keys()
        assert all(row[name] in (truth[key][name], None) for key, row in shown.items() for name in FIGURES)
        assert [row["computing_ns"] for row in shown.values()] == [row["computing_ns"] for row in truth.values()]
    assert all(is_within(row, truth[key]) for key, row in shown.items() if key in truth)
