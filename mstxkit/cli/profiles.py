"""`mstxkit profiles RUN`: what was recorded, where its data are, what was removed; fetches it from this host's disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator, Optional

import typer

from ..reading.folder import Damage
from ..reading.report.escape import for_rich, for_terminal
from ..reading.report.units import size
from ..reading.tables import profiles as table
from ..store import local_place, retention
from ..store.fetching import Fetched, Pace, fetch_all
from ..store.retention import Removed
from ..store.session_file import sessions
from . import FOUND_WRONG, _requests, _run_folder, _show

_FETCH_HELP = "Move what is on this host's own disk into the run; run it again to go on."
_MB_S_HELP = "With --fetch: so many megabytes a second.  [default: as fast as it goes]"
_KEEP_HELP = "Remove the oldest data until so much is in the run: 500M, 2G; never the newest of a request."
_ID_SHOWN = 8


def profiles(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    fetch: bool = typer.Option(False, "--fetch", help=_FETCH_HELP),
    mb_s: float = typer.Option(0.0, "--mb-s", min=0.0, help=_MB_S_HELP, show_default=False),
    keep: Optional[str] = typer.Option(None, metavar="SIZE", help=_KEEP_HELP),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Show a run's profiles and where they are.

    Ends with 1 if something could not be fetched or read.

    Example: mstxkit profiles runs/exp7 --fetch --mb-s 200
    """
    run, run_id = _run_folder.found(run)
    fetched = _fetched(run, run_id, mb_s) if fetch else []
    removed = retention.make_room(run, run_id, _requests.bytes_of(keep, "--keep") or 0)
    damage: list[Damage] = []
    rows = table.rows(run, run_id, damage)
    if json:
        _show.as_json({
            "profiles": rows, "fetched": [done._asdict() for done in fetched],
            "removed": [gone._asdict() for gone in removed], "damage": [loss._asdict() for loss in damage],
        })  # fmt: skip
    else:
        _print(rows, fetched, removed, damage)
    if damage or any(done.problem for done in fetched):
        raise typer.Exit(FOUND_WRONG)


def _fetched(run: Path, run_id: str, mb_s: float) -> list[Fetched]:
    """From every place on this host that a session of the run names."""
    named = (
        local_place.root_named_by(session.document, tuple(session.folder.split("/")[1:]), run_id)
        for session in sessions(run, run_id)
    )
    roots = sorted({root for root in named if root is not None})
    return [done for root in roots for done in fetch_all(run, run_id, root, Pace(mb_s * 1e6))]


def _print(rows: list[dict[str, Any]], fetched: list[Fetched], removed: list[Removed], damage: list[Damage]) -> None:
    made = _show.table("request", "stage", "step", "rank", "state", "data", "size", "folder", overflow="fold")
    for row in rows:
        step, rank = ("–" if row[key] is None else str(row[key]) for key in ("step", "rank"))
        names = (for_rich(row["request"][:_ID_SHOWN] or "light"), for_rich(row["stage"], 40), step, rank)
        host = f"on {row['host']}"
        where = {table.RUN: "in the run", table.HOST: host, table.REMOVED: "removed", table.NONE: "none"}[row["place"]]
        raw_size = "" if row["bytes"] is None else size(row["bytes"])
        made.add_row(*names, _requests.state(row["state"]), for_rich(where), raw_size, for_rich(row["folder"]))
    _show.console().print(made if rows else "This run has no profiles.")
    for line in _lines(rows, fetched, removed, damage):
        typer.echo(for_terminal(line))


def _lines(
    rows: list[dict[str, Any]], fetched: list[Fetched], removed: list[Removed], damage: list[Damage]
) -> Iterator[str]:
    for done in fetched:
        yield f"not fetched: {done.folder}: {done.problem}" if done.problem else f"fetched: {done.folder}"
    for gone in removed:
        yield f"removed: {gone.folder}: {size(gone.bytes)}"
    for host in sorted({row["host"] for row in rows if row["place"] == table.HOST}):
        yield f"To have what is on {host} in the run, there: mstxkit profiles RUN --fetch"
    for loss in damage:
        yield f"cannot be read: {loss.path} {loss.reason}"
