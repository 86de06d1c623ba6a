"""`mstxkit doctor`: what this installation has, what it lacks, and what is set wrongly."""

from __future__ import annotations

import typer

from . import FOUND_WRONG, _activation, _checks, _show


def doctor(json: bool = typer.Option(False, "--json", help="The checks as JSON.")) -> None:
    """Check this installation. Ends with 1 if something is wrong; a note is not wrong.

    Example: mstxkit doctor
    """
    checks = _checks.installation()
    if json:
        _show.as_json({"checks": [check._asdict() for check in checks]})
    else:
        _show.console().print(_checks.table(checks))
    raise typer.Exit(FOUND_WRONG if any(check.level == _activation.WRONG for check in checks) else 0)
