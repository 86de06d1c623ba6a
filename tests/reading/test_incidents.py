"""`Run.incidents()`: a row an incident, nothing for runs from before there were any, and hostile files left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit.store import layout, run_file
from mstxkit.store.incidents import HANG, Incident

NAME = "20261124T191500.000"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    with lives.own_run(tmp_path) as folder:
        with mstxkit.capture(folder), mstxkit.stage("reward"):
            pass
        yield folder


def leave(place: Path, incident: Incident, **changed: object) -> Path:
    folder = place / layout.INCIDENTS / incident.incident
    folder.mkdir(parents=True)
    fields = {**json.loads(incident.as_json(run_file.id_of(place) or "")), **changed}
    (folder / layout.INCIDENT_FILE).write_text(json.dumps(fields))
    return folder


def test_a_run_without_incidents_has_an_empty_table_of_the_same_columns(run: Path) -> None:
    table = mstxkit.open_run(run).incidents()

    assert table.is_empty()
    assert table.columns == [
        "incident", "time_ns", "kind", "stage", "range", "rank", "role", "since_ns", "waits_for", "reports", "page",
        "reason",
    ]  # fmt: skip


def test_an_incident_is_a_row_whose_page_is_named_relative_to_the_run(run: Path) -> None:
    leave(run, Incident(NAME, 5, HANG, "reward", "score", 1, "actor", 4, "rank 0 waits for rank 1", 2, "why"))

    (row,) = mstxkit.open_run(run).incidents().to_dicts()

    assert (row["kind"], row["stage"], row["range"], row["rank"]) == ("hang", "reward", "score", 1)
    assert row["page"] == f"incidents/{NAME}/incident.txt"


def test_incidents_of_other_ranks_are_left_out_where_ranks_are_asked_for(run: Path) -> None:
    leave(run, Incident(NAME, 5, HANG, rank=1))

    assert mstxkit.open_run(run, ranks=0).incidents().is_empty()
    assert len(mstxkit.open_run(run, ranks=1).incidents()) == 1


@pytest.mark.parametrize(
    "changed", [{"rank": 1 << 70}, {"time_ns": float("nan")}, {"reason": ["\x1b[2J"]}, {"reports": -(1 << 80)}]
)
def test_numbers_and_texts_that_cannot_be_are_null(run: Path, changed: dict[str, object]) -> None:
    leave(run, Incident(NAME, 5, HANG), **changed)

    (row,) = mstxkit.open_run(run).incidents().to_dicts()

    assert row[next(iter(changed))] in (None, 0)


def test_a_file_that_is_no_incident_is_named_as_damage(run: Path) -> None:
    (leave(run, Incident(NAME, 5, HANG)) / layout.INCIDENT_FILE).write_text("[")
    opened = mstxkit.open_run(run)

    assert opened.incidents().is_empty()
    assert [part.path for part in opened.damage] == [str(run / layout.INCIDENTS / NAME / layout.INCIDENT_FILE)]


def test_a_link_out_of_the_run_is_not_followed(run: Path, tmp_path: Path) -> None:
    elsewhere = leave(tmp_path / "other", Incident(NAME, 5, HANG), run=run_file.id_of(run))
    (run / layout.INCIDENTS).mkdir()
    (run / layout.INCIDENTS / NAME).symlink_to(elsewhere)

    assert mstxkit.open_run(run).incidents().is_empty()
