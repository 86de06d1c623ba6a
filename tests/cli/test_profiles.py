"""`mstxkit profiles`: where data are, what was removed, and how to have them in the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.cut_short import cut_short
from builders.local_profiles import REQUEST, Place

pytest.importorskip("numpy")
pytest.importorskip("polars")
typer_testing = pytest.importorskip("typer.testing")

import mstxkit.cli  # noqa: E402
from mstxkit.host import identity  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.store import fetching  # noqa: E402


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def call(place: Place, *words: object) -> Any:
    words = ("profiles", place.run, *words)
    return typer_testing.CliRunner().invoke(mstxkit.cli.build_application(), [str(word) for word in words])


def told(place: Place, *words: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(call(place, "--json", *words).output)
    return document


def test_a_run_without_profiles_says_so(place: Place) -> None:
    done = call(place)

    assert (done.exit_code, done.output) == (0, "This run has no profiles.\n")


def test_what_lies_on_a_host_is_listed_with_it_and_with_what_to_do(place: Place) -> None:
    file = place.record(3)
    (row,) = told(place)["profiles"]

    assert (row["rank"], row["place"], row["host"], row["folder"]) == (3, "host", identity.name_host(), str(file.data))
    assert f"To have what is on {identity.name_host()} in the run, there: mstxkit profiles" in call(place).output


def test_it_is_fetched_and_then_it_is_in_the_run(place: Place) -> None:
    place.record(3)

    done = call(place, "--fetch")
    (row,) = told(place)["profiles"]

    assert done.exit_code == 0
    assert "fetched: profiles/actor_update/step7/rank3/" in done.output
    assert (row["place"], row["folder"]) == ("run", f"profiles/{REQUEST}")


def test_what_could_not_be_fetched_ends_with_1_and_the_reason(place: Place) -> None:
    file = place.record()
    (file.data / "node_0_1_ascend_pt" / "link").symlink_to("/etc")

    done = call(place, "--fetch")

    assert done.exit_code == 1
    assert "neither a file nor a folder" in done.output


@pytest.mark.parametrize(("name", "count"), [("_into_request", 0), ("os.rename", 3), ("shutil.rmtree", 0)])
def test_the_last_one_that_is_cut_off_is_gone_on_with(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    """Nothing else of the run is on this host then; who has recorded it is long gone."""
    file = place.record()
    owner: Any = fetching
    for part in name.split(".")[:-1]:
        owner = getattr(owner, part)
    with cut_short(monkeypatch, owner, name.split(".")[-1], count):
        call(place, "--fetch")
    call(place, "--fetch")

    assert (place.data(file) / "profiler_info.json").exists() and not file.data.exists()
    assert [(row["place"], row["folder"]) for row in told(place)["profiles"]] == [("run", f"profiles/{REQUEST}")]


def test_what_was_removed_stays_listed(place: Place) -> None:
    for number in (1, 2):
        place.record(local=False, number=number, end_ns=number)

    (gone,) = told(place, "--keep", "1k")["removed"]
    rows = told(place)["profiles"]

    assert gone["bytes"] == 1002
    assert [(row["place"], row["reason"]) for row in rows] == [
        ("removed", "more than 1024 bytes of profiles"), ("run", "")
    ]  # fmt: skip
    assert "removed" in call(place).output


def test_wrong_use_is_told(place: Place) -> None:
    assert call(place, "--keep", "much").exit_code == 2
    place.run = place.run / "nothing"
    assert call(place).exit_code == 2


def test_the_table_of_a_run_has_the_same_rows(place: Place) -> None:
    place.record(3)

    assert open_run(place.run).profiles().to_dicts() == told(place)["profiles"]
