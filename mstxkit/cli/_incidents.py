"""An incident that somebody asks for: `mstxkit status RUN --incident`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import typer

from ..errors import MstxkitError
from ..incidents import folder
from ..reading.report.escape import for_terminal
from ..reading.report.sentences import of_incident
from ..store import incidents
from ..store.incidents import Incident
from . import _run_folder

_WITHIN_S, _LOOKS_EVERY_S = 20.0, 0.2


def ask(run: Path, json: bool) -> None:
    """Ask for one, wait, and show where it is. Raises: MstxkitError for no run, a read-only one, or no answer."""
    from . import _show

    if sys.stderr.isatty():
        typer.echo(f"mstxkit: asked; the answer takes {_WITHIN_S:.0f} s at most", err=True)
    incident = _take_incident(run)
    if json:
        _show.as_json({"incident": incident.incident, "page": str(run / incident.page), "reports": incident.reports})
    else:
        words = f"{of_incident(incident.facts)}, {incident.reports} processes:"
        print(for_terminal(f"Incident {incident.incident}: {words}"))
        print(for_terminal(f"  {run / incident.page}"))


def _take_incident(run: Path) -> Incident:
    run, run_id = _run_folder.found(run)
    before = {incident.incident for incident in incidents.read(run, run_id)}
    try:
        folder.ask(run)
    except OSError as exc:
        raise MstxkitError(f"an incident cannot be asked for in {run}: {exc.strerror}") from exc
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        time.sleep(_LOOKS_EVERY_S)
        for incident in incidents.read(run, run_id):
            if incident.incident not in before and incident.kind == incidents.REQUEST:
                return incident
    raise MstxkitError(
        f"nobody has answered within {_WITHIN_S:.0f} s: no process of {run} runs, or none is watched (hang_s=0)"
    )
