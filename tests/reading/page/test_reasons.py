"""Where a section of the page has nothing to draw, it says why: what this run has not, and nothing that it has."""

from __future__ import annotations

import random
import re
from html import unescape
from pathlib import Path

import pytest

pytest.importorskip("polars")

from builders.run_files import BankFiles, ProcessFiles, new_run
from builders.simulated_runs import recorded_job

from mstxkit.reading.page import writing
from mstxkit.reading.report import summary as summaries
from mstxkit.reading.run import open_run
from mstxkit.testing.simulator import JobShape

MS = 1_000_000
NO_WORK = "says how much work it did"


def sections(path: Path) -> dict[str, str]:
    """The text of each section of a run's page, by its key."""
    run = open_run(path)
    page = writing.make_page(run, summaries.summarise_run(run), path.parent)
    found = re.findall(r'<section id="(\w+)" [^>]*>(.*?)</section>', page, re.DOTALL)
    return {key: unescape(re.sub(r"<[^>]+>", " ", body)) for key, body in found}


def left_together(path: Path, ranks: int = 4, steps: int = 40) -> Path:
    """Ranks that come to generate one by one, and leave it together; each step says its tokens."""
    run, chance, banks, now = new_run(path), random.Random(1), [BankFiles() for _ in range(ranks)], 0
    for step in range(steps):
        came = [now + int(chance.uniform(0, 30) * MS) for _ in banks]
        end = max(came) + 100 * MS
        for bank, begin in zip(banks, came):
            left = end + int(chance.uniform(0, 0.1) * MS)
            bank.range("generate", begin, left, stage="generate", own=True, step=step, tokens=1000)
        now = end + MS
    for rank, bank in enumerate(banks):
        ProcessFiles(run, 100 + rank, rank=rank).seal(bank)
    return path


def worked(path: Path, **attributes: float) -> Path:
    """Two ranks that work by themselves, in a stage that is not generation."""
    run = new_run(path)
    for rank in range(2):
        bank = BankFiles()
        for step in range(30):
            begin = step * 1000 * MS
            bank.range("w", begin, begin + (100 + rank) * MS, stage="work", own=True, step=step, **attributes)
        ProcessFiles(run, 100 + rank, rank=rank).seal(bank)
    return path


def test_ranks_that_leave_together_have_no_tail_though_their_work_is_known(tmp_path: Path) -> None:
    said = sections(left_together(tmp_path / "run"))

    assert NO_WORK not in said["tail"]
    assert "leave actor_generate together" in said["tail"]
    assert "generate" in said["rate"]


def test_work_that_is_not_told_is_the_reason_only_where_it_is(tmp_path: Path) -> None:
    silent, telling = sections(worked(tmp_path / "silent")), sections(worked(tmp_path / "telling", tokens=100))

    assert NO_WORK in silent["tail"]
    assert "No stage says how many tokens" in silent["rate"]
    assert "In work the last rank goes on" in telling["tail"]
    assert "of generation" not in telling["tail"]


def test_a_rank_alone_is_compared_with_nobody(tmp_path: Path) -> None:
    said = sections(recorded_job(tmp_path / "run", JobShape(ranks=1), steps=30))

    for key in ("who", "tail"):
        assert "There are no two ranks to compare." in said[key], key
        assert "beyond chance" not in said[key]
        assert NO_WORK not in said[key]
    assert "Heat map" not in said["who"]
    assert "no step" not in said["saves"]
    assert "There are no two ranks" in said["saves"]


def test_a_run_of_nothing_has_no_step(tmp_path: Path) -> None:
    said = sections(new_run(tmp_path / "run"))

    for key in ("steps", "who", "tail", "rate", "saves"):
        assert "No step was counted" in said[key], key
        assert "beyond chance" not in said[key]
