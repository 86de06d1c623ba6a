"""`mstxkit status [RUN]`: which processes a run has and how they are; without RUN, this installation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Optional

import typer

from . import FOUND_WRONG, _checks, _show


def status(
    run: Optional[Path] = typer.Argument(None, help="The run's folder; without it, this installation."),  # noqa: UP045
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Show the processes of a run: state, last seen, records lost. Ends with 1 if one was killed or lost any."""
    if run is None:
        checks = _checks.installation()
        _show.as_json([check._asdict() for check in checks]) if json else _show.console().print(_checks.table(checks))
        return
    from ..reader import open_run

    opened = open_run(run)
    processes = opened.processes().to_dicts()
    patches = opened.patches().drop("process").to_dicts()
    damage = [one._asdict() for one in opened.damage]
    if json:
        told = {"run": opened.id, "path": opened.path, "processes": processes, "patches": patches, "damage": damage}
        _show.as_json(told)
    else:
        _print(processes, patches, damage)
    wrong = damage or any(p["state"] == "killed" or p["dropped"] or p["faults"] for p in processes)
    raise typer.Exit(FOUND_WRONG if wrong else 0)


def _print(processes: list[dict[str, Any]], patches: list[dict[str, Any]], damage: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..report.escape import for_rich
    from ..report.patches import patch_lines
    from ..report.text import NAME_LIMIT, damage_lines
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
    console = _show.console()
    console.print(table if processes else "No process has written to this run yet.")
    for line in [*patch_lines(patches), *damage_lines(damage)]:
        console.print(line)
