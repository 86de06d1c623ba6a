"""A step lasts until the next one begins in the same process; shares are of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.reading.tables import range_sums, stages  # noqa: E402


def spans(*rows: tuple[int, int, int, int]) -> Any:
    """process, step, start_ns, end_ns; each in a stage of its own."""
    schema = {"process": pl.UInt32, "step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_a_step_lasts_until_the_next_one_and_the_last_until_its_last_range_ends() -> None:
    rows = spans((0, 0, 0, 8), (0, 1, 10, 15), (1, 0, 5, 9), (0, 2, 30, 37))

    assert range_sums.measure_periods(rows, ["ended"] * 2).rows() == [(0, 0, 10), (0, 1, 20), (0, 2, 7), (1, 0, 4)]


def test_where_numbers_are_missing_a_step_lasts_as_long_as_its_ranges() -> None:
    assert range_sums.measure_periods(spans((0, 0, 0, 8), (0, 10, 900, 905)), ["ended"])["period_ns"].to_list() == [
        8,
        5,
    ]


@pytest.mark.parametrize("state", ["running", "killed", "left", "lost"])
def test_a_last_step_that_may_not_be_over_is_left_out_unless_it_is_the_only_one(state: str) -> None:
    rows = spans((0, 0, 0, 8), (0, 1, 10, 11), (1, 5, 0, 3))

    assert range_sums.measure_periods(rows, [state] * 2).rows() == [(0, 0, 10), (1, 5, 3)]


def test_processes_with_few_steps_are_no_measure_of_a_step() -> None:
    rows = spans(*((0, n, 10 * n, 10 * n + 9) for n in range(4)), *((1, n, 20 * n, 20 * n + 9) for n in range(2)))
    rare = spans((2, 0, 0, 1))

    assert range_sums.by_process(range_sums.measure_periods(pl.concat([rows, rare]), ["ended"] * 3)).rows() == [
        (1, 2, 14.5),
        (0, 4, 9.75),
    ]


def test_a_share_is_of_the_time_of_all_steps_of_the_process(tmp_path: Path) -> None:
    bank = BankFiles()
    for step in range(4):
        bank.range("work", 100 * step, 100 * step + 100, step=step)
    bank.range("save", 0, 50, stage="save", own=True, step=0)
    run = new_run(tmp_path / "run")
    ProcessFiles(run).seal(bank)
    opened = open_run(run)
    periods = range_sums.measure_periods(range_sums.of_ranges(opened.files, pl.lit(True)).spans, ["ended"])

    (share,) = range_sums.measure_shares(stages.by_step(opened.occurrences()), periods).rows()

    assert share == ("save", 0, 50 / 400)


@pytest.mark.parametrize(
    ("said", "began_ns"), [(None, 100), ([0, 30], 30), ([0, 130], 100), ([0], 100), (["x", {}], 100)]
)
def test_the_first_step_begins_when_it_was_said_where_that_is_known(tmp_path: Path, said: Any, began_ns: int) -> None:
    """Its initial wait is in no range. Of runs that were written before nobody knows it."""
    bank = BankFiles()
    for step in range(4):
        bank.range("work", 100 * step + 100, 100 * step + 180, step=step, stage="work", own=True)
    run = new_run(tmp_path / "run")
    ProcessFiles(run, first_step=said).seal(bank)
    opened = open_run(run)
    spans = range_sums.of_ranges(opened.files, pl.lit(True)).spans

    assert range_sums.measure_periods(spans, ["ended"], opened.files.processes)["period_ns"].to_list()[:2] == [
        200 - began_ns,
        100,
    ]
    first = opened.steps().row(0, named=True)
    assert (first["start_ns"] - WALL_OFFSET_NS, first["duration_ns"]) == (began_ns, 180 - began_ns)
