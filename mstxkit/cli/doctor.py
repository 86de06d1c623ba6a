"""`mstxkit doctor`: what this installation has, what it lacks, and what is set wrongly."""

from __future__ import annotations

import typer

from . import FOUND_WRONG, _checks


def doctor(json: bool = typer.Option(False, "--json", help="The checks as JSON.")) -> None:
    """Check this installation. Ends with 1 if something is wrong; a note is not wrong.

    Example: mstxkit doctor
    """
    raise typer.Exit(FOUND_WRONG if _checks.show(json) else 0)
