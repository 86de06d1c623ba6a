"""Ranges are added up batch by batch: the sums are those of the whole, coalesced calls count as so many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.reading.run_files import RunFiles  # noqa: E402
from mstxkit.reading.tables import range_sums  # noqa: E402

EVERY = pl.lit(True)


def of_names(sums: range_sums.Sums) -> list[Any]:
    columns = ("process", "stage", "name", "calls", "total_ns", "max_ns", "step_calls", "step_ns")
    return sums.names.sort("process", "stage", "name").select(columns).rows()  # type: ignore[no-any-return]


def test_ranges_add_up_by_process_stage_and_name_and_stages_are_not_inside_themselves(run: Path) -> None:
    bank = BankFiles().range("f", 0, 5, stage="s", step=0, depth=1).range("f", 6, 9, stage="s", step=1, depth=1)
    ProcessFiles(run).seal(bank.range("s", 0, 10, stage="s", own=True, step=0).range("f", 20, 21))

    assert of_names(range_sums.of_ranges(open_run(run).files, EVERY)) == [
        (0, None, "f", 1, 1, 1, 0, 0),
        (0, "s", "f", 2, 8, 5, 2, 8),
    ]


def test_a_step_spans_from_its_first_begin_to_its_last_end_in_each_stage(run: Path) -> None:
    bank = BankFiles().range("a", 3, 5, step=7).range("b", 1, 4, step=7).range("c", 0, 90)
    ProcessFiles(run).seal(bank.range("d", 6, 8, step=7, stage="s"))

    spans = [(0, 7, None, WALL_OFFSET_NS + 1, WALL_OFFSET_NS + 5), (0, 7, "s", WALL_OFFSET_NS + 6, WALL_OFFSET_NS + 8)]
    assert range_sums.of_ranges(open_run(run).files, EVERY).spans.sort("start_ns").rows() == spans


def test_a_coalesced_row_counts_as_its_calls_and_the_time_inside_them(run: Path) -> None:
    bank = BankFiles().range("poll", 0, 1000, busy=60, step=0, coalesced=30, total_ns=60, max_ns=9)
    ProcessFiles(run).seal(bank.range("poll", 2000, 2003, step=0).range("mine", 0, 10, coalesced=99))
    sums = range_sums.of_ranges(open_run(run).files, EVERY)

    assert of_names(sums) == [(0, None, "mine", 1, 10, 10, 0, 0), (0, None, "poll", 31, 63, 9, 31, 63)]
    assert sums.coalesced.rows() == [("poll", 30, 1)]


def test_many_batches_give_the_sums_of_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        banks = [BankFiles(seq).range(f"r{seq % 3}", seq, seq + seq, step=seq // 4) for seq in range(1, 40)]
        ProcessFiles(run, 100 + rank, rank=rank).seal(*banks)
    whole = range_sums.of_ranges(open_run(run).files, EVERY)
    batches = RunFiles.batches
    monkeypatch.setattr(RunFiles, "batches", lambda self: batches(self, rows=4))
    monkeypatch.setattr(range_sums, "_ROWS_KEPT", 8)
    pieces = range_sums.of_ranges(open_run(run).files, EVERY)

    assert of_names(pieces) == of_names(whole)
    assert pieces.spans.sort("process", "step").equals(whole.spans.sort("process", "step"))


def test_only_the_names_are_chosen(run: Path) -> None:
    ProcessFiles(run).seal(BankFiles().range("a", 0, 1, step=0).range("a", 2, 5, step=1))
    sums = range_sums.of_ranges(open_run(run).files, pl.col("step") == 1)

    assert of_names(sums) == [(0, None, "a", 1, 3, 3, 1, 3)]
    assert sums.spans.height == 2
