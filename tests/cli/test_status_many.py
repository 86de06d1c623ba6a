"""`mstxkit status RUN` of a thousand processes: those with troubles by name, the rest counted."""

from __future__ import annotations

import io
import re
import time
from typing import Any

import pytest

rich_console = pytest.importorskip("rich.console")
pytest.importorskip("polars")

from mstxkit.cli import _ranks  # noqa: E402


def process(rank: int, **fields: Any) -> dict[str, Any]:
    return {
        "rank": rank, "label": f"rank {rank}", "host": f"n{rank // 8}", "pid": 100 + rank, "role": "actor",
        "part": "trainer", "state": "running", "ending": "", "dropped": 0, "faults": 0, "clock": "tsc",
        "clock_error_ns": 90, "last_seen_ns": time.time_ns() - 10**9, **fields,
    }  # fmt: skip


def shown(known: list[dict[str, Any]]) -> str:
    console = rich_console.Console(file=io.StringIO(), width=200)
    console.print(_ranks.tabulate_processes(known))
    return "\n".join(" ".join(line.split()) for line in console.file.getvalue().splitlines())


def test_few_have_a_line_each() -> None:
    assert len(shown([process(rank) for rank in range(16)]).splitlines()) == 17


def test_many_are_counted_by_what_they_are_and_how() -> None:
    loaders = [process(rank, part=f"dataloader {rank % 4}") for rank in range(100)]
    text = shown([*(process(rank) for rank in range(1000)), *loaders])

    assert len(text.splitlines()) == 3
    assert "1000 × trainer 125 hosts running" in text
    assert "100 × dataloader 13 hosts running" in text


def test_those_with_troubles_are_named() -> None:
    known = [process(rank) for rank in range(1000)]
    known[17].update(state="killed", ending="SIGKILL")
    known[400].update(dropped=7)
    text = shown(known)

    assert "rank 17 n2 117 killed SIGKILL" in text
    assert re.search(r"rank 400 n50 500 running [0-9.]+ s ago 7 ", text)
    assert "998 × trainer" in text


def test_of_many_with_troubles_the_first_are_named_and_none_is_left_out() -> None:
    text = shown([process(rank, state="killed", faults=2) for rank in range(1000)])

    assert len(text.splitlines()) == 18
    assert "984 × trainer 123 hosts killed" in text
    assert " 1968" in text
