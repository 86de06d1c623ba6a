"""`mstxkit collect RUN`: seal what killed processes left on this host."""

from __future__ import annotations

from pathlib import Path

import typer

from . import _show


def collect(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    json: bool = typer.Option(False, "--json", help="The names of what was sealed, as JSON."),
) -> None:
    """Seal what killed processes left on this host."""
    from ..errors import ReadError
    from ..report.escape import for_terminal

    if not run.is_dir():
        raise ReadError(f"{run}: no such run folder")
    from ..recorder import adopt

    sealed = adopt.collect(run)
    if json:
        _show.as_json({"sealed": [one._asdict() for one in sealed]})
        return
    for one in sealed:
        open_ranges = " and what it was inside of" if one.open_ranges else ""
        typer.echo(f"sealed {for_terminal(one.name)}: {one.records} records{open_ranges}")
    if not sealed:
        typer.echo("nothing to collect on this host")
