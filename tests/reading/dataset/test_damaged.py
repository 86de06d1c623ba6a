"""Files of a dataset that are whole Parquet, and yet no record: a line of damage, or an error with the file's path."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Callable

import pytest
from builders import soak
from builders.judged_runs import NOBODY, recorded, stage_times
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("polars")

import polars as pl

from mstxkit.errors import ReadError
from mstxkit.reading.dataset import compacting, summaries
from mstxkit.reading.run import open_run
from mstxkit.store import dataset

STEPS = 5


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two ranks, compacted, sealed files removed."""
    run = new_run(tmp_path / "run")
    for rank, role in enumerate(["actor", "rollout"]):
        bank = BankFiles()
        for step in range(STEPS):
            bank.range("gen", step * 1000, step * 1000 + 500, stage="generate", own=True, step=step, tokens=step)
        ProcessFiles(run, 100 + rank, rank=rank, role=role).seal(bank)
    compacting.compact_files(run, remove=True)
    return run


def changed(run: Path, change: Callable[[pl.DataFrame], pl.DataFrame], kind: str = "ranges") -> Path:
    (file,) = (run / dataset.FOLDER).glob(f"{kind}/*/role=actor/*/*.parquet")
    with open(file, "rb") as stream:
        rows = change(pl.read_parquet(stream))
    rows.write_parquet(file)
    return file


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.drop("process"),
        lambda rows: pl.DataFrame({"foreign": [1, 2]}),
        lambda rows: rows.with_columns(start_ns=pl.lit("yesterday")),
        lambda rows: rows.with_columns(process=pl.lit([1, 2])),
        lambda rows: rows.with_columns(track=pl.lit(1 << 40)),
    ],
)
def test_another_table_is_damage_and_the_rest_is_read(
    run: Path, change: Callable[[pl.DataFrame], pl.DataFrame]
) -> None:
    file = changed(run, change)
    opened = open_run(run)

    assert opened.ranges()["rank"].to_list() == [1] * STEPS
    assert opened.stages()["rank"].unique().to_list() == [1]
    assert {loss.path for loss in opened.damage} == {str(file)}
    assert all("is no table of ranges" in loss.reason for loss in opened.damage)


def test_files_without_a_rank_that_is_asked_for_are_not_looked_at(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    for rank in range(2):
        bank = BankFiles().range("gen", 0, 500, stage="generate", own=True, step=0)
        ProcessFiles(run, 100 + rank, rank=rank, host=f"host{rank}").seal(bank)
    compacting.compact_files(run, remove=True)
    for file in (run / dataset.FOLDER).glob("*/*/*/host=host1/*.parquet"):
        file.write_bytes(b"none")

    of_one, whole = open_run(run, ranks=0), open_run(run)

    assert (of_one.ranges().height, of_one.damage) == (1, [])
    assert (whole.ranges().height, len(whole.damage) > 0) == (1, True)


@pytest.mark.parametrize(
    "wrong",
    [{"duration_ns": -5}, {"start_ns": -1}, {"start_ns": (1 << 63) - 1}, {"track": 1 << 20}, {"depth": -1},
     {"step": -1}, {"step": 1 << 40}, {"process": None}, {"start_ns": None}],
    ids=str,
)  # fmt: skip
def test_rows_that_cannot_be_are_left_out_and_counted(run: Path, wrong: dict[str, Any]) -> None:
    (name, value) = next(iter(wrong.items()))
    of_one = pl.int_range(pl.len()) == 0
    file = changed(run, lambda rows: rows.with_columns(pl.when(of_one).then(value).otherwise(pl.col(name)).alias(name)))
    opened = open_run(run)

    assert len(opened.ranges()) == 2 * STEPS - 1
    assert [(loss.path, "1 rows with numbers that cannot be" in loss.reason) for loss in opened.damage] == [
        (str(file), True)
    ]
    assert sum(part.height for part, _ in opened.batches()) == 2 * STEPS - 1


@pytest.mark.parametrize("text", ["{", "[1, 2]", "[" * 50_000, "\x00"], ids=lambda text: text[:6])
def test_attributes_that_are_no_object_have_no_member(run: Path, text: str) -> None:
    changed(run, lambda rows: rows.with_columns(attributes=pl.lit(text)))

    ranges = open_run(run).ranges(attributes=["tokens"])

    assert ranges.filter(rank=0)["tokens"].to_list() == [None] * STEPS
    assert ranges.filter(rank=1)["tokens"].to_list() == list(range(STEPS))


@pytest.mark.parametrize("kind", ["ranges", "days"])
def test_any_bytes_changed_anywhere_are_damage_or_an_error_with_the_path(run: Path, kind: str) -> None:
    """Never a panic of the library's. A number may be another one afterwards: pages of Parquet have no checksum."""
    chance = random.Random(f"{soak.seed()} {kind}")
    file = sorted((run / dataset.FOLDER / kind).rglob("*.parquet"))[0]
    whole = file.read_bytes()

    for _ in range(soak.rounds(600, 20)):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(content))
            content[at : at + 3] = chance.randbytes(chance.randrange(4))
        file.write_bytes(content)
        opened = open_run(run)
        said: list[str] = []
        try:
            opened.ranges(attributes=["tokens"]), opened.stages(), summaries.table(run)
        except ReadError as error:
            said.append(str(error))
        assert all(str(file) in error for error in said)
        assert {loss.path for loss in opened.damage} <= {str(file)}


def test_a_table_of_stages_names_the_file_that_is_damaged(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(NOBODY, ranks=2, steps=5))
    compacting.compact_files(run)
    file = next((run / dataset.FOLDER).glob("days/*/*/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])

    with pytest.raises(ReadError, match="no whole Parquet file") as error:
        summaries.table(run)

    assert str(file) in str(error.value)
