"""`mstxkit collect RUN`: seal what killed processes left on this host."""

from __future__ import annotations

from pathlib import Path

import typer

from ..errors import ReadError
from ..reading.report.escape import for_terminal
from . import _show


def collect(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    json: bool = typer.Option(False, "--json", help="The names of what was sealed, as JSON."),
) -> None:
    """Seal what killed processes left on this host.

    What still runs is left alone. Ends with 2 where there is no such run.

    Example: mstxkit collect runs/exp7
    """
    if not run.is_dir():
        raise ReadError(f"{run}: no such run folder")
    from ..recorder import adopt  # it loads the engine

    sealed = adopt.collect(run)
    if json:
        _show.as_json({"sealed": [process._asdict() for process in sealed]})
        return
    for process in sealed:
        open_ranges = " and what it was inside of" if process.open_ranges else ""
        typer.echo(f"sealed {for_terminal(process.name)}: {process.records} records{open_ranges}")
    if not sealed:
        typer.echo("nothing to collect on this host")
