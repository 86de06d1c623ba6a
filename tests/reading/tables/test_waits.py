"""What a controller waits for is no work: no rank's, in no total; and beside it is what its workers did meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.errors import ReadError  # noqa: E402
from mstxkit.reading.run import Run, open_run  # noqa: E402
from mstxkit.reading.suspects import find_slowest  # noqa: E402
from mstxkit.reading.tables import waits  # noqa: E402

FIGURES = (
    "step", "stage", "count", "waited_ns", "busy_ns", "unaccounted_ns", "before_ns", "between_ns", "after_ns",
    "slowest", "slowest_ns",
)  # fmt: skip
# Rows of the table of processes: those that have a rank come first.
DRIVER = 2


def work(bank: BankFiles, start: int, end: int, key: str = "gen", **fields: Any) -> BankFiles:
    return bank.range(key, start, end, stage=key, own=True, **fields)


def wait(bank: BankFiles, start: int, end: int, key: str = "gen", **fields: Any) -> BankFiles:
    return work(bank, start, end, key, waits_for="workers", **fields)


def run_of(path: Path, driver: BankFiles, *workers: BankFiles, rank: int | None = None) -> Run:
    run = new_run(path / "run")
    for worker, bank in enumerate(workers):
        ProcessFiles(run, 100 + worker, rank=worker, part="trainer").seal(bank)
    ProcessFiles(run, 200, rank=rank, part="TaskRunner", under="ray", role="trainer").seal(driver)
    return open_run(run)


def figures(run: Run) -> list[Any]:
    return run.waits().select(FIGURES).rows()  # type: ignore[no-any-return]


def test_the_rest_lies_before_between_and_after_the_time_that_any_worker_was_busy(tmp_path: Path) -> None:
    first = work(work(BankFiles(), 10, 30, step=1), 50, 60, step=1)
    run = run_of(tmp_path, wait(BankFiles(), 0, 100, step=1), first, work(BankFiles(), 20, 45, step=1))

    assert figures(run) == [(1, "gen", 1, 100, 45, 55, 10, 5, 40, 0, 30)]


def test_only_what_lies_inside_of_the_wait_counts(tmp_path: Path) -> None:
    run = run_of(tmp_path, wait(BankFiles(), 100, 200), work(BankFiles(), 50, 150), work(BankFiles(), 150, 900))

    assert figures(run) == [(None, "gen", 1, 100, 100, 0, 0, 0, 0, 0, 50)]


def test_each_step_has_its_own_row_also_where_the_waits_of_two_overlap(tmp_path: Path) -> None:
    driver = wait(wait(BankFiles(), 0, 100, step=0, track=1), 60, 160, step=1, track=2)
    run = run_of(tmp_path, driver, work(BankFiles(), 50, 80))

    assert figures(run) == [
        (0, "gen", 1, 100, 30, 70, 50, 0, 20, 0, 30),
        (1, "gen", 1, 100, 20, 80, 0, 0, 80, 0, 20),
    ]


def test_other_stages_of_workers_are_not_what_is_waited_for(tmp_path: Path) -> None:
    run = run_of(tmp_path, wait(BankFiles(), 0, 100), work(work(BankFiles(), 0, 40, "weight_sync"), 40, 60))

    assert figures(run) == [(None, "gen", 1, 100, 20, 80, 40, 0, 40, 0, 20)]


def test_where_no_worker_has_that_stage_all_of_theirs_count(tmp_path: Path) -> None:
    run = run_of(tmp_path, wait(BankFiles(), 0, 100, "evaluate"), work(BankFiles(), 10, 70))

    assert figures(run) == [(None, "evaluate", 1, 100, 60, 40, 10, 0, 30, 0, 60)]


def test_where_nobody_did_anything_all_is_unaccounted(tmp_path: Path) -> None:
    run = run_of(tmp_path, wait(BankFiles(), 0, 100), work(BankFiles(), 500, 600))

    assert figures(run) == [(None, "gen", 1, 100, 0, 100, 0, 100, 0, None, 0)]


def test_waits_that_nest_or_run_beside_each_other_count_once(tmp_path: Path) -> None:
    driver = wait(wait(wait(BankFiles(), 10, 20, depth=1), 0, 100), 90, 120, track=1)

    assert figures(run_of(tmp_path, driver))[0][2:5] == (2, 120, 0)


def test_what_the_controller_computes_in_that_stage_is_not_its_workers(tmp_path: Path) -> None:
    run = run_of(tmp_path, work(wait(BankFiles(), 0, 100), 20, 50, depth=1), work(BankFiles(), 60, 70))

    assert figures(run) == [(None, "gen", 1, 100, 10, 90, 60, 0, 30, 0, 10)]


def test_a_wait_is_no_ranks_and_its_part_is_driver_also_where_the_process_has_a_rank(tmp_path: Path) -> None:
    run = run_of(tmp_path, work(wait(BankFiles(), 0, 100), 200, 230, "adv"), work(BankFiles(), 0, 10), rank=1)

    assert run.stages().select("stage", "rank", "part", "waits_for", "total_ns").rows() == [
        ("adv", 1, "TaskRunner", None, 30),
        ("gen", 0, "trainer", None, 10),
        ("gen", None, "driver", "workers", 100),
    ]


def test_so_it_is_in_the_table_of_ranges_too_with_its_attribute(tmp_path: Path) -> None:
    """A text in which a user writes of it is none."""
    driver = wait(BankFiles(), 0, 100).range("init", 0, 5, waits_for="workers").range("x", 6, 7, note='"waits_for":1')
    run = run_of(tmp_path, driver, BankFiles(), rank=1)

    assert run.ranges().select("name", "rank", "part", "pid").rows() == [
        ("gen", None, "driver", 200),
        ("init", None, "driver", 200),
        ("x", 1, "TaskRunner", 200),
    ]


def test_work_and_waits_of_one_process_in_one_stage_are_two_rows(tmp_path: Path) -> None:
    run = run_of(tmp_path, work(wait(BankFiles(), 0, 100, step=0), 50, 120, step=0))

    assert run.stages().select("count", "total_ns", "waits_for").rows() == [(1, 70, None), (1, 100, "workers")]


def test_a_controller_that_waits_is_never_suspected(tmp_path: Path) -> None:
    driver = wait(BankFiles(), 0, 1_000, step=0)
    run = run_of(tmp_path, driver, *(work(BankFiles(), 0, 10 + rank, step=0) for rank in range(2)), rank=7)

    found = find_slowest(run.stages(), {"actor_generate"})
    assert (found.suspect, found.peer, found.ranks) == (1, 0, 2)


def test_with_one_worker_nobody_is_suspected(tmp_path: Path) -> None:
    run = run_of(tmp_path, wait(BankFiles(), 0, 1_000, step=0), work(BankFiles(), 0, 10, step=0), rank=7)

    with pytest.raises(ReadError, match="fewer than two ranks"):
        find_slowest(run.stages(), {"actor_generate"})


def test_other_ranges_tell_of_the_rest(tmp_path: Path) -> None:
    """Workers' outermost ones, and what the controller did inside of its wait; not what holds the wait itself."""
    driver = wait(BankFiles().range("pack", 5, 15, depth=2), 0, 100, depth=1).range("step", 0, 300, stage="gen")
    first = work(BankFiles(), 40, 60).range("load", 10, 40).range("inner", 10, 40, depth=1)
    run = run_of(tmp_path, driver, first, BankFiles().range("load", 30, 70))

    told = waits.measure_meanwhile(run.files)[DRIVER, "gen"]

    assert told == [{"name": "load", "ns": 40, "processes": 2}, {"name": "pack", "ns": 10, "processes": 1}]


def test_a_run_without_waits_has_an_empty_table_with_all_columns(tmp_path: Path) -> None:
    run = run_of(tmp_path, BankFiles(), work(BankFiles(), 0, 10))

    assert run.waits().columns == ["step", "stage", "process", "host", "pid", "role", *FIGURES[2:]]
    assert run.waits().height == 0 and waits.measure_meanwhile(run.files) == {}


def test_of_very_many_names_those_with_most_time_tell(tmp_path: Path) -> None:
    worker = BankFiles()
    for number in range(30):
        worker.range(f"load {number:02}", 100 * number, 100 * number + number + 1)
    run = run_of(tmp_path, wait(BankFiles(), 0, 3_000), worker)

    names = [other["name"] for other in waits.measure_meanwhile(run.files)[1, "gen"]]

    assert names == [f"load {number:02}" for number in range(29, 9, -1)]
