"""Verdicts of a run as a table: every column of the contract, as they were said last, and of what was asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.judged_runs import say, verdict

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.run import open_run  # noqa: E402

CONTRACT = [
    "time_ns", "step", "kind", "stage", "rank", "role", "since_step", "impact_ratio", "coverage_ratio", "confidence",
    "waits_for", "evidence", "next", "request",
]  # fmt: skip


def test_a_verdict_has_every_column_of_the_contract(run: Path) -> None:
    say(run, verdict())

    table = open_run(run).verdicts()

    assert table.columns == [*CONTRACT, "recurrence_ratio", "group", "withdrawn", "no_request"]
    row = table.row(0, named=True)
    assert (row["kind"], row["rank"], row["stage"], row["step"], row["since_step"]) == ("input", 1, "reference", 40, 3)
    assert (row["impact_ratio"], row["coverage_ratio"], row["confidence"], row["group"]) == (0.31, 0.9, 0.97, [0, 1])
    assert json.loads(row["evidence"]) == {"late_ms": 20.1}
    assert (row["role"], row["request"], row["withdrawn"]) == (None, None, None)


def test_a_run_that_nobody_judged_has_no_rows_and_the_same_types(run: Path) -> None:
    nothing = open_run(run).verdicts()
    say(run, verdict(evidence={}, next=""))

    assert nothing.height == 0
    assert nothing.schema == open_run(run).verdicts().schema


def test_each_verdict_is_there_once_as_it_was_said_last(run: Path) -> None:
    say(run, verdict(), verdict(id="other", time_ns=6_000, rank=3), verdict(time_ns=9_000, withdrawn="it recovered"))

    table = open_run(run).verdicts()

    assert table.select("rank", "withdrawn").rows() == [(3, None), (1, "it recovered")]


@pytest.mark.parametrize(
    ("chosen", "ranks"),
    [
        ({}, [1, 2, None]), ({"ranks": 2}, [2, None]), ({"steps": [7]}, [2]), ({"stages": "update_actor"}, [2, None]),
        ({"since": 6_000}, [2, None]), ({"until": 6_000}, [1]), ({"ranks": [1, 2], "steps": 40}, [1, None]),
    ],
)  # fmt: skip
def test_filters_of_the_run_are_those_of_its_verdicts(run: Path, chosen: dict[str, Any], ranks: list[Any]) -> None:
    """One of no rank or stage is of all of them."""
    say(run, verdict(), verdict(id="b", time_ns=7_000, step=7, rank=2, stage="actor_update"))
    say(run, verdict(id="c", time_ns=8_000, kind="all_slow", rank=None, stage=None))

    assert open_run(run, **chosen).verdicts()["rank"].to_list() == ranks


def test_what_somebody_else_wrote_is_no_row_and_never_an_error(run: Path) -> None:
    say(run, verdict())
    file = next((run / "verdicts").iterdir())
    file.write_bytes(b'{"id": 3}\n[]\n{"id":"x","kind":"blessed"}\n\xff\n' + file.read_bytes() + b'{"id": "half')
    os.symlink("/etc/passwd", run / "verdicts" / "linked.jsonl")

    opened = open_run(run)

    assert opened.verdicts()["rank"].to_list() == [1]
    assert [part.path.endswith("linked.jsonl") for part in opened.damage] == [True]
    assert opened.verdicts().height == 1
    assert len(opened.damage) == 1
