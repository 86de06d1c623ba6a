"""Tables of stages from summaries, and the quantiles that histograms give."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.judged_runs import MS, NOBODY, recorded, stage_times
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("polars")

import numpy as np
import polars as pl

from mstxkit.errors import ReadError
from mstxkit.reading.dataset import compacting, summaries
from mstxkit.reading.run import open_run


def test_a_table_of_stages_is_that_of_the_runs_own_ranges(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(NOBODY, ranks=4, steps=50))
    compacting.compact_files(run)
    own = open_run(run).stages().group_by("stage").agg(pl.col("count").sum(), pl.col("total_ns").sum())

    table = summaries.table(run)

    expected = {str(stage): (count, total) for stage, count, total in own.iter_rows()}
    assert {row["stage"]: (row["count"], row["total_ns"]) for row in table.to_dicts()} == expected
    assert table["steps"].to_list() == [50, 50]


def test_it_can_be_by_rank_and_of_some_days_and_roles_only(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(NOBODY, ranks=4, steps=10))
    compacting.compact_files(run)
    day = next((run / "compact" / "summaries").iterdir()).name[4:]

    table = summaries.table(run, by=("stage", "rank"), days=[day])

    by_step = summaries.table(run, by=("stage", "step"))
    assert len(by_step) == 2 * 10 and by_step["total_ns"].sum() == table["total_ns"].sum()
    assert len(table) == 2 * 4 and summaries.table(run, roles=["nobody"]).is_empty()


def test_a_step_that_was_going_on_when_the_run_was_compacted_is_one_step(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    rank = ProcessFiles(run, 100, rank=0)
    for seq in (1, 2):
        rank.seal(BankFiles(seq).range("a", seq * MS, 2 * seq * MS, stage="a", own=True, step=7), ended=None)
        rank.seal(ended=None if seq == 1 else "exit")  # the newest file of who lives is left alone
        compacting.compact_files(run)

    row = summaries.table(run, by=("stage", "step")).to_dicts()[0]

    assert len(list((run / "compact").glob("summaries/*/*/*/*.parquet"))) == 2
    assert (row["count"], row["total_ns"], row["mean_ns"]) == (2, 3 * MS, 3 * MS)


def test_quantiles_are_as_near_as_they_say(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    took = np.exp(chance.normal(17, 1, 3000)).astype(int)
    run, bank, now = new_run(tmp_path / "run"), BankFiles(), 0
    for at, duration in enumerate(took.tolist()):  # several in a step, and one alone
        bank.range("a", now, now + duration, stage="a", own=True, step=at // 3 if at % 2 else 10_000 + at)
        now += duration + MS
    ProcessFiles(run, 100, rank=0).seal(bank)
    compacting.compact_files(run)

    row = summaries.table(run).to_dicts()[0]

    for share, name in ((0.5, "p50_ns"), (0.99, "p99_ns")):
        exact = np.quantile(took, share, method="inverted_cdf")
        assert abs(row[name] / exact - 1) <= summaries.ERROR_RATIO + 1e-9


def test_what_nobody_has_recorded_is_not_nothing(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    bank = BankFiles().range("a", 0, MS, stage="a", own=True, step=0, tokens=5).range("b", 0, MS, stage="b", own=True)
    ProcessFiles(run, 100, rank=0).seal(bank)
    compacting.compact_files(run)

    rows = {row["stage"]: row for row in summaries.table(run).to_dicts()}

    assert (rows["a"]["tokens"], rows["b"]["tokens"]) == (5.0, None)
    assert rows["a"]["busy_ns"] is None


@pytest.mark.parametrize(
    ("words", "why"),
    [({"by": ["nobody"]}, "any of"), ({"days": ["yesterday"]}, "is no day"), ({"days": ["2020-01-01"]}, "it has ")],
)
def test_what_cannot_be_asked_for_is_said(tmp_path: Path, words: dict[str, list[str]], why: str) -> None:
    run = recorded(tmp_path / "run", stage_times(NOBODY, steps=10))
    compacting.compact_files(run)

    with pytest.raises(ReadError, match=why):
        summaries.table(run, **words)


def test_a_run_that_was_not_compacted_says_how(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(NOBODY, steps=10))

    with pytest.raises(ReadError, match="mstxkit collect RUN --compact"):
        summaries.table(run)
