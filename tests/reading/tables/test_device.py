"""`Run.device()`: what was imported, once a file, and the run's own profiles by themselves."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from builders import device_profiles, escalated_run, imported_run
from builders.device_profiles import MS

pytest.importorskip("numpy")
pytest.importorskip("polars")

import polars as pl

from mstxkit.reading.importers import _importing, _kept, _places
from mstxkit.reading.run import open_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return imported_run.run_of(tmp_path / "run")


def imported(run: Path, file: Path) -> None:
    sources, opened = _places.find_files([file], []), open_run(run)
    for source, made in zip(sources, _importing.import_all(opened.files, sources, lambda _: None)):
        assert not _importing.try_to_keep(run, opened.id, source, made)


def database(folder: Path, device: device_profiles.Device | None = None) -> Path:
    return device_profiles.ascend_db(folder / "ascend_pytorch_profiler_0.db", device or imported_run.device_of())


def test_a_run_without_imports_has_an_empty_table(run: Path) -> None:
    device = open_run(run).device()

    assert (device.height, device.columns[:3]) == (0, ["rank", "step", "stage"])
    assert not (run / "imports").exists()


def test_a_profile_that_is_written_while_it_is_read_is_read_again(run: Path) -> None:
    (run / "profiles" / "rank0").mkdir(parents=True)
    file = device_profiles.trace_view(run / "profiles" / "rank0" / "trace_view.json", imported_run.device_of())
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])

    def finished(_: float) -> None:
        (run / "new.json").write_bytes(whole)
        os.replace(run / "new.json", file)

    sources, opened = _places.find_files([file], []), open_run(run)
    (made,) = _importing.import_all(opened.files, sources, finished)
    assert not _importing.try_to_keep(run, opened.id, sources[0], made)

    assert open_run(run).device().filter(pl.col("stage") == "actor_update")["computing_ns"].to_list() == [30 * MS] * 6


def test_what_was_imported_is_in_the_table(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path))
    rows = open_run(run).device().filter(pl.col("stage") == "actor_update")

    assert rows["computing_ns"].to_list() == [30 * MS] * 6
    assert rows["waiting_ns"].to_list() == [10 * MS] * 6
    assert rows["step"].to_list() == list(range(6))


def test_computing_communicating_and_free_are_the_stage(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path, imported_run.device_of().shifted(123_456_789, drift=3e-6)))
    parts = pl.sum_horizontal("computing_ns", "communicating_ns", "free_ns")

    assert open_run(run).device().filter(parts != pl.col("stage_ns")).height == 0


def test_importing_the_same_file_again_replaces_it(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path))
    first = open_run(run).device()
    (tmp_path / "ascend_pytorch_profiler_0.db").unlink()
    imported(run, database(tmp_path, imported_run.device_of(first=4)))

    assert (first.height, open_run(run).device().height) == (12, 4)
    assert len(os.listdir(run / "imports")) == 2


def test_files_of_one_name_in_two_folders_are_two(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path / "a"))
    imported(run, database(tmp_path / "b"))

    assert open_run(run).device()["file"].n_unique() == 2


def test_the_filters_of_a_run_hold(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path))

    assert open_run(run, steps=[2, 3], stages="reference").device()["step"].to_list() == [2, 3]
    assert open_run(run, ranks=5).device().height == 0


def test_profiles_of_an_escalation_are_joined_by_themselves(run: Path, tmp_path: Path) -> None:
    folder = escalated_run.session(run, rank=0, output="node1_7_20261124101010123_ascend_pt")
    output = folder / "node1_7_20261124101010123_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    database(output)
    first, again = (open_run(run).device() for _ in range(2))

    assert first.height == 12
    assert again.equals(first)
    assert first["file"][0] == str((output / "ascend_pytorch_profiler_0.db").relative_to(run))
    assert len(os.listdir(run / "imports")) == 2


def test_a_torch_trace_of_a_session_has_the_rank_of_its_session(run: Path) -> None:
    """The trace says none where there is no process group."""
    folder = escalated_run.session(run, rank=0, output="host_1.pt.trace.json")
    trace = device_profiles.torch_trace(folder / "host_1.pt.trace.json", imported_run.device_of())
    document = json.loads(trace.read_text())
    del document["distributedInfo"]
    trace.write_text(json.dumps(document))

    assert open_run(run).device()["rank"].unique().to_list() == [0]


def test_a_process_that_never_learns_its_rank_is_the_rank_0_of_its_sessions(tmp_path: Path) -> None:
    """It may be asked for profiles as rank 0."""
    run = imported_run.run_of(tmp_path / "run", knows_ranks=False)
    folder = escalated_run.session(run, rank=0, output="host_1.pt.trace.json")
    device_profiles.torch_trace(folder / "host_1.pt.trace.json", imported_run.device_of())
    opened = open_run(run)

    assert opened.device().filter(pl.col("stage") == "actor_update")["computing_ns"].to_list() == [30 * MS] * 6
    assert not opened.damage


def test_a_run_that_cannot_be_written_is_joined_all_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = escalated_run.session(run, rank=0, output="x_ascend_pt")
    database(folder / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT")

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(_kept, "keep_rows", refuse)

    assert open_run(run).device().height == 12
    assert not (run / "imports").exists()


def test_a_profile_that_is_too_large_says_how_to_import_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mstxkit.reading.tables import device

    folder = escalated_run.session(run, rank=0, output="x_ascend_pt")
    database(folder / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT")
    monkeypatch.setattr(device, "BYTES_AT_MOST", 1000)
    opened = open_run(run)

    assert opened.device().height == 0
    assert "mstxkit import --run" in opened.damage[-1].reason


def test_a_profile_that_is_damaged_is_a_line_once(run: Path) -> None:
    folder = escalated_run.session(run, rank=0, output="x_ascend_pt")
    file = database(folder / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT")
    file.write_bytes(b"SQLite format 3\0" + b"x" * 100)
    opened = open_run(run)

    assert opened.device().height == 0
    assert [loss.path for loss in opened.damage] == [str(file)]


def test_a_profile_without_a_stage_yet_is_looked_at_again(run: Path, tmp_path: Path) -> None:
    """It may have been parsed while its stage went on."""
    folder = escalated_run.session(run, rank=3, output="x_ascend_pt")
    device = imported_run.device_of(rank=3)
    device_profiles.ascend_db(
        folder / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_3.db", device
    )
    before = open_run(run).device().height
    other = imported_run.run_of(tmp_path / "other", ranks=4)
    for file in (other / "sealed").iterdir():
        shutil.copy(file, run / "sealed")

    assert (before, open_run(run).device().height) == (0, 12)


def test_a_light_profile_has_no_device_and_is_no_damage(run: Path) -> None:
    from builders.profiler_database import write_database

    folder = escalated_run.session(run, rank=0, output="x_ascend_pt")
    write_database(folder / "x_ascend_pt", 0, 7, [("actor_update", 5 * MS)])
    opened = open_run(run)

    assert (opened.device().height, opened.damage) == (0, [])
    assert len(os.listdir(run / "imports")) == 2


def test_what_was_lost_of_a_file_is_said_whenever_the_table_is_read(run: Path, tmp_path: Path) -> None:
    trace = device_profiles.torch_trace(tmp_path / "a.pt.trace.json", imported_run.device_of())
    document = json.loads(trace.read_text())
    document["traceEvents"], events = [], document["traceEvents"]
    text = json.dumps({**document, "traceEvents": events})
    trace.write_text(text[: text.index('"cat": "user_annotation"') + 500])
    imported(run, trace)
    opened = open_run(run)

    assert opened.device().height > 0
    assert [(loss.path, loss.reason[:18]) for loss in opened.damage] == [(str(trace), "ends in the middle")]


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_foreign_files_among_the_imports_are_lines(run: Path, tmp_path: Path, suffix: str) -> None:
    imported(run, database(tmp_path / "a"))
    imported(run, database(tmp_path / "b"))
    broken = next((run / "imports").glob(f"*{suffix}"))
    broken.write_bytes(os.urandom(500))
    opened = open_run(run)

    assert opened.device().height == 12
    assert [loss.path for loss in opened.damage] == [str(broken)]


def replaced(run: Path, rows: pl.DataFrame) -> None:
    """Rows that somebody else wrote, with all that belongs to them."""
    (file,), (head,) = (run / "imports").glob("*.parquet"), (run / "imports").glob("*.json")
    rows.write_parquet(file)
    digest = hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
    head.write_text(json.dumps({**json.loads(head.read_text()), "digest": digest}))


def test_rows_that_are_not_as_they_were_written_are_never_decoded(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of some damaged files polars' reader asks for 2^61 bytes, which ends the process."""
    imported(run, database(tmp_path))
    (file,) = (run / "imports").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    monkeypatch.setattr(pl, "read_parquet", lambda *_, **__: pytest.fail("decoded"))
    opened = open_run(run)

    assert opened.device().height == 0
    assert opened.damage[0].reason == "is not as it was written: import the file again"


def test_rows_of_other_columns_are_a_line(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path))
    replaced(run, pl.DataFrame({"rank": ["<b>"], "step": [1.5]}))
    opened = open_run(run)

    assert opened.device().height == 0
    assert "is no table of an import" in opened.damage[0].reason


def test_numbers_that_nobody_measured_are_left_out(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path))
    rows = open_run(run).device()
    replaced(run, rows.with_columns(computing_ns=pl.when(pl.col("step") == 1).then(-1).otherwise(5)))

    assert open_run(run).device()["step"].unique().to_list() == [0, 2, 3, 4, 5]


def test_a_link_for_the_folder_of_imports_leads_nowhere(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path))
    shutil.move(str(run / "imports"), str(tmp_path / "elsewhere"))
    os.symlink(tmp_path / "elsewhere", run / "imports")

    assert open_run(run).device().height == 0


def test_what_is_kept_is_private(run: Path, tmp_path: Path) -> None:
    imported(run, database(tmp_path))

    assert (run / "imports").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (run / "imports").iterdir()} == {0o640}


def test_what_an_older_version_kept_is_shown_as_a_guess(run: Path, tmp_path: Path) -> None:
    """It had no word for how transfer is known, and took the shortest stay of all ranks for it."""
    imported(run, database(tmp_path))
    (rows,), (head,) = (list((run / "imports").glob(f"*{suffix}")) for suffix in (".parquet", ".json"))
    newer = [name for name in pl.read_parquet(rows).columns if name == "known" or name.endswith(("_from_ns", "_to_ns"))]
    pl.read_parquet(rows).drop(newer).write_parquet(rows)
    document = json.loads(head.read_text())
    document["digest"] = hashlib.blake2b(rows.read_bytes(), digest_size=16).hexdigest()
    head.write_text(json.dumps(document))
    device = open_run(run).device()

    assert len(newer) == 5
    assert device["known"].unique().to_list() == ["guessed"]
    assert device.filter(pl.col("stage") == "actor_update")["transfer_ns"].to_list() == [10 * MS] * 6
