"""The report says for each stage what the driver waited, what workers were busy with it, and where the rest went."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("rich")

from builders import shown_report

from mstxkit.reading.report.choice import EVERYTHING, Bounds, ReportChoice
from mstxkit.reading.report.summary import summarise_run
from mstxkit.reading.run import open_run

printed = partial(shown_report.printed, columns=200)

MILLISECOND = 1_000_000


def wait(bank: BankFiles, start_ms: int, end_ms: int, step: int | None, stage: str = "gen", **more: Any) -> BankFiles:
    times = start_ms * MILLISECOND, end_ms * MILLISECOND
    return bank.range(stage, *times, stage=stage, own=True, step=step, waits_for="workers", **more)


def work(start_ms: int, end_ms: int, step: int | None = 1, stage: str = "gen") -> BankFiles:
    return BankFiles().range(stage, start_ms * MILLISECOND, end_ms * MILLISECOND, stage=stage, own=True, step=step)


def driver(run: Path, bank: BankFiles, pid: int = 200, **more: Any) -> None:
    ProcessFiles(run, pid, rank=None, part="driver", under="ray driver", **more).seal(bank)


def test_it_tells_the_time_of_a_step_and_where_the_rest_lies(run: Path) -> None:
    driver(run, wait(wait(BankFiles(), 0, 2_300, 1), 3_000, 5_300, 2))
    early = work(200, 1_300).range("load", 1_300 * MILLISECOND, 2_000 * MILLISECOND)
    ProcessFiles(run).seal(early.range("gen", 3_200 * MILLISECOND, 4_300 * MILLISECOND, stage="gen", own=True, step=2))

    assert (
        "gen: driver waited 2.30 s, workers were busy 1.10 s, unaccounted 1.20 s "
        "(200 ms before they began, 1.00 s after they ended; in it load 350 ms)"
    ) in printed(summarise_run(open_run(run)))


def test_what_is_waited_before_the_first_step_is_in_no_step(run: Path) -> None:
    """As for the validation that a training begins with. Where a stage is in no step at all, it is told."""
    waits = wait(wait(wait(BankFiles(), 0, 9_000, None), 9_000, 9_500, None, "val"), 10_000, 12_300, 1)
    workers = work(9_100, 9_400, None, "val").range("before", MILLISECOND, 9_000 * MILLISECOND)
    driver(run, waits)
    ProcessFiles(run).seal(workers.range("gen", 10**10 + 200 * MILLISECOND, 12 * 10**9, stage="gen", own=True, step=1))
    opened = open_run(run)

    told = printed(summarise_run(opened))

    assert "gen: driver waited 2.30 s, workers were busy 1.80 s, unaccounted 500 ms (200 ms before they began" in told
    assert "val: driver waited 500 ms, workers were busy 300 ms" in told and "before 9" not in told
    assert opened.resharding().select("step", "stage", "cost_ns").rows() == [
        (1, "gen", 500 * MILLISECOND), (None, "val", 200 * MILLISECOND)
    ]  # fmt: skip


def test_a_single_step_can_be_asked_for(run: Path) -> None:
    driver(run, wait(wait(BankFiles(), 0, 100, 1), 200, 500, 2))
    ProcessFiles(run).seal(work(0, 100))

    (entry,) = summarise_run(open_run(run), ReportChoice(steps=Bounds(2, 2)))["waits"]

    assert (entry["steps"], entry["waited_ns"], entry["busy_ns"]) == (1, 300 * MILLISECOND, 0)


@pytest.mark.parametrize(
    ("choice", "count"), [(ReportChoice(stages=("gen",)), 1), (ReportChoice(stages=("w*",)), 0), (EVERYTHING, 1)]
)
def test_stages_can_be_chosen(run: Path, choice: ReportChoice, count: int) -> None:
    driver(run, wait(BankFiles(), 0, 100, 1))
    ProcessFiles(run).seal(work(0, 100, stage="warm"))

    assert len(summarise_run(open_run(run), choice)["waits"]) == count


def test_where_ranks_are_chosen_nobody_waits_who_is_none(run: Path) -> None:
    driver(run, wait(BankFiles(), 0, 100, 1))
    ProcessFiles(run, rank=0).seal(work(0, 100))

    assert summarise_run(open_run(run), ReportChoice(ranks=(Bounds(0, 0),)))["waits"] == []


def test_without_steps_it_tells_all_time(run: Path) -> None:
    driver(run, wait(wait(BankFiles(), 0, 100, None), 200, 300, None))
    ProcessFiles(run).seal(work(0, 300, None))

    text = printed(summarise_run(open_run(run)))

    assert "Driver and workers\ngen: driver waited 200 ms, workers were busy 200 ms, unaccounted 0 ns\n" in text


def test_several_drivers_are_named(run: Path) -> None:
    for pid, role in ((200, "trainer"), (201, "rollouter")):
        driver(run, wait(BankFiles(), 0, 100, 1), pid, role=role)

    text = printed(summarise_run(open_run(run)))

    assert "gen: driver rollouter driver waited 100 ms" in text and "gen: driver trainer driver waited 100 ms" in text


def test_no_rank_is_slow_because_a_driver_waits(run: Path) -> None:
    driver(run, wait(BankFiles(), 0, 9_000, 1))
    for rank in range(2):
        ProcessFiles(run, 100 + rank, rank=rank).seal(work(0, 100 + rank))

    (stage,) = summarise_run(open_run(run))["stages"]

    assert (stage["count"], stage["total_ns"], stage["slowest"]["rank"]) == (2, 201 * MILLISECOND, 1)


def test_what_it_shows_is_plain_and_safe(run: Path) -> None:
    driver(run, wait(BankFiles(), 0, 100, 1, "\x1b[31mgen[/]"))
    ProcessFiles(run).seal(BankFiles().range("\x1b]0;x", 0, 100 * MILLISECOND))
    summary = summarise_run(open_run(run))

    assert json.loads(json.dumps(summary))["waits"][0]["stage"] == "\x1b[31mgen[/]"
    assert "\x1b" not in printed(summary)


def test_a_run_without_waits_says_nothing_of_them(run: Path) -> None:
    ProcessFiles(run).seal(work(0, 100))
    summary = summarise_run(open_run(run))

    assert summary["waits"] == [] and "Driver" not in printed(summary)
