"""`mstxkit status [RUN]`: which processes a run has, how they are, and what became of requests for profiles; without
RUN, this installation.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import typer

from . import FOUND_WRONG, _checks, _show

if TYPE_CHECKING:
    from ..control.progress import Heard, Progress
    from ..reader import Run
    from ..reading.profiles import Session

_ENDED_SHOWN, _PROFILES_SHOWN = 5, 10


class _Escalation(NamedTuple):
    """What the control folder and the profiles of a run say; `problem`: why the first cannot be used."""

    said: list[Heard]
    requests: list[Progress]
    profiles: list[Session]
    problem: str | None = None


def status(
    run: Optional[Path] = typer.Argument(None, help="The run's folder; without it, this installation."),  # noqa: UP045
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Show a run's processes, what its ranks do, requests and profiles. Ends with 1 if a process was killed or lost
    records.
    """
    if run is None:
        checks = _checks.installation()
        _show.as_json([check._asdict() for check in checks]) if json else _show.console().print(_checks.table(checks))
        return
    from ..reader import open_run

    opened = open_run(run)
    processes = opened.processes().to_dicts()
    patches = opened.patches().drop("process").to_dicts()
    found = _escalation(opened)
    damage = [one._asdict() for one in opened.damage]
    if json:
        told = {"run": opened.id, "path": opened.path, "processes": processes, "patches": patches, "damage": damage}
        _show.as_json({**told, **_as_dicts(found)})
    else:
        _print(processes, patches, damage, found)
    wrong = damage or any(p["state"] == "killed" or p["dropped"] or p["faults"] for p in processes)
    raise typer.Exit(FOUND_WRONG if wrong else 0)


def _escalation(opened: Run) -> _Escalation:
    """What can be read of it: the control folder is for those who may write to the run."""
    from ..control import asking, progress
    from ..errors import MstxkitError
    from ..reading import profiles

    kept = list(profiles.sessions(opened.path, opened.id, opened.damage))
    try:
        control = asking.control_of(Path(opened.path))
        said = progress.heard(control)
        return _Escalation(said, [progress.progress(one, said) for one in progress.asked(control)], kept)
    except MstxkitError as exc:
        return _Escalation([], [], kept, str(exc))


def _as_dicts(found: _Escalation) -> dict[str, Any]:
    from . import _requests

    told = {
        "ranks": [
            {**one.standing.as_json(), **one.acknowledgement._asdict(), "is_alive": one.is_alive} for one in found.said
        ],
        "requests": [_requests.as_dict(one) for one in found.requests],
        "profiles": [{"folder": one.folder, **one.told} for one in found.profiles],
    }
    for rank in told["ranks"]:
        del rank["document"]  # what it holds is beside it, and its memory is its own
    return told


def _print(
    processes: list[dict[str, Any]], patches: list[dict[str, Any]], damage: list[dict[str, Any]], found: _Escalation
) -> None:
    from ..report.patches import patch_lines
    from ..report.text import damage_lines

    console = _show.console()
    console.print(_processes(processes) if processes else "No process has written to this run yet.")
    for part in [*patch_lines(patches), *_parts(found), *damage_lines(damage)]:
        console.print(part)


def _processes(processes: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from ..report.escape import for_rich
    from ..report.text import NAME_LIMIT
    from ..report.units import duration

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("rank", "role", "host", "pid", "state", "last seen", "dropped", "faults", "clock"):
        table.add_column(name, justify="right" if name in ("pid", "dropped", "faults") else "left")
    now_ns = time.time_ns()
    for p in processes:
        ago = "never" if p["last_seen_ns"] is None else f"{duration(max(0, now_ns - p['last_seen_ns']))} ago"
        error = "" if p["clock_error_ns"] is None else f" ±{duration(p['clock_error_ns'])}"
        state = Text(p["state"], "bold red" if p["state"] == "killed" else "")
        rank = "–" if p["rank"] is None else str(p["rank"])
        numbers = (str(p["dropped"]), str(p["faults"]), f"{p['clock'] or 'unknown'}{error}")
        table.add_row(
            rank,
            for_rich(p["role"] or "", NAME_LIMIT),
            for_rich(p["host"], NAME_LIMIT),
            str(p["pid"]),
            state,
            ago,
            *numbers,
        )
    return table


def _parts(found: _Escalation) -> list[Any]:
    """Tables of what there is, a blank line before each."""
    from ..report.escape import for_rich
    from . import _requests

    still_open = [one for one in found.requests if not one.has_ended]
    ended = [one for one in found.requests if one.has_ended]
    parts: list[Any] = []
    if found.said:
        parts += ["", _requests.ranks(found.said)]
    if found.requests:
        parts += ["", _requests.requests([*still_open, *ended[-_ENDED_SHOWN:]])]
    if len(ended) > _ENDED_SHOWN:
        parts.append(f"… and {len(ended) - _ENDED_SHOWN} that ended before (--json)")
    if found.profiles:
        latest = sorted(found.profiles, key=lambda one: str(one.told.get("start_ns")))[-_PROFILES_SHOWN:]
        parts += ["", _requests.profiles(latest)]
    if len(found.profiles) > _PROFILES_SHOWN:
        parts.append(f"… the latest of {len(found.profiles)} (--json)")
    if found.problem is not None:
        parts += ["", for_rich(f"what the control folder holds cannot be shown: {found.problem}")]
    return parts
