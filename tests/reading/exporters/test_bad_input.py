"""What no exporter may trip over: names of any kind, doubled and missing ranks, clocks far apart, odd durations."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest
from builders.run_files import BankFiles, ProcessFiles, anchor, new_run

pytest.importorskip("polars")

from mstxkit.reading import exporters
from mstxkit.reading.exporters import FOLDER, load
from mstxkit.reading.run import open_run

NAMES = (
    "<script>alert(1)</script>", "'; drop table MSTX_EVENTS; --", "\x1b[31mred\x1b[0m", "\u202eright to left",
    "\U0001f680", "生成", "\x00\x01", "=1+1", "n" * 10_000_000,
)  # fmt: skip
HOUR_NS = 3_600_000_000_000


def names(run: Path) -> int:
    bank = BankFiles()
    for at, name in enumerate(NAMES):
        bank.range(name, 1000 * at, 1000 * at + 500, step=at, stage=name[:20], domain=name[:20])
    ProcessFiles(run, 100, rank=0, role="<b>\x1b[31m生").seal(bank)
    return len(NAMES)


def doubled_and_missing_ranks(run: Path) -> int:
    for pid, rank in enumerate([0, 0, 7, None]):
        ProcessFiles(run, 100 + pid, rank=rank).seal(BankFiles().range("a", 0, 500))
    return 4


def clocks_an_hour_apart(run: Path) -> int:
    for rank in range(2):
        anchors = tuple(anchor(ticks, offset_ns=10**18 + rank * HOUR_NS) for ticks in (0, 10**9))
        files = ProcessFiles(run, 100 + rank, rank=rank, host=f"host{rank}", anchors=anchors)
        files.seal(BankFiles().range("a", 0, 500, stage="a", own=True, step=0))
    return 2


def no_time_at_all(run: Path) -> int:
    bank = BankFiles().range("outside", 500, 500).range("a", 500, 500, step=0).range("before its begin", 600, 500)
    ProcessFiles(run, 100, rank=0).seal(bank)
    return 3


def one_range(run: Path) -> int:
    ProcessFiles(run, 100, rank=0).seal(BankFiles().range("a", 0, 1))
    return 1


def nothing(run: Path) -> int:
    return 0


CASES = (names, doubled_and_missing_ranks, clocks_an_hour_apart, no_time_at_all, one_range, nothing)


@pytest.mark.parametrize("to", exporters.formats())
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.__name__))
def test_every_exporter_writes_all_of_it(tmp_path: Path, case: Callable[[Path], int], to: str) -> None:
    exporter, target = load(to), tmp_path / "out"
    run = new_run(tmp_path / "run")
    count = case(run)
    if exporter.form == FOLDER:
        target.mkdir()

    opened = open_run(run)
    written = exporter.write_to(opened, target)

    assert len(opened.ranges()) == count
    assert written >= count
    files = [target] if target.is_file() else [file for file in target.rglob("*") if file.is_file()]
    assert count == 0 or sum(file.stat().st_size for file in files) > 0
