"""`Run.profiles()` and `mstxkit profiles`: what was recorded, where its data are, and what was removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...store.session_file import read_sessions
from ...store.values import list_of, step_number, table_of, text_of, whole_number
from ..folder import Damage, noting_unusable

if TYPE_CHECKING:
    import polars as pl

RUN, HOST, REMOVED, NONE = "run", "host", "removed", "none"
_LATEST_NS = (1 << 63) - 1


def table(run: str, run_id: str, damage: list[Damage]) -> pl.DataFrame:
    """See `Run.profiles`."""
    import polars as pl

    from ..frames import PROFILE_SCHEMA

    return pl.DataFrame(list_rows(run, run_id, damage), schema=PROFILE_SCHEMA)


def list_rows(run: str | os.PathLike[str], run_id: str, damage: list[Damage]) -> list[dict[str, Any]]:
    """One for each session, with the columns of `Run.profiles()`; by request, then by stage, step, rank and start.
    What cannot be read is added to `damage`, once.
    """
    with noting_unusable(damage) as unusable:
        recorded = sorted(read_sessions(run, run_id, unusable), key=lambda each: each.key[0])
    made = []
    for session in recorded:
        get, (request, stage, rank) = session.document.get, session.key
        stored, removed = table_of(get("stored")), table_of(get("removed"))
        kept = HOST if isinstance(get("stored"), dict) else RUN if get("output") else NONE
        place = REMOVED if isinstance(get("removed"), dict) else kept
        reasons = [text_of(removed.get("why")), *map(text_of, list_of(get("problems")))]
        made.append({
            "request": request, "stage": stage, "step": step_number(get("step")), "rank": rank,
            "host": text_of(get("host")), "state": text_of(get("state")), "place": place,
            "bytes": _time_or_none(removed.get("bytes") if place == REMOVED else get("bytes")),
            "start_ns": _time_or_none(get("start_ns")), "end_ns": _time_or_none(get("end_ns")),
            "preset": text_of(get("preset")) or None,
            "folder": text_of(stored.get("folder")) if place == HOST else session.place,
            "reason": "; ".join(filter(None, reasons)),
        })  # fmt: skip
    return made


def _time_or_none(value: Any) -> int | None:
    number = whole_number(value)
    return number if 0 < number <= _LATEST_NS else None
