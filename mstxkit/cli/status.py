"""`mstxkit status [RUN]`: which processes a run has, how they are, and what became of requests for profiles; without
RUN, this installation.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional

import typer

from ..errors import MstxkitError
from ..escalation import asking
from ..incidents import folder
from ..reading.endings import is_wrong
from ..reading.folder import Damage
from ..reading.processes import find_living
from ..reading.report.escape import for_rich, for_terminal
from ..reading.report.judged_so_far import judged_so_far
from ..reading.report.sentences import of_incident
from ..reading.report.units import write_size
from ..store import fate, incidents, whereabouts
from ..store.documents import Unusable
from ..store.session_file import read_sessions
from ..store.values import whole_number
from . import FOUND_WRONG, _checks, _ranks, _requests, _show, find_run

if TYPE_CHECKING:
    from ..reading.run import Run
    from ..store.fate import Heard, Progress
    from ..store.session_file import RecordedSession
    from ..store.whereabouts import Whereabouts

_INCIDENT_HELP = "Have every process say where it is, with stacks, and show where the page of it lies instead."
_WITHIN_S, _LOOKS_EVERY_S = 20.0, 0.2
_OPEN_SHOWN, _ENDED_SHOWN, _PROFILES_SHOWN = 16, 5, 10
_Rows = list[dict[str, Any]]


class _Escalation(NamedTuple):
    """What the control folder, the keepers and the profiles of a run say; `behind`: how far it was judged, where that
    is not as it goes on; `problem`: why the first cannot be used.
    """

    listeners: list[Heard]
    seen: list[Whereabouts]
    behind: str
    requests: list[Progress]
    profiles: list[RecordedSession]
    problem: str | None = None


def status(
    run: Optional[Path] = typer.Argument(None, help="The run's folder; without it, this installation."),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
    incident: bool = typer.Option(False, "--incident", help=_INCIDENT_HELP),
) -> None:
    """Show a run's processes, its requests and its profiles.

    And what its ranks do now. It looks at the heads of blocks only: `report` reads every record. Ends with 1 if a
    process was killed, ended by an exception, dropped records or had faults in mstxkit, or a file is damaged.

    Example: mstxkit status runs/exp7
    """
    if run is not None and incident:
        _ask_incident(run, json)
        return
    if run is None:
        _checks.show_checks(json)
        return
    from ..reading.run import open_run

    opened = open_run(run)
    from ..reading import places
    from ..reading.report import gaps  # with polars: where that is not there, who opens a run says so

    processes = opened.processes().to_dicts()
    patches = opened.patches().drop("process").to_dicts()
    escalation = _read_escalation(opened, processes)
    damage = [loss._asdict() for loss in opened.damage]
    held = places.list_places(opened.path, opened.id, (process["process"] for process in processes))
    if json:
        document = {"run": opened.id, "path": opened.path, "processes": processes, "patches": patches, "damage": damage}
        _show.as_json({**document, "places": held, **_as_dicts(escalation)})
    else:
        _print_status(processes, patches, damage, escalation)
        for line in gaps.render_gaps(held):
            _show.open_console().print(line)
    wrong = damage or any(is_wrong(p["state"], p["ending"]) or p["dropped"] or p["faults"] for p in processes)
    raise typer.Exit(FOUND_WRONG if wrong else 0)


def _read_escalation(opened: Run, processes: _Rows) -> _Escalation:
    """What can be read of it: the control folder is for those who may write to the run."""
    unusable: list[Unusable] = []
    kept = list(read_sessions(opened.path, opened.id, unusable))
    seen = whereabouts.read_seen(Path(opened.path), opened.id, unusable)
    behind = judged_so_far(opened.path, opened.id)
    opened.damage += [Damage.of(file.path, file.reason) for file in unusable]
    is_alive = find_living((process["host"], process["pid"], process["state"]) for process in processes)
    try:
        control = asking.control_of(Path(opened.path))
        listeners = fate.read_heard(control, is_alive)
        judge = fate.Fates(listeners, lambda: kept, is_alive)
        return _Escalation(listeners, seen, behind, list(map(judge.progress, fate.read_asked(control))), kept)
    except MstxkitError as exc:
        return _Escalation([], seen, behind, [], kept, str(exc))


def _as_dicts(escalation: _Escalation) -> dict[str, Any]:
    ranks = [
        {**listener.standing.as_json(), **listener.acknowledgement._asdict(), "is_alive": listener.is_alive}
        for listener in escalation.listeners
    ]
    for rank in ranks:
        del rank["document"]  # what it holds is beside it, and its memory is its own
    profiles = [{"folder": session.folder, **session.document} for session in escalation.profiles]
    now = [{**where._asdict(), "age": where.age._asdict()} for where in escalation.seen]
    requests = list(map(_requests.as_dict, escalation.requests))
    return {"ranks": ranks, "now": now, "judged": escalation.behind or None, "requests": requests, "profiles": profiles}


def _print_status(processes: _Rows, patches: _Rows, damage: _Rows, escalation: _Escalation) -> None:
    from ..reading.report import gaps
    from ..reading.report.text import damage_lines

    console = _show.open_console()
    called = {(row["host"], row["pid"]): row["label"] for row in processes if row["rank"] is None}
    console.print(_ranks.tabulate_processes(processes) if processes else "No process has written to this run yet.")
    if slow := [process for process in processes if process["native"] is False]:
        hosts = sorted({process["host"] for process in slow})
        where = f"{hosts[0]} and {len(hosts) - 1} more hosts" if len(hosts) > 1 else hosts[0]
        who = f"{len(slow)} of {len(processes)} processes ran on the Python twin ({where})"
        cost = "where a range costs a hundred times as much"
        console.print()
        console.print(for_rich(f"{who}, {cost}: `mstxkit doctor` says there why, and how to get the C engine"))
    patched = map(for_rich, gaps.patch_lines(patches))
    for part in [*patched, *_list_parts(escalation, called), *damage_lines(damage)]:
        console.print(part)
    if processes:
        console.print("\nOnly heads and checksums were looked at; `mstxkit report` reads every record.")


def _list_parts(escalation: _Escalation, called: dict[tuple[str, int], str]) -> Iterator[Any]:
    """Tables of what there is, a blank line before each."""
    still_open = [progress for progress in escalation.requests if not progress.has_ended]
    ended = [progress for progress in escalation.requests if progress.has_ended]
    standpoints = _ranks.find_standpoints(escalation.listeners, escalation.seen, called)
    if standpoints:
        yield from ("", _ranks.tabulate_ranks(standpoints))
    if escalation.behind:
        yield from ("", for_rich(escalation.behind, style="bold yellow"))
    if any(not standpoint.where.age.is_exact for standpoint in standpoints):
        yield "~ by the clocks of two hosts, which may differ"
    if escalation.requests:
        yield from ("", _requests.tabulate_requests([*still_open[:_OPEN_SHOWN], *ended[-_ENDED_SHOWN:]]))
    if len(still_open) > _OPEN_SHOWN:
        yield f"… and {len(still_open) - _OPEN_SHOWN} more that are open (--json)"
    if len(ended) > _ENDED_SHOWN:
        yield f"… and {len(ended) - _ENDED_SHOWN} that ended before (--json)"
    if escalation.profiles:
        latest = sorted(escalation.profiles, key=lambda session: whole_number(session.document.get("start_ns")))
        yield from ("", _requests.tabulate_profiles(latest[-_PROFILES_SHOWN:]))
    if len(escalation.profiles) > _PROFILES_SHOWN:
        together = write_size(sum(whole_number(session.document.get("bytes")) for session in escalation.profiles))
        yield f"… the latest of {len(escalation.profiles)} (--json), {together} together"
    if escalation.problem is not None:
        yield from ("", for_rich(f"what the control folder holds cannot be shown: {escalation.problem}"))


def _ask_incident(run: Path, json: bool) -> None:
    """Ask for one, wait, and show where it is. Raises: MstxkitError for no run, a read-only one, or no answer."""
    if sys.stderr.isatty():
        typer.echo(f"mstxkit: asked; the answer takes {_WITHIN_S:.0f} s at most", err=True)
    place, run_id = find_run(run)
    before = {incident.incident for incident in incidents.read_incidents(place, run_id)}
    try:
        folder.ask_hosts(place)
    except OSError as exc:
        raise MstxkitError(f"an incident cannot be asked for in {place}: {exc.strerror}") from exc
    deadline, incident = time.monotonic() + _WITHIN_S, None
    while incident is None and time.monotonic() < deadline:
        time.sleep(_LOOKS_EVERY_S)
        new = (each for each in incidents.read_incidents(place, run_id) if each.incident not in before)
        incident = next((each for each in new if each.kind == incidents.REQUEST), None)
    if incident is None:
        why = f"no process of {place} runs, or none is watched (hang_s=0)"
        raise MstxkitError(f"nobody has answered within {_WITHIN_S:.0f} s: {why}")
    if json:
        _show.as_json({"incident": incident.incident, "page": str(run / incident.page), "reports": incident.reports})
    else:
        words = f"{of_incident(incident.facts)}, {incident.reports} processes:"
        print(for_terminal(f"Incident {incident.incident}: {words}"))
        print(for_terminal(f"  {run / incident.page}"))
