"""`mstxkit top --once` of a run whose summaries blame nobody, or that has none: its own tables are judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.judged_runs import BEHIND, INPUT, NOBODY, recorded, stage_times
from typer.testing import CliRunner

pytest.importorskip("polars")

from mstxkit.cli import build_application


@pytest.mark.parametrize(
    ("fault", "has_ranges", "code", "words"),
    [
        (INPUT, False, 1, "rank 1 takes longer than the others in reference"),
        (BEHIND, True, 1, "rank 1 takes longer than the others inside of actor_update"),
        (BEHIND, False, 0, "healthy as far as is seen: nothing above"), (NOBODY, True, 0, "healthy: nothing above"),
    ],
)  # fmt: skip
def test_a_run_without_summaries_is_judged_by_its_tables(
    tmp_path: Path, fault: str, has_ranges: bool, code: int, words: str
) -> None:
    run = recorded(tmp_path / "run", stage_times(fault), around_collectives=has_ranges)

    done = CliRunner().invoke(build_application(), ["top", str(run), "--once"])
    document = json.loads(CliRunner().invoke(build_application(), ["top", str(run), "--once", "--json"]).stdout)

    assert done.exit_code == code, done.output
    assert words in done.output
    assert "from the run's own tables" in done.output
    assert document["by_tables"]
    assert [said["rank"] for said in document["verdicts"]] == [1] * code
    assert not list((run / "verdicts").glob("*.json*"))  # by which others would say that a job of no rank is over
