"""Lateness: how much later than the first a rank entered the stages that all leave together."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders import soak
from builders.judged_runs import BEHIND, INPUT, MS, NOBODY, recorded, stage_times
from builders.run_files import BankFiles, ProcessFiles, anchor, new_run

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.report.units import write_spans  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402


def test_a_rank_of_slow_input_enters_the_barrier_late_and_the_first_one_does_not(tmp_path: Path) -> None:
    table = open_run(recorded(tmp_path / "run", stage_times(INPUT, ranks=4, steps=20))).lateness()

    assert table.columns == ["step", "group", "rank", "stage", "late_ns", "error_ns", "source"]
    assert set(table["stage"]) == {"actor_update"}
    assert set(table["group"]) == {"0-3"}
    assert set(table["source"]) == {"stage_entry"}
    assert len(table) == 20 * 4
    assert table.group_by("step").agg(pl.col("late_ns").min())["late_ns"].unique().to_list() == [0]
    assert table.filter(pl.col("rank") == 1)["late_ns"].min() > 15 * MS
    assert table.filter(pl.col("rank") != 1)["late_ns"].max() < 5 * MS


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("fault", [INPUT, BEHIND, NOBODY])
def test_only_what_all_leave_together_counts_as_such_whoever_is_slow(tmp_path: Path, fault: str, ranks: int) -> None:
    table = open_run(recorded(tmp_path / "run", stage_times(fault, ranks=ranks, steps=30))).lateness()

    assert set(table["stage"]) == {"actor_update"}


def test_one_rank_alone_is_late_for_nobody(tmp_path: Path) -> None:
    assert open_run(recorded(tmp_path / "run", stage_times(NOBODY, ranks=1, steps=20))).lateness().height == 0


def test_it_is_of_the_ranks_that_are_read(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, ranks=4, steps=20))

    assert set(open_run(run, ranks=[1, 2]).lateness()["group"]) == {"1-2"}


def test_ranks_are_written_as_spans() -> None:
    assert [write_spans(ranks) for ranks in ([], [3], [2, 0, 3, 4, 7], [1, 1])] == ["", "3", "0,2-4,7", "1"]


def test_it_is_what_each_rank_was_delayed_by_within_the_bound_of_the_clocks(tmp_path: Path) -> None:
    """Clocks are wrong by up to their bound; what is told of two ranks is wrong by no more than both bounds."""
    chance, bound_ns = random.Random(soak.seed()), 50_000
    run, injected = new_run(tmp_path / "run"), {}
    delays = {(step, rank): chance.randrange(0, 20_000_000) for step in range(12) for rank in range(4)}
    for rank in range(4):
        bank, wrong_ns = BankFiles(), chance.randrange(-bound_ns, bound_ns)
        for step in range(12):
            begin = step * 10**9 + wrong_ns + 10**6
            left = begin + max(delays[step, other] for other in range(4)) + 5_000_000
            bank.range("gather", begin + delays[step, rank], left, stage="gather", own=True, step=step)
            injected[step, rank] = delays[step, rank] - min(delays[step, other] for other in range(4))
        process = ProcessFiles(run, 100 + rank, rank=rank)
        process.anchors = (anchor(0, error_ns=bound_ns), anchor(12 * 10**9, error_ns=bound_ns))
        process.seal(bank)

    rows = open_run(run).lateness()

    assert rows.height == len(injected)
    for step, rank, late_ns, error_ns in rows.select("step", "rank", "late_ns", "error_ns").iter_rows():
        assert abs(late_ns - injected[step, rank]) <= error_ns, (step, rank)
