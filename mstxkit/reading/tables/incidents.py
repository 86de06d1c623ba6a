"""`Run.incidents()`: hangs, deaths and what else was looked at closely while a job ran, a row each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from ...store import incidents as store
from ...store.documents import Unusable
from ...store.incidents import Incident
from ..folder import Damage, note_unusable
from ..frames import INCIDENT_SCHEMA
from ..selection import Selection


def stored(run: str, run_id: str, damage: list[Damage]) -> list[Incident]:
    """Every incident of a run, oldest first.

    Args:
        run: The run's folder.
        run_id: Its id.
        damage: What cannot be read is added here, once.
    """
    unusable: list[Unusable] = []
    incidents = store.read(Path(run), run_id, unusable)
    note_unusable(unusable, damage)
    return incidents


def dicts(run: str, run_id: str, damage: list[Damage]) -> list[dict[str, Any]]:
    """All of them as plain values: the columns of the table, and what else `Incident.facts` has."""
    return [{**incident.facts, **row_of(incident)} for incident in stored(run, run_id, damage)]


def table(run: str, run_id: str, chosen: Selection, damage: list[Damage]) -> pl.DataFrame:
    """The table of those that are asked for."""
    every = stored(run, run_id, damage)
    rows = [row_of(incident) for incident in every if chosen.has_word(incident.rank, incident.stage, incident.time_ns)]
    return pl.DataFrame(rows, schema=INCIDENT_SCHEMA)


def row_of(incident: Incident) -> dict[str, Any]:
    """Its row of the table; a text that says nothing is null."""
    return {
        "incident": incident.incident, "time_ns": incident.time_ns or None, "kind": incident.kind,
        "stage": incident.stage or None, "range": incident.range or None, "rank": incident.rank,
        "role": incident.role or None, "since_ns": incident.since_ns or None, "waits_for": incident.waits_for or None,
        "reports": incident.reports, "page": incident.page, "reason": incident.reason or None,
    }  # fmt: skip
