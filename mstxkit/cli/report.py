"""`mstxkit report RUN`: every stage of every rank, what killed processes were inside of, what was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import typer

from . import FOUND_WRONG, _show


def report(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    step: Optional[int] = typer.Option(None, help="Stages of this step only."),
    every_rank: bool = typer.Option(False, "--all", help="List every rank of a stage, not only the slowest."),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Show stages by rank, killed processes, losses and damage. Ends with 1 if there are any of the last three."""
    from ..reading.report import summary, text
    from ..reading.run import open_run

    document = summary.summarise(open_run(run), step)
    if json:
        _show.as_json(document)
    else:
        _show.console().print(text.render(document, every_rank))
    raise typer.Exit(FOUND_WRONG if summary.is_something_wrong(document) else 0)
