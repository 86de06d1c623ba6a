"""`mstxkit doctor`: what this installation has, what it lacks, what is set wrongly, and what `autopatch` finds."""

from __future__ import annotations

from typing import Optional

import typer

from . import FOUND_WRONG, _checks, _patches

_NAMES_HELP = "With --patches: import roots, name+extra, or .yaml files of targets, each target shown.  [default: all]"


def doctor(
    frameworks: Optional[list[str]] = typer.Argument(None, metavar="[FRAMEWORK]...", help=_NAMES_HELP),
    patches: bool = typer.Option(False, "--patches", help="Instead: what autopatch finds in what is installed here."),
    import_them: bool = typer.Option(False, "--import", help="With --patches: import each, in a process of its own."),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object."),
) -> None:
    """Check this installation, or what autopatch finds in it.

    Ends with 1 if something is wrong; a note is not wrong. Patches are read from the frameworks' source: nothing is
    imported but with --import.

    Example: mstxkit doctor --patches verl trl
    """
    if not patches and (frameworks or import_them):
        raise typer.BadParameter("frameworks are looked at with --patches", param_hint="--patches")
    if patches:
        _patches.show(frameworks or [], import_them, json)
    elif _checks.show(json):
        raise typer.Exit(FOUND_WRONG)
