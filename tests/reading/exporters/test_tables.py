"""Tables of a run as csv and Parquet are those of the run, whatever its names hold."""

from __future__ import annotations

import csv
import io
import os
import stat
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.exporters import FOLDER, list_formats, load_exporter, parquet  # noqa: E402
from mstxkit.reading.run import Run, open_run  # noqa: E402

HOSTILE = ['<b>"', "a,b\n'c'", "'; drop table x; --", "\x1b[31m", "\u202eright", "更新 🚀", "x" * 5000, "\0"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = new_run(tmp_path / "run")
    bank = BankFiles().mark("m", 3, step=2, note="é")
    for place, name in enumerate(HOSTILE):
        bank.range(name, place * 10, place * 10 + 5, stage="s", own=True, step=place, tokens=place, text=name)
    ProcessFiles(folder, 42, role="actor").seal(bank, inside=[{"name": "fatal", "domain": "d", "start": 90}])
    return open_run(folder)


def exported(run: Run, to: str, folder: Path) -> Path:
    folder.mkdir()
    count = load_exporter(to).write(run, folder)
    assert count == run.ranges().height + run.marks().height
    return folder


def shown(text: str) -> str:
    """As a terminal or a program of tables may see it: a control character would act there."""
    return "".join("\ufffd" if category(c) == "Cc" and c not in "\t\n\r" else c for c in text)


def plain(table: Any) -> Any:
    return table.with_columns(pl.col(pl.Categorical).cast(pl.String))


@pytest.mark.parametrize("name", ["ranges", "marks", "stages", "processes", "tracks"])
def test_parquet_comes_back_as_the_table_was(run: Run, tmp_path: Path, name: str) -> None:
    folder = exported(run, "parquet", tmp_path / "out")

    back = pl.read_parquet(folder / name / "*.parquet")

    assert back.select(getattr(run, name)().columns).equals(plain(getattr(run, name)()))


@pytest.mark.parametrize("name", ["ranges", "marks"])
def test_csv_comes_back_as_the_table_was(run: Run, tmp_path: Path, name: str) -> None:
    folder = exported(run, "csv", tmp_path / "out")

    table = plain(getattr(run, name)())
    back = pl.read_csv(folder / f"{name}.csv", schema_overrides=table.schema)

    assert back.select(table.columns).equals(table.with_columns(pl.col(pl.String).map_elements(shown, pl.String)))


def test_no_csv_has_a_control_character(run: Run, tmp_path: Path) -> None:
    files = list(exported(run, "csv", tmp_path / "out").iterdir())
    found = {c for file in files for c in file.read_text(encoding="utf-8-sig") if category(c) == "Cc"}

    assert len(files) > 4
    assert found <= set("\t\n\r")


@pytest.mark.parametrize("umask", [0, 0o077])
@pytest.mark.parametrize("to", list_formats())
def test_what_is_exported_has_the_rights_of_the_run_whatever_the_umask(
    run: Run, tmp_path: Path, to: str, umask: int
) -> None:
    (tmp_path / "out").mkdir()
    exporter, before = load_exporter(to), os.umask(umask)
    try:
        exporter.write_to(run, tmp_path / "out" if exporter.form == FOLDER else tmp_path / "out" / "file")
        after = os.umask(umask)
    finally:
        os.umask(before)
    written = list((tmp_path / "out").rglob("*"))

    assert after == umask
    assert {stat.S_IMODE(file.stat().st_mode) for file in written if file.is_file()} == {0o640}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in written if folder.is_dir()} <= {0o750, 0o700}


def test_other_programs_read_both(run: Run, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    exported(run, "parquet", tmp_path / "p")
    exported(run, "csv", tmp_path / "c")

    counts = [
        duckdb.sql(f"select count(*), sum(duration_ns) from '{tmp_path}/{files}'").fetchall()[0]
        for files in ("p/ranges/*.parquet", "c/ranges.csv")
    ]

    assert counts == [(len(HOSTILE) + 1, 5 * len(HOSTILE))] * 2


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    ProcessFiles(folder).seal(BankFiles().range("=cmd|'/c calc'!A1", 0, 5).range("@sum", 5, 6))

    text = (exported(open_run(folder), "csv", tmp_path / "out") / "ranges.csv").read_text()

    assert ",'=cmd|'/c calc'!A1," in text
    assert ",'@sum," in text


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_a_run_of_nothing_has_tables_with_columns(tmp_path: Path, to: str) -> None:
    folder = exported(open_run(new_run(tmp_path / "run")), to, tmp_path / "out")

    reads = pl.read_csv if to == "csv" else pl.read_parquet
    (file,) = folder.glob("ranges.csv" if to == "csv" else "ranges/*.parquet")
    assert "duration_ns" in reads(file).columns


def excel_cells(folder: Path, table: str) -> list[dict[str, str]]:
    """As Excel opens it: by the byte order mark it is UTF-8."""
    content = (folder / f"{table}.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    assert content.count(b"\xef\xbb\xbf") == 1
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def test_a_spreadsheet_knows_a_csv_for_utf_8_and_programs_read_its_first_column(run: Run, tmp_path: Path) -> None:
    rows = excel_cells(exported(run, "csv", tmp_path / "out"), "ranges")

    assert "更新 🚀" in [row["name"] for row in rows]
    assert {row["rank"] for row in rows} == {"0"}


def test_a_long_csv_has_one_byte_order_mark(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 2)

    assert len(excel_cells(exported(run, "csv", tmp_path / "out"), "ranges")) == len(HOSTILE) + 1


def test_for_excel_times_are_microseconds_and_no_number_has_more_digits_than_it_keeps(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    bank = BankFiles().range("short", 0, 5).range("r", 1_000_000_007, 1_003_456_789).mark("m", 1)
    ProcessFiles(folder, 42).seal(bank, inside=[{"name": "open", "domain": "d", "start": 2_000_000_000}])
    out = tmp_path / "out"
    out.mkdir()

    load_exporter("csv").write(open_run(folder), out, excel="yes")

    rows = {row["name"]: row for row in excel_cells(out, "ranges")}
    assert (rows["r"]["start_us"], rows["r"]["duration_us"]) == ("1700000001000000.007\t", "3456.782")
    assert (rows["short"]["duration_us"], rows["open"]["duration_us"]) == ("0.005", "")
    assert not any(column.endswith("_ns") for table in ("ranges", "marks", "stages") for row in excel_cells(out, table)
                   for column in row)  # fmt: skip
    numbers = [
        cell for row in excel_cells(out, "processes") for cell in row.values() if cell.replace(".", "").isdigit()
    ]
    assert max(len(cell.replace(".", "")) for cell in numbers) <= 15


def test_a_time_before_1970_has_its_sign_once() -> None:
    from mstxkit.reading.exporters import csv as exporter

    (row,) = exporter._for_excel(pl.DataFrame({"offset_ns": [-1_500]})).to_dicts()

    assert row == {"offset_us": "-1.500"}
