"""Runs that no tool may trip over: names of any kind, doubled and missing ranks, clocks far apart, odd durations."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

from builders.run_files import BankFiles, ProcessFiles, anchor

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


# Each makes it in the folder of a new run, and returns how many ranges that is.
CASES: tuple[Callable[[Path], int], ...] = (
    names, doubled_and_missing_ranks, clocks_an_hour_apart, no_time_at_all, one_range, nothing,
)  # fmt: skip


def _sealed(run: Path) -> Path:
    bank = BankFiles()
    for step in range(30):
        bank.range("a", 1000 * step, 1000 * step + 500, stage="a", own=True, step=step)
    ProcessFiles(run, 100, rank=0).seal(bank)
    return ProcessFiles(run, 101, rank=1).seal(bank)


def cut(run: Path) -> str:
    file = _sealed(run)
    file.write_bytes(file.read_bytes()[:-7])
    return file.name


def altered(run: Path) -> str:
    file = _sealed(run)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x55
    file.write_bytes(content)
    return file.name


def foreign(run: Path) -> str:
    _sealed(run)
    (run / "sealed" / "notes.mxs").write_text("not ours, and long enough to have a header")
    return "notes.mxs"


def not_readable(run: Path) -> str:
    """By others than root."""
    file = _sealed(run)
    file.chmod(0)
    return file.name


# Each makes one of two ranks that cannot be read, and returns its file's name.
DAMAGED: tuple[Callable[[Path], str], ...] = (cut, altered, foreign, not_readable)
