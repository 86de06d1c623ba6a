"""`mstxkit compare`: what it says first, what it ends with, and that the evidence comes before the end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders.judged_runs import INPUT, NOBODY, recorded, stage_times

pytest.importorskip("polars")

from builders.typed import typed


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    recorded(folder / "a", stage_times(NOBODY, ranks=4, seed=1))
    recorded(folder / "alike", stage_times(NOBODY, ranks=4, seed=2))
    recorded(folder / "slow", stage_times(INPUT, ranks=4, seed=3))
    recorded(folder / "short", stage_times(NOBODY, ranks=4, steps=3))
    return folder


def compare(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command, everything = [sys.executable, "-m", "mstxkit", "compare", *arguments], {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=everything, capture_output=True, text=True, timeout=60, check=False)


def test_the_evidence_is_shown_before_a_build_fails(runs: Path) -> None:
    done = compare(runs, "a", "slow", "--fail-over", "5%")

    assert done.returncode == 1
    assert "Slower: a step takes" in done.stdout and "first     reference, from its first step on: +" in done.stdout
    assert "slower by more than 5 %: a step, reference, actor_update" in done.stderr


def test_of_several_roles_it_says_whose_stage_and_whose_rank_has_changed(tmp_path: Path) -> None:
    """Each of the roles has that stage and that rank."""
    for name, fault in (("a", NOBODY), ("slow", INPUT)):
        recorded(tmp_path / name, stage_times(NOBODY, ranks=4, seed=1), role="large")
        recorded(tmp_path / name, stage_times(fault, ranks=4, seed=3), role="small")

    shown = compare(tmp_path, "a", "slow").stdout

    assert "first     reference of small, from its first step on: +" in shown
    assert re.search(r"small 1 +reference ", shown), shown


def test_a_build_goes_on_where_nothing_is_slower(runs: Path) -> None:
    done = compare(runs, "a", "alike", "--fail-over", "5")

    assert done.returncode == 0 and done.stderr == ""
    assert "No difference seen: a step takes" in done.stdout and "Nothing is slower by more than 5 %" in done.stdout


def test_without_a_limit_it_only_shows(runs: Path) -> None:
    assert compare(runs, "a", "slow").returncode == 0


def test_as_json_it_is_one_object_also_where_it_fails(runs: Path) -> None:
    done = compare(runs, "a", "slow", "--fail-over", "5%", "--json")

    document = json.loads(done.stdout)
    assert done.returncode == 1 and document["schema"] == 1 and document["fail_over_ratio"] == 0.05


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["a", "short"], "only 3 steps"),
        (["a"], "--before and --after"),
        (["a", "slow", "--fail-over", "much"], "5% say"),
        (["a", "slow", "--after", "70:80"], "no step is over"),
        (["a", "slow", "--after", "x"], "give one step"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    runs: Path, arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    done = typed("compare", *arguments)

    assert done.returncode == 2 and why in done.stderr and "Traceback" not in done.stderr


def test_a_narrow_terminal_cuts_no_figure(runs: Path) -> None:
    narrow, wide = (
        re.findall(r"[-+]\d[\d.]*", compare(runs, "a", "slow", "--all", COLUMNS=columns).stdout)
        for columns in ("40", "200")
    )

    assert len(wide) > 30
    assert narrow == wide
