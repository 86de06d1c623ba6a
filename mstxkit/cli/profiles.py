"""`mstxkit profiles RUN`: what was recorded, where its data are, what was removed; fetches and parses it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, Iterator, Optional

import typer

from ..reading.folder import Damage
from ..reading.report.escape import for_rich, for_terminal
from ..reading.report.units import write_size
from ..reading.tables import profiles as table
from ..store import local_place, retention
from ..store.fetching import Fetched, fetch_all
from ..store.retention import Removed
from ..store.session_file import read_sessions
from . import FOUND_WRONG, _parsing, _requests, _show, find_run

_ANALYSE_HELP = "Parse raw NPU profiles, in processes of their own. Again it goes on: what is parsed is left as it is."
_FETCH_HELP = "Move what is on this host's own disk into the run; run it again to go on."
_MB_S_HELP = "With --fetch: so many megabytes a second.  [default: as fast as it goes]"
_KEEP_HELP = "Remove the oldest data until so much is in the run: 500M, 2G; never the newest of a request."
_EXPORT_HELP = "With --analyse: what torch_npu writes.  [default: what each profile was recorded for]"
_REQUEST_HELP = "Only what this request recorded; the beginning of its id is enough."
_JOBS_HELP = "With --analyse: profiles at a time.  [default: half the processors, at most 4]"
_LIMIT_HELP = "With --analyse: seconds for one profile.  [default: as long as it takes]"
_AGAIN_HELP = "With --analyse: once more what failed, or all."
_UNFINISHED_HELP = "With --analyse: also what another host may still be recording."


class Export(str, Enum):
    """What a parse writes."""

    TEXT = "text"
    DB = "db"
    BOTH = "both"


class Again(str, Enum):
    """What is parsed once more."""

    FAILED = "failed"
    ALL = "all"


def profiles(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    fetch: bool = typer.Option(False, "--fetch", help=_FETCH_HELP),
    mb_s: float = typer.Option(0.0, "--mb-s", min=0.0, help=_MB_S_HELP, show_default=False, hidden=True),
    analyse: bool = typer.Option(False, "--analyse", help=_ANALYSE_HELP),
    stage: Optional[list[str]] = typer.Option(None, "--stage", help="Only this stage; may be repeated."),
    rank: Optional[list[int]] = typer.Option(None, "--rank", min=0, help="Only this rank; may be repeated."),
    request: Optional[str] = typer.Option(None, "--request", help=_REQUEST_HELP),
    again: Optional[Again] = typer.Option(None, "--again", help=_AGAIN_HELP, hidden=True),
    export: Optional[Export] = typer.Option(None, "--export", help=_EXPORT_HELP, hidden=True),
    jobs: Optional[int] = typer.Option(None, "--jobs", min=1, help=_JOBS_HELP, hidden=True),
    time_limit: Optional[float] = typer.Option(None, "--time-limit", min=0.1, help=_LIMIT_HELP, hidden=True),
    unfinished: bool = typer.Option(False, "--unfinished", help=_UNFINISHED_HELP, hidden=True),
    keep: Optional[str] = typer.Option(None, metavar="SIZE", help=_KEEP_HELP),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Show a run's profiles and where they are; fetch and parse them.

    Ends with 1 if something could not be fetched, read or parsed, or what parses is missing.

    Example: mstxkit profiles runs/exp7 --analyse --stage actor_update
    """
    run, run_id = find_run(run)
    fetched: list[Fetched] = []
    if fetch:  # from every place on this host that a session of the run names
        named = (
            local_place.root_named_by(session.document, tuple(session.folder.split("/")[1:]), run_id)
            for session in read_sessions(run, run_id)
        )
        for root in sorted({root for root in named if root is not None}):
            fetched += fetch_all(run, run_id, root, mb_s)
    removed = retention.make_room(run, run_id, _requests.bytes_of(keep, "--keep") or 0)
    damage: list[Damage] = []
    wanted = _parsing.Wanted(tuple(stage or ()), tuple(rank or ()), request, again.value if again else None)
    parsed, rows = None, list[dict[str, Any]]()
    if analyse:
        words = {None: "", Export.BOTH: "text,db"}.get(export, export.value if export else "")
        plan = _parsing.plan_of(jobs, time_limit, words)
        parsed = _parsing.analyse_profiles(run, wanted, plan, unfinished, quiet=json)
    else:
        every = table.list_rows(run, run_id, damage)
        rows = _parsing.choose_profiles(every, wanted, lambda row: (row["stage"], row["rank"], row["request"]))
    if json:
        _show.as_json({
            **({"profiles": rows} if parsed is None else _parsing.as_json(run, parsed)),
            "fetched": [done._asdict() for done in fetched], "removed": [gone._asdict() for gone in removed],
            "damage": [loss._asdict() for loss in damage],
        })  # fmt: skip
    else:
        _print_rows(rows) if parsed is None else _parsing.show_parsed(run, parsed)
        for line in _list_lines(run, rows, fetched, removed, damage):
            typer.echo(for_terminal(line))
    if damage or any(done.problem for done in fetched) or (parsed is not None and parsed.is_wrong):
        raise typer.Exit(FOUND_WRONG)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    made = _show.make_table("request", "stage", "step", "rank", "state", "data", "size", "folder")
    for row in rows:
        step, rank = ("–" if row[key] is None else str(row[key]) for key in ("step", "rank"))
        names = (for_rich(row["request"][: _requests.ID_SHOWN] or "light"), for_rich(row["stage"], 40), step, rank)
        host = f"on {row['host']}"
        where = {table.RUN: "in the run", table.HOST: host, table.REMOVED: "removed", table.NONE: "none"}[row["place"]]
        raw_size = "" if row["bytes"] is None else write_size(row["bytes"])
        made.add_row(*names, _requests.color_state(row["state"]), for_rich(where), raw_size, for_rich(row["folder"]))
    _show.open_console().print(made if rows else "This run has no profiles.")


def _list_lines(
    run: Path, rows: list[dict[str, Any]], fetched: list[Fetched], removed: list[Removed], damage: list[Damage]
) -> Iterator[str]:
    for done in fetched:
        yield f"not fetched: {done.folder}: {done.problem}" if done.problem else f"fetched: {done.folder}"
    for gone in removed:
        yield f"removed: {gone.folder}: {write_size(gone.bytes)}"
    for host in sorted({row["host"] for row in rows if row["place"] == table.HOST}):
        yield f"To have what is on {host} in the run, there: mstxkit profiles {run} --fetch"
    for loss in damage:
        yield f"cannot be read: {loss.path} {loss.reason}"
