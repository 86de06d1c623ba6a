"""A capture that recorded nothing is a failure that is told: by the table, the report, and `status`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.escalated_run import left, run_of, say, session

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("rich")
typer_testing = pytest.importorskip("typer.testing")

from builders.shown_report import shown  # noqa: E402

import mstxkit.cli  # noqa: E402
from mstxkit.reading.report import gaps  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.store.report import Report  # noqa: E402

WHY = "its range was not recorded: x.pt.trace.json holds events, and none of them is actor_update"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Ranks 1 and 2 were asked; rank 1 recorded nothing of the stage."""
    run = run_of(tmp_path / "run")
    request = left(run, ranks=[1, 2])
    session(run, request.id, rank=1, state="failed", problems=[WHY], output=None)
    session(run, request.id, rank=2)
    say(run, 1, Report(request.id, 1, "failed", reason=f"{WHY}; 0 of 1 steps recorded"))
    say(run, 2, Report(request.id, 2, "done", recorded=1))
    return run


def printed(failures: list[dict[str, Any]]) -> str:
    return shown(*gaps.lines_of_profiles(failures))


def test_the_report_says_which_profile_did_not_come_and_why(run: Path) -> None:
    failures = gaps.failed_profiles(open_run(run))

    assert [(failure["state"], failure["stage"], failure["ranks"]) for failure in failures] == [
        ("failed", "actor_update", [1])
    ]
    assert f"Profile of actor_update on rank 1 failed: {WHY}" in " ".join(printed(failures).split())


def test_status_and_the_table_say_the_same(run: Path) -> None:
    shown = typer_testing.CliRunner().invoke(
        mstxkit.cli.build_application(), ["status", str(run)], env={"COLUMNS": "400"}
    )
    rows = {row["rank"]: row for row in open_run(run).escalations().to_dicts()}

    assert (rows[1]["state"], rows[2]["state"]) == ("failed", "done")
    assert WHY in rows[1]["reason"]
    assert WHY in " ".join(shown.output.split())


def test_where_all_came_nothing_is_said(tmp_path: Path) -> None:
    assert printed(gaps.failed_profiles(open_run(run_of(tmp_path / "run")))) == ""


def test_ranks_with_the_same_reason_are_one_line_and_hostile_words_are_escaped() -> None:
    failure = {"request": "ab", "stage": "a\x1b[31m", "state": "failed", "reason": "x\x07" * 900, "ranks": [*range(40)]}
    text = printed([failure])

    assert "\x1b[31m" not in text.replace("\x1b[0m", "")
    assert "\x07" not in text
    assert "on ranks 0, 1, 2, 3, 4, 5, 6, 7 and 32 more" in " ".join(text.split())
