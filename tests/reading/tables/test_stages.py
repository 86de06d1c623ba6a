"""Stages are counted once where they nest in themselves, and their time once where it overlaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.run import Run, open_run  # noqa: E402
from mstxkit.reading.tables import stages  # noqa: E402


def run_of(path: Path, *processes: BankFiles) -> Run:
    run = new_run(path / "run")
    for rank, bank in enumerate(processes):
        ProcessFiles(run, 100 + rank, rank=rank).seal(bank)
    return open_run(run)


def stage(bank: BankFiles, start: int, end: int, key: str = "s", **fields: Any) -> BankFiles:
    return bank.range(key, start, end, stage=key, own=True, **fields)


def counted(run: Run) -> list[Any]:
    return run.stages().select("step", "stage", "count", "total_ns").rows()  # type: ignore[no-any-return]


def test_each_step_stage_and_process_has_its_row(tmp_path: Path) -> None:
    bank = stage(stage(stage(BankFiles(), 0, 10, step=0), 20, 25, step=0), 30, 31, "t", step=1)
    run = run_of(tmp_path, bank, stage(BankFiles(), 5, 6, step=0))

    assert run.stages().rows() == [
        (0, "s", 0, None, 100, 2, 15, WALL_OFFSET_NS, WALL_OFFSET_NS + 25, None, None),
        (0, "s", 1, None, 101, 1, 1, WALL_OFFSET_NS + 5, WALL_OFFSET_NS + 6, None, None),
        (1, "t", 0, None, 100, 1, 1, WALL_OFFSET_NS + 30, WALL_OFFSET_NS + 31, None, None),
    ]


def test_ranges_inside_a_stage_are_not_occurrences_of_it(tmp_path: Path) -> None:
    bank = stage(BankFiles().range("inner", 1, 2, stage="s", depth=1), 0, 10)

    assert counted(run_of(tmp_path, bank)) == [(None, "s", 1, 10)]


def test_a_stage_nested_in_itself_counts_once(tmp_path: Path) -> None:
    bank = BankFiles()
    for depth, start, end in ((3, 3, 4), (1, 2, 5), (0, 0, 10), (0, 11, 12)):
        stage(bank, start, end, depth=depth)

    assert counted(run_of(tmp_path, bank)) == [(None, "s", 2, 11)]


def test_a_nested_one_of_a_later_step_does_not_count_there(tmp_path: Path) -> None:
    bank = stage(stage(BankFiles(), 2, 5, depth=1, step=1), 0, 10, step=0)

    assert counted(run_of(tmp_path, bank)) == [(0, "s", 1, 10)]


def test_stages_on_two_tracks_count_twice_and_their_time_once(tmp_path: Path) -> None:
    bank = stage(stage(BankFiles(), 0, 10, track=0), 5, 12, track=1)

    assert counted(run_of(tmp_path, bank)) == [(None, "s", 2, 12)]


def test_siblings_that_overlap_on_one_track_both_count(tmp_path: Path) -> None:
    """A suspended coroutine leaves its track to another one."""
    bank = stage(stage(BankFiles(), 2, 8, busy=1), 0, 10, busy=2)

    assert counted(run_of(tmp_path, bank)) == [(None, "s", 2, 10)]


def test_a_stage_inside_another_one_counts_for_both(tmp_path: Path) -> None:
    bank = stage(stage(BankFiles(), 2, 5, "inner", depth=1), 0, 10, "outer")

    assert counted(run_of(tmp_path, bank)) == [(None, "inner", 1, 3), (None, "outer", 1, 10)]


def test_an_occurrence_that_is_open_does_not_count_nor_does_what_is_inside_it(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    bank = stage(BankFiles(), 5, 6, depth=1)
    fields = {"name": "s", "domain": "default", "stage": "s", "own_stage": True, "track": 0, "depth": 0, "start": 0}
    ProcessFiles(run).seal(stage(bank, -5, -1), inside=[fields], ended="killed")

    assert counted(open_run(run)) == [(None, "s", 1, 4)]


def test_equal_pids_on_two_hosts_are_two_processes(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    for host in ("a", "b"):
        ProcessFiles(run, 7, rank=None, host=host).seal(stage(BankFiles(), 0, 10))

    assert counted(open_run(run)) == [(None, "s", 1, 10)] * 2


def test_ranks_are_laid_side_by_side_in_order_of_first_begin(tmp_path: Path) -> None:
    first = stage(BankFiles(), 0, 1, "z", step=0)
    for n in range(1, 101):
        stage(first, 1_000 * n, 1_000 * n + n, "a", step=n)
    run = run_of(tmp_path, first, stage(BankFiles(), 0, 3, "a", step=0))

    table = stages.by_process(run.occurrences()).select(
        "stage", "rank", "count", "total_ns", "mean_ns", "p50_ns", "p99_ns"
    )

    assert table.rows() == [
        ("a", 0, 100, 5050, 50.5, 51.0, 99.0),
        ("a", 1, 1, 3, 3.0, 3.0, 3.0),
        ("z", 0, 1, 1, 1.0, 1.0, 1.0),
    ]


def steps_of(run: Run, *columns: str) -> list[Any]:
    return stages.by_process(run.occurrences()).select("stage", "rank", *columns).rows()  # type: ignore[no-any-return]


def test_the_slowest_is_who_takes_longest_a_step_and_not_whose_occurrences_are_long(tmp_path: Path) -> None:
    few, many = BankFiles(), BankFiles()
    for step in range(2):
        stage(few, 1000 * step, 1000 * step + 10, step=step)
        for n in range(5):
            stage(many, 1000 * step + 10 * n, 1000 * step + 10 * n + 6, step=step)
    run = run_of(tmp_path, few, many)

    assert steps_of(run, "steps", "step_ns", "step_count", "mean_ns") == [
        ("s", 1, 2, 30.0, 5.0, 6.0),
        ("s", 0, 2, 10.0, 1.0, 10.0),
    ]


def test_time_a_step_is_the_union_and_the_mean_over_the_steps_with_the_stage(tmp_path: Path) -> None:
    bank = stage(stage(BankFiles(), 0, 10, step=0), 5, 12, step=0, track=1)
    run = run_of(tmp_path, stage(stage(bank, 100, 102, step=7), 90, 95, "t", step=3))

    assert steps_of(run, "steps", "step_ns") == [("s", 0, 2, 7.0), ("t", 0, 1, 5.0)]


def test_what_is_in_no_step_does_not_count_where_others_are_in_one(tmp_path: Path) -> None:
    both = stage(stage(BankFiles(), 0, 900), 1000, 1001, step=0)
    run = run_of(tmp_path, both, stage(BankFiles(), 0, 5), stage(BankFiles(), 0, 3, step=0))

    assert steps_of(run, "steps", "step_ns", "stepless") == [
        ("s", 2, 1, 3.0, 0),
        ("s", 0, 1, 1.0, 1),
        ("s", 1, None, None, 1),
    ]


def test_where_nobody_counts_steps_the_run_is_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, stage(stage(BankFiles(), 0, 10), 20, 30), stage(BankFiles(), 0, 25))

    assert steps_of(run, "steps", "step_ns", "step_count") == [("s", 1, 0, 25.0, None), ("s", 0, 0, 20.0, None)]


def test_suspects_and_report_compare_by_the_same_figures(tmp_path: Path) -> None:
    bank = stage(stage(stage(BankFiles(), 0, 10, step=0), 20, 26, step=1), 5, 17, step=0, track=1)
    run = run_of(tmp_path, bank, stage(BankFiles(), 0, 3, step=0))

    of_ranks = stages.per_step(run.stages(), "rank").select("rank", "steps", "step_ns").rows()

    assert of_ranks == [row[1:] for row in steps_of(run, "steps", "step_ns")]


def test_work_has_the_time_of_one_of_it(tmp_path: Path) -> None:
    bank = stage(stage(BankFiles(), 0, 10, tokens=4, prompts=2), 5, 15, track=1, tokens=1)
    stage(stage(bank, 100, 200, tokens="many"), 300, 400, tokens=0)
    run = run_of(tmp_path, bank)

    assert steps_of(run, "tokens", "token_ns", "prompts", "prompt_ns") == [("s", 0, 5.0, 3.0, 2.0, 5.0)]


def test_the_middle_of_two_is_the_faster_one() -> None:
    assert [stages.find_middle(count) for count in (1, 2, 3, 4, 5)] == [0, 1, 1, 2, 2]


def test_endings_name_the_innermost_range_of_each_track_the_latest_first(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    places = [("outer", 0, 0, 100), ("inner", 0, 1, 200), ("other", 1, 0, 300)]
    inside = [{"name": n, "domain": "d", "track": t, "depth": d, "start": s, "step": 4} for n, t, d, s in places]
    killed = ProcessFiles(run, 1, rank=0)
    killed.heartbeat_ns = 20_000_000_000
    killed.seal(inside=inside, ended="killed")
    ProcessFiles(run, 2, rank=1).seal(inside=inside, ended="exit")
    opened = open_run(run)

    table = stages.find_endings(opened.processes(), opened.open_ranges()).select(
        "row", "name", "track", "step", "open_ns"
    )

    assert table.rows() == [(0, "other", 1, 4, 20_000_000_000 - 300), (0, "inner", 0, 4, 20_000_000_000 - 200)]
