"""Incidents in the report: a line each, and where its page is."""

from __future__ import annotations

import os
from typing import Any, Sequence

from rich.console import RenderableType
from rich.text import Text

from .escape import for_terminal, shown
from .units import duration

_SHOWN = 10
_WORDS = {
    "hang": "hung", "killed": "was killed", "signal": "was killed", "exception": "raised what nobody caught",
    "request": "was looked at, as asked",
}  # fmt: skip


def lines(path: str, incidents: Sequence[dict[str, Any]]) -> list[RenderableType]:
    """`Incident: rank 1 actor hung in score (reward) for 34 s; ranks 0,2-7 wait for …: <page>`, the newest last.
    `path`: the run's folder; `incidents`: as `tables.incidents.dicts` gives them.
    """
    left_out = len(incidents) - _SHOWN
    more = [Text(f"… and {left_out} earlier incidents (--json lists all)", "dim")] if left_out > 0 else []
    return [*([Text()] if incidents else []), *more, *(_line(path, incident) for incident in incidents[-_SHOWN:])]


def _line(path: str, incident: dict[str, Any]) -> Text:
    line = Text.assemble(("Incident: ", "bold red"), sentence(incident))
    if incident["waits_for"]:
        line.append(f"; {for_terminal(incident['waits_for'], 160)}")
    page = os.path.join(path, incident["page"])
    return line.append(f"{'; it is over' if incident['over_ns'] else ''}\n  {for_terminal(page)}")


def sentence(incident: dict[str, Any]) -> str:
    """Who did what where, and for how long."""
    name, stage = incident["range"], incident["stage"]
    who = "the job" if incident["kind"] == "request" else shown(incident["who"]) or "everybody"
    place = " of ".join(dict.fromkeys(filter(None, (shown(name), shown(stage)))))
    since_ns, time_ns = incident["since_ns"], incident["time_ns"]
    is_hang = incident["kind"] == "hang" and since_ns and time_ns and since_ns <= time_ns
    since = f" for {duration(time_ns - since_ns)}" if is_hang else ""
    by = f" by {shown(incident['signal'])}" if incident.get("signal") else ""
    return f"{who} {_WORDS[incident['kind']]}{by}" + (f" in {place}{since}" if place else "")
