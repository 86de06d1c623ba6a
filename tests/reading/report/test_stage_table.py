"""The report is whole at 80 columns, with 16 ranks and with 1,024, with long names of stages, roles and ranges."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("rich")

from builders import shown_report

from mstxkit.reading.report.number_table import PlainTable
from mstxkit.reading.report.summary import summarise_run
from mstxkit.reading.run import open_run

printed = partial(shown_report.printed, columns=80)

MILLISECOND = 1_000_000
STAGES = ("actor_generate", "reference_compute_log_prob", "somebodys_stage_of_a_really_long_name_indeed")
COLUMNS = ["a step", "share", "a step", "middle", "mean", "p99"]


def bank_of(rank: int, **attributes: Any) -> BankFiles:
    bank = BankFiles()
    for step in range(2):
        for place, key in enumerate(STAGES):
            begin = (10_000 * step + 1000 * place) * MILLISECOND
            for name in ("a.module.with:ALongName.of_a_method_called", "b", "c", "d", "e"):
                bank.range(name, begin, begin + MILLISECOND, stage=key, step=step, depth=1)
            end = begin + (500 + rank % 7) * MILLISECOND
            bank.range(key, begin, end, stage=key, own=True, step=step, **attributes)
    return bank


def run_of(path: Path, ranks: int, role: str | None = None, **attributes: Any) -> dict[str, Any]:
    run = new_run(path / "run")
    for rank in range(ranks):
        ProcessFiles(run, 10_000 + rank, rank=rank, role=role).seal(bank_of(rank, **attributes))
    return summarise_run(open_run(run))


@pytest.mark.parametrize("role", [None, "a_role_of_a_really_long_name"])
@pytest.mark.parametrize("attributes", [{}, {"tokens": 1000}], ids=str)
@pytest.mark.parametrize("ranks", [1, 2, 16])
def test_at_80_columns_no_column_is_cut_and_no_name(
    tmp_path: Path, ranks: int, role: str | None, attributes: dict[str, Any]
) -> None:
    text = printed(run_of(tmp_path, ranks, role, **attributes))
    lines = text.splitlines()

    assert max(map(len, lines)) <= 80
    header = next(line for line in lines if line.startswith("ranks, slowest first"))
    assert re.split(r"\s\s+", header.strip())[1:] == [*COLUMNS, "tokens"][: len(COLUMNS) + bool(attributes)]
    for line in (line for line in lines if " %" in line and line.startswith("  rank")):
        assert len(re.findall(r"\d+(?:\.\d+)? m?s\b", line)) == 3 + bool(attributes)
    for name in STAGES:
        assert name in "".join(re.split(r"\s\s+", line.strip())[0] for line in lines)


def test_columns_stand_closer_where_names_are_whole_then() -> None:
    name = "reference_compute_log_prob"
    table = PlainTable("stage", *["time"] * 7, right=["time"])
    table.add_row(name, *["123 ms"] * 7)

    assert shown_report.shown(table, columns=80).splitlines()[1].split() == [name, *["123", "ms"] * 7]


def test_a_thousand_ranks_are_as_many_lines_as_sixteen(tmp_path: Path) -> None:
    for name in ("few", "all"):  # of one length: the report begins with where the run is
        (tmp_path / name).mkdir()
    few, many = printed(run_of(tmp_path / "few", 16)), printed(run_of(tmp_path / "all", 1024))

    assert len(many.splitlines()) == len(few.splitlines())
    assert many.count("… 1019 faster (--all)") == len(STAGES)
    assert max(map(len, many.splitlines())) <= 80


def test_all_ranks_and_ranges_are_listed_if_asked_for(tmp_path: Path) -> None:
    text = printed(run_of(tmp_path, 16), everything=True)

    assert "…" not in text
    assert text.count("  rank 15 ") == len(STAGES)
    assert len(re.findall("^  e ", text, re.MULTILINE)) == len(STAGES)


def test_of_each_stage_the_longest_ranges_are_shown_and_how_to_see_the_others(tmp_path: Path) -> None:
    summary = run_of(tmp_path, 1)

    assert printed(summary).count("… 2 shorter (--ranges 5)") == len(STAGES)
    assert "shorter" not in printed(summary, top=5)


def test_without_any_stage_the_ranges_themselves_are_shown(tmp_path: Path) -> None:
    run, bank = new_run(tmp_path / "run"), BankFiles()
    for n in range(20):
        bank.range("f", 20 * n * MILLISECOND, (20 * n + 10) * MILLISECOND)
    ProcessFiles(run).seal(bank)

    lines = printed(summarise_run(open_run(run))).splitlines()

    assert "No step was counted: times are of the whole run." in lines
    (f,) = (line.split() for line in lines if line.startswith("  f "))
    assert f == ["f", "200", "ms", "20", "10.0", "ms", "10.0", "ms"]


def test_time_of_work_stands_beside_it(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    of_tokens, of_prompts = run_of(tmp_path, 2, tokens=250), run_of(tmp_path / "b", 2, prompts=10)

    assert "per 1k" in printed(of_tokens)
    assert printed(of_tokens).count("2.00 s") >= len(STAGES)
    assert printed(of_prompts).count("50.0 ms") >= len(STAGES)


def test_what_is_in_no_step_is_said_and_not_mixed_in(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    stage = {"stage": "reward", "own": True}
    bank = BankFiles().range("r", 0, 5 * MILLISECOND, step=0, **stage).range("r", 10**8, 9 * 10**8, **stage)
    ProcessFiles(run, 1, rank=0).seal(bank)
    ProcessFiles(run, 2, rank=1).seal(BankFiles().range("r", 0, 7 * MILLISECOND, **stage))

    text = printed(summarise_run(open_run(run)))

    assert "reward: 2 of its 3 occurrences are in no step, and not in its time a step" in " ".join(text.split())
    assert re.search(r"^  rank 0 +5.00 ms ", text, re.MULTILINE)
    assert re.search(r"^  rank 1 +– +– +– ", text, re.MULTILINE)


def test_an_empty_run_says_so(tmp_path: Path) -> None:
    assert "No range has ended." in printed(summarise_run(open_run(new_run(tmp_path / "run"))))


def test_where_a_trainer_says_what_a_step_is_the_step_is_that(tmp_path: Path) -> None:
    """Others do only a part of it, and the trainer has steps in which it only begins."""
    run, trainer, worker = new_run(tmp_path / "run"), BankFiles(), BankFiles()
    trainer.range("a", 0, MILLISECOND, step=0, depth=1)
    for step, begin in ((1, 100 * MILLISECOND), (2, 200 * MILLISECOND)):
        trainer.range("train_step", begin, begin + 90 * MILLISECOND, stage="train_step", own=True, step=step)
        worker.range("reward", begin, begin + MILLISECOND, stage="reward", own=True, step=step)
    ProcessFiles(run, 10_000, role="trainer").seal(trainer)
    ProcessFiles(run, 10_001, role="reward").seal(worker)

    text = printed(summarise_run(open_run(run)))

    assert "A step takes 95.0 ms in rank 0 trainer, the mean of 2" in text


def test_ranges_that_overlap_say_how_many_at_once(tmp_path: Path) -> None:
    run, bank = new_run(tmp_path / "run"), BankFiles()
    bank.range("reward", 0, MILLISECOND, stage="reward", own=True, step=0)
    for _ in range(3):
        bank.range("score", 0, MILLISECOND, stage="reward", step=0, depth=1)
    ProcessFiles(run, 10_000).seal(bank)

    text = printed(summarise_run(open_run(run)))

    assert "3 at once" in text and "300 %" not in text
