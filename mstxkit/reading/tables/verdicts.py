"""`Run.verdicts()`: what was judged of a job while it ran, each verdict as it was said last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...store import verdicts as store
from ...store.documents import Unusable
from ..folder import Damage, note_unusable

if TYPE_CHECKING:
    import polars as pl

    from ...store.verdicts import Verdict
    from ..selection import Selection


def stored(run: str, damage: list[Damage]) -> list[Verdict]:
    """Every verdict that lies in a run, withdrawn ones too, oldest first.

    Args:
        run: The run's folder.
        damage: What cannot be read is added here, once.
    """
    unusable: list[Unusable] = []
    verdicts = store.read(Path(run), unusable)
    note_unusable(unusable, damage)
    return verdicts


def table(run: str, chosen: Selection, damage: list[Damage]) -> pl.DataFrame:
    """The table of those that are asked for."""
    import polars as pl

    from ..frames import VERDICT_SCHEMA

    in_steps = (verdict for verdict in stored(run, damage) if chosen.steps is None or verdict.step in chosen.steps)
    rows = [row_of(verdict) for verdict in in_steps if chosen.has_word(verdict.rank, verdict.stage, verdict.time_ns)]
    return pl.DataFrame(rows, schema=VERDICT_SCHEMA)


def row_of(verdict: Verdict) -> dict[str, Any]:
    """Its row of the table; a text that says nothing is null."""
    return {
        "time_ns": verdict.time_ns or None, "step": verdict.step, "kind": verdict.kind, "stage": verdict.stage,
        "rank": verdict.rank, "role": verdict.role or None, "since_step": verdict.since_step,
        "impact_ratio": verdict.impact_ratio, "coverage_ratio": verdict.coverage_ratio,
        "confidence": verdict.confidence, "waits_for": verdict.waits_for or None,
        "evidence": json.dumps(dict(verdict.evidence)), "next": verdict.next or None,
        "request": verdict.request or None, "recurrence_ratio": verdict.recurrence_ratio,
        "group": list(verdict.group), "withdrawn": verdict.withdrawn or None, "no_request": verdict.no_request or None,
    }  # fmt: skip
