"""What devices did stands in the report once it was imported, and by itself where the run's own profiles tell."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from builders import device_profiles, imported_run
from builders.device_profiles import MS
from builders.imported_run import APART, REFERENCE, UPDATE

pytest.importorskip("numpy")
pytest.importorskip("polars")

from typer.testing import CliRunner

from mstxkit.cli import build_application
from mstxkit.reading.report.devices import TIMES, take_means, write_origin, write_times
from mstxkit.reading.report.units import write_duration


def ran(*words: object) -> str:
    done = CliRunner().invoke(build_application(str(words[0])), [*map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of six ranks, of each of which a database was imported."""
    folder = tmp_path_factory.mktemp("devices")
    run = imported_run.run_of(folder / "run", ranks=6)
    for rank in range(6):
        (folder / str(rank)).mkdir()
        file = folder / str(rank) / f"ascend_pytorch_profiler_{rank}.db"
        device_profiles.ascend_db(file, imported_run.device_of(rank=rank))
    ran("import", *(folder / str(rank) for rank in range(6)), "--run", run)
    return run


def squeezed(text: str) -> str:
    """Without the spaces that fill lines up."""
    return re.sub(" +", " ", text).replace(" \n", "\n")


def devices(run: Path, *words: str) -> list[dict[str, Any]]:
    return list(json.loads(ran("report", run, "--json", *words))["devices"])


def test_each_stage_is_divided_and_the_longest_comes_first(run: Path) -> None:
    rows = devices(run)

    assert [(row["stage"], row["rank"]) for row in rows] == [
        (stage, rank) for stage in ("actor_update", "reference") for rank in range(6)
    ]
    expected = {"actor_update": {**UPDATE, **APART}, "reference": REFERENCE}
    for row in rows:
        assert row["steps"] == 6
        assert {name: row[name] / MS for name in expected[row["stage"]]} == expected[row["stage"]]


def test_what_is_chosen_is_shown(run: Path) -> None:
    of_one = devices(run, "--ranks", "2", "--stages", "reference", "--steps", "1:3")

    assert [(row["stage"], row["rank"], row["steps"]) for row in of_one] == [("reference", 2, 3)]


def test_the_text_shows_some_ranks_of_each_and_says_how_many_more_there_are(run: Path) -> None:
    some, every = ran("report", run), ran("report", run, "--all")

    assert "actor_update  rank 3" in some and "actor_update  rank 4" not in some
    assert "… 2 more ranks (--all)" in some
    assert "actor_update  rank 5" in every
    assert "computing" in some and "free" in some


def test_it_says_what_it_is_from(run: Path) -> None:
    (row, *_) = devices(run, "--steps", "1:3")

    assert (row["first_step"], row["last_step"]) == (1, 3)
    assert (row["sources"], row["clocks"], row["error_ns"]) == (["Ascend DB"], ["ranges"], 0)
    assert "from Ascend DB of ranks 0-5, steps 0 to 5\n" in squeezed(ran("report", run))
    assert "from Ascend DB of rank 2, step 4\n" in squeezed(ran("report", run, "--steps", "4", "--ranks", "2"))


def test_how_sure_it_is_stands_there_with_the_clock_it_is_by() -> None:
    row = {"rank": 3, "first_step": None, "last_step": None, "sources": ["kernel details"], "clocks": ["wall clock"]}

    assert write_origin([{**row, "error_ns": 10**7}]) == "kernel details of rank 3, right to 10.0 ms by the wall clock"


def test_the_page_has_the_same_of_the_whole_run(run: Path, tmp_path: Path) -> None:
    ran("report", run, "--html", tmp_path / "page.html", "--steps", "1:2", "--ranks", "0", "--all")
    page = (tmp_path / "page.html").read_text("utf-8")
    section = unescape(page[page.index('<section id="devices"') :]).partition("</section>")[0]

    rows = [re.findall(r"<td[^>]*>(?:<bdi>)?(.*?)(?:</bdi>)?</td>", row) for row in section.split("<tr>")[2:]]
    assert rows == [
        [row["stage"], str(row["rank"]), "6", *(write_duration(row[name]) for name in TIMES)] for row in devices(run)
    ]
    assert "From Ascend DB of ranks 0-5, steps 0 to 5." in section


def test_without_a_profile_nothing_is_said_of_devices(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run")

    assert devices(run) == []
    assert "devices" not in ran("report", run)


def row_of(**more: Any) -> dict[str, Any]:
    empty = {"transfer_ns": None, "transfer_from_ns": None, "transfer_to_ns": None, "known": None}
    return {**empty, **more}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (row_of(transfer_ns=5 * MS, transfer_from_ns=5 * MS, transfer_to_ns=5 * MS, known="told"), "5.00 ms"),
        (row_of(transfer_from_ns=2 * MS, transfer_to_ns=88 * MS, known="bounded"), "2.00 ms to 88.0 ms"),
        (row_of(transfer_from_ns=0, transfer_to_ns=24 * MS, known="bounded"), "up to 24.0 ms"),
        (row_of(transfer_ns=5 * MS, known="guessed"), "about 5.00 ms"),
        (row_of(), "?"),
    ],
)  # fmt: skip
def test_each_figure_is_shown_with_how_it_is_known(row: dict[str, Any], text: str) -> None:
    assert write_times(row, "?", ("transfer_ns",)) == [text]


@pytest.mark.parametrize(("steps", "known"), [(["told", "told"], "told"), (["told", "bounded"], "bounded"),
                                               (["told", "guessed"], "guessed"), (["told", None], None)])  # fmt: skip
def test_a_mean_of_steps_is_as_sure_as_the_least_sure_of_them(run: Path, steps: list[Any], known: str | None) -> None:
    import polars as pl

    from mstxkit.reading.run import open_run

    rows = open_run(run).device().filter((pl.col("rank") == 0) & (pl.col("stage") == "actor_update")).head(2)
    is_told = pl.Series([step in ("told", "guessed") for step in steps])
    rows = rows.with_columns(known=pl.Series(steps, dtype=pl.String), transfer_ns=pl.when(is_told).then("transfer_ns"))
    (mean,) = take_means(rows, "stage", "rank").to_dicts()

    assert mean["known"] == known
    assert (mean["transfer_ns"] is None) == (None in steps or "bounded" in steps)
