"""`Run.verdicts()` and `Run.incidents()`: what was judged of a job, and what its watchmen saw, while it ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...store import incidents as incident_files
from ...store import verdicts as verdict_files
from ..folder import Damage, noting_unusable

if TYPE_CHECKING:
    import polars as pl

    from ...store.incidents import Incident
    from ...store.verdicts import Verdict
    from ..selection import Selection

_NULL_IF_EMPTY = {"time_ns", "stage", "range", "role", "since_ns", "waits_for", "reason"}  # of an incident


def stored_verdicts(run: str, damage: list[Damage]) -> list[Verdict]:
    """Every verdict that lies in a run's folder, withdrawn ones too, each as it was said last, oldest first.
    `damage`: what cannot be read is added here, once.
    """
    with noting_unusable(damage) as unusable:
        return verdict_files.read_verdicts(Path(run), unusable)


def stored_incidents(run: str, run_id: str, damage: list[Damage]) -> list[Incident]:
    """Every incident of a run, hangs, deaths and what else was looked at closely, oldest first; `damage` as above."""
    with noting_unusable(damage) as unusable:
        return incident_files.read_incidents(Path(run), run_id, unusable)


def describe_incidents(
    run: str, run_id: str, damage: list[Damage], chosen: Selection | None = None
) -> list[dict[str, Any]]:
    """Those that are asked for (None: all) as plain values: the columns of the table, and what else `Incident.facts`
    has. A text that says nothing is null, and so is a time that is not known.
    """
    return [
        {name: value or None if name in _NULL_IF_EMPTY else value for name, value in incident.facts.items()}
        for incident in stored_incidents(run, run_id, damage)
        if chosen is None or chosen.has_word(incident.rank, incident.stage, incident.time_ns)
    ]


def verdict_table(run: str, chosen: Selection, damage: list[Damage]) -> pl.DataFrame:
    """The verdicts that are asked for."""
    import polars as pl

    from ..frames import VERDICT_SCHEMA

    every = stored_verdicts(run, damage)
    in_steps = (verdict for verdict in every if chosen.steps is None or verdict.step in chosen.steps)
    rows = [
        {name: None if value == "" else value for name, value in verdict.plain.items()}
        | {"time_ns": verdict.time_ns or None, "evidence": json.dumps(dict(verdict.evidence))}
        for verdict in in_steps
        if chosen.has_word(verdict.rank, verdict.stage, verdict.time_ns)
    ]
    return pl.DataFrame(rows, schema=VERDICT_SCHEMA)


def incident_table(run: str, run_id: str, chosen: Selection, damage: list[Damage]) -> pl.DataFrame:
    """The incidents that are asked for."""
    import polars as pl

    from ..frames import INCIDENT_SCHEMA

    return pl.DataFrame(describe_incidents(run, run_id, damage, chosen), schema=INCIDENT_SCHEMA)
