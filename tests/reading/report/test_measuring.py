"""What a report measures of stages and ranges, by time a step, in plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("rich")

from mstxkit.errors import ReadError
from mstxkit.reading.report.choice import EVERYTHING, read_choice
from mstxkit.reading.report.summary import SCHEMA, summarise_run
from mstxkit.reading.run import open_run


def pieces(count: int, each: int, step_ns: int = 1000) -> BankFiles:
    """Four steps; in each, one stage in so many pieces, and a range in each of these."""
    bank = BankFiles()
    for step in range(4):
        for n in range(count):
            begin = step_ns * step + 2 * each * n
            bank.range("inner", begin, begin + each // 2, stage="actor_update", step=step, depth=1)
            bank.range("actor_update", begin, begin + each, stage="actor_update", own=True, step=step)
    return bank


@pytest.fixture
def skew(run: Path) -> Path:
    """Rank 0 has few long occurrences, rank 1 many short ones, and is in the stage for longer."""
    ProcessFiles(run, 100, rank=0).seal(pieces(4, 10))
    ProcessFiles(run, 101, rank=1).seal(pieces(16, 6))
    return run


def test_the_slowest_rank_is_that_of_the_longest_time_a_step(skew: Path) -> None:
    (stage,) = summarise_run(open_run(skew))["stages"]

    assert [(row["rank"], row["step_ns"], row["step_count"], row["mean_ns"]) for row in stage["ranks"]] == [
        (1, 96.0, 16.0, 6.0),
        (0, 40.0, 4.0, 10.0),
    ]
    assert (stage["slowest"]["rank"], stage["slowest"]["middle_ns"]) == (1, 40.0)
    assert [row["over_middle_ratio"] for row in stage["ranks"]] == pytest.approx([1.4, 0])


def test_shares_are_of_the_processs_own_steps(skew: Path) -> None:
    summary = summarise_run(open_run(skew))
    shares = {row["rank"]: row["share_ratio"] for row in summary["stages"][0]["ranks"]}

    assert shares == pytest.approx({0: 160 / (3000 + 70), 1: 384 / (3000 + 186)})
    assert summary["step_time"]["step_ns"] == (3000 + 70) / 4
    assert (summary["step_time"]["slowest"]["rank"], summary["step_time"]["fastest"]["rank"]) == (1, 0)


def test_ranges_are_those_inside_of_each_stage_by_time_a_step(skew: Path) -> None:
    (inner,) = summarise_run(open_run(skew))["ranges"]

    assert (inner["stage"], inner["name"], inner["processes"], inner["count"]) == ("actor_update", "inner", 2, 80)
    assert (inner["steps"], inner["step_count"], inner["step_ns"]) == (8, 10.0, (4 * 5 + 16 * 3) / 2)
    assert inner["share_ratio"] == pytest.approx((80 + 192) / (160 + 384))


def test_a_range_is_counted_by_step_also_where_its_stage_has_not_ended(run: Path) -> None:
    bank = BankFiles()
    for step in range(4):
        bank.range("f", 10 * step, 10 * step + 5, stage="s", step=step, depth=1)
    ProcessFiles(run).seal(bank.range("s", 0, 9, stage="s", own=True, step=0))

    (f,) = summarise_run(open_run(run))["ranges"]

    assert (f["steps"], f["step_count"], f["step_ns"]) == (4, 1.0, 5.0)


def test_ranges_without_a_stage_and_a_step_are_there_all_the_same(run: Path) -> None:
    bank = BankFiles()
    for n in range(20):
        bank.range("f", 10 * n, 10 * n + 5)
    ProcessFiles(run).seal(bank)

    summary = summarise_run(open_run(run))

    assert (summary["stages"], summary["step_time"]) == ([], None)
    (f,) = summary["ranges"]
    assert (f["stage"], f["name"], f["count"], f["total_ns"], f["steps"]) == (None, "f", 20, 100, 0)


def test_what_is_in_no_stage_comes_last_and_the_longest_first(run: Path) -> None:
    bank = BankFiles().range("none", 0, 900, step=0).range("short", 0, 5, stage="b", step=0, depth=1)
    bank.range("long", 0, 9, stage="b", step=0, depth=1).range("b", 0, 10, stage="b", own=True, step=0)
    ProcessFiles(run).seal(bank.range("x", 20, 21, stage="a", step=0, depth=1).range("a", 20, 22, stage="a", own=True))

    assert [row["name"] for row in summarise_run(open_run(run))["ranges"]] == ["long", "short", "x", "none"]


def test_a_choice_holds_for_stages_ranges_and_step_time(skew: Path) -> None:
    summary = summarise_run(open_run(skew), read_choice("1:2", "1"))

    assert [(row["rank"], row["steps"]) for row in summary["stages"][0]["ranks"]] == [(1, 2)]
    assert [(row["processes"], row["count"]) for row in summary["ranges"]] == [(1, 32)]
    assert (summary["step_time"]["steps"], summary["step_time"]["step_ns"]) == (2, 1000.0)
    assert (summary["first_step"], summary["last_step"], summary["processes"]) == (0, 3, 2)


@pytest.mark.parametrize(
    "options",
    [{"steps": "99"}, {"ranks": "0,7"}, {"stages": "reward"}, {"ranges": "outer"}, {"ranks": "0", "stages": "late"}],
    ids=str,
)
def test_a_choice_that_matches_nothing_is_an_error(skew: Path, options: dict[str, Any]) -> None:
    ProcessFiles(skew, 102, rank=2).seal(BankFiles().range("late", 0, 1, stage="late", own=True))

    with pytest.raises(ReadError):
        summarise_run(open_run(skew), read_choice(**options))


def test_the_form_has_a_number(skew: Path) -> None:
    summary = summarise_run(open_run(skew), EVERYTHING)

    assert (summary["schema"], SCHEMA) == (10, 10)
    assert set(summary["chosen"]) == {"steps", "ranks", "stages", "ranges"}


def test_what_recording_cost_most_is_named(run: Path) -> None:
    for rank in range(3):
        process = ProcessFiles(run, 100 + rank, rank=rank)
        process.counters["own_cost_ns"] = 1_000_000 * rank
        process.seal(pieces(1, 10))

    cost = summarise_run(open_run(run))["own_cost"]

    assert (cost["rank"], cost["processes"]) == (2, 3)
    assert cost["own_cost_ratio"] > cost["middle_ratio"] > 0
