"""`mstxkit status [RUN]`: which processes a run has, how they are, and what became of requests for profiles; without
RUN, this installation.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import typer

from ..errors import MstxkitError
from ..escalation import asking
from ..reading.folder import Damage
from ..reading.processes import liveness
from ..reading.report.escape import NAME_LIMIT, for_rich
from ..reading.report.text import damage_lines, patch_lines, who
from ..reading.report.units import duration
from ..store import verdict
from ..store.documents import Unusable
from ..store.session_file import sessions
from . import FOUND_WRONG, _checks, _requests, _show

if TYPE_CHECKING:
    from ..reading.run import Run
    from ..store.session_file import RecordedSession
    from ..store.verdict import Heard, Progress

_ENDED_SHOWN, _PROFILES_SHOWN = 5, 10


class _Escalation(NamedTuple):
    """What the control folder and the profiles of a run say; `problem`: why the first cannot be used."""

    listeners: list[Heard]
    requests: list[Progress]
    profiles: list[RecordedSession]
    problem: str | None = None


def status(
    run: Optional[Path] = typer.Argument(None, help="The run's folder; without it, this installation."),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Show a run's processes, what its ranks do, requests and profiles. Ends with 1 if a process was killed or lost
    records, or a file is damaged. It looks at the heads of blocks only: `report` reads every record.
    """
    if run is None:
        checks = _checks.installation()
        _show.as_json([check._asdict() for check in checks]) if json else _show.console().print(_checks.table(checks))
        return
    from ..reading.run import open_run

    opened = open_run(run)
    processes = opened.processes().to_dicts()
    patches = opened.patches().drop("process").to_dicts()
    escalation = _escalation(opened, processes)
    damage = [loss._asdict() for loss in opened.damage]
    if json:
        document = {"run": opened.id, "path": opened.path, "processes": processes, "patches": patches, "damage": damage}
        _show.as_json({**document, **_as_dicts(escalation)})
    else:
        _print(processes, patches, damage, escalation)
    wrong = damage or any(p["state"] == "killed" or p["dropped"] or p["faults"] for p in processes)
    raise typer.Exit(FOUND_WRONG if wrong else 0)


def _escalation(opened: Run, processes: list[dict[str, Any]]) -> _Escalation:
    """What can be read of it: the control folder is for those who may write to the run."""
    unusable: list[Unusable] = []
    kept = list(sessions(opened.path, opened.id, unusable))
    opened.damage += [Damage.of(file.path, file.reason) for file in unusable]
    is_alive = liveness((process["host"], process["pid"], process["state"]) for process in processes)
    try:
        control = asking.control_of(Path(opened.path))
        listeners = verdict.heard(control, is_alive)
        judge = verdict.Judge(listeners, lambda: kept, is_alive)
        return _Escalation(listeners, list(map(judge.progress, verdict.asked(control))), kept)
    except MstxkitError as exc:
        return _Escalation([], [], kept, str(exc))


def _as_dicts(escalation: _Escalation) -> dict[str, Any]:
    ranks = [
        {**listener.standing.as_json(), **listener.acknowledgement._asdict(), "is_alive": listener.is_alive}
        for listener in escalation.listeners
    ]
    for rank in ranks:
        del rank["document"]  # what it holds is beside it, and its memory is its own
    profiles = [{"folder": session.folder, **session.document} for session in escalation.profiles]
    return {"ranks": ranks, "requests": list(map(_requests.as_dict, escalation.requests)), "profiles": profiles}


def _print(
    processes: list[dict[str, Any]],
    patches: list[dict[str, Any]],
    damage: list[dict[str, Any]],
    escalation: _Escalation,
) -> None:
    console = _show.console()
    console.print(_processes(processes) if processes else "No process has written to this run yet.")
    for part in [*patch_lines(patches), *_parts(escalation), *damage_lines(damage)]:
        console.print(part)
    if processes:
        console.print("\nOnly heads and checksums were looked at; `mstxkit report` reads every record.")


def _processes(processes: list[dict[str, Any]]) -> Any:
    columns = ("process", "host", "pid", "state", "last seen", "dropped", "faults", "clock")
    table = _show.table(*columns, right=("pid", "dropped", "faults"))
    now_ns = time.time_ns()
    for p in processes:
        ago = "never" if p["last_seen_ns"] is None else f"{duration(max(0, now_ns - p['last_seen_ns']))} ago"
        error = "" if p["clock_error_ns"] is None else f" ±{duration(p['clock_error_ns'])}"
        ended = " ".join(filter(None, (p["state"], p["ending"])))
        state = for_rich(ended, NAME_LIMIT, "bold red" if p["state"] == "killed" else "")
        names = (for_rich(who(p)), for_rich(p["host"], NAME_LIMIT))
        numbers = (str(p["dropped"]), str(p["faults"]), f"{p['clock'] or 'unknown'}{error}")
        table.add_row(*names, str(p["pid"]), state, ago, *numbers)
    return table


def _parts(escalation: _Escalation) -> list[Any]:
    """Tables of what there is, a blank line before each."""
    still_open = [progress for progress in escalation.requests if not progress.has_ended]
    ended = [progress for progress in escalation.requests if progress.has_ended]
    parts: list[Any] = []
    if escalation.listeners:
        parts += ["", _requests.ranks(escalation.listeners)]
    if escalation.requests:
        parts += ["", _requests.requests([*still_open, *ended[-_ENDED_SHOWN:]])]
    if len(ended) > _ENDED_SHOWN:
        parts.append(f"… and {len(ended) - _ENDED_SHOWN} that ended before (--json)")
    if escalation.profiles:
        latest = sorted(escalation.profiles, key=lambda session: str(session.document.get("start_ns")))[
            -_PROFILES_SHOWN:
        ]
        parts += ["", _requests.profiles(latest)]
    if len(escalation.profiles) > _PROFILES_SHOWN:
        parts.append(f"… the latest of {len(escalation.profiles)} (--json)")
    if escalation.problem is not None:
        parts += ["", for_rich(f"what the control folder holds cannot be shown: {escalation.problem}")]
    return parts
