"""`mstxkit config show|convert FILE`: What a profiling configuration means, and the same for another system.

FILE is a YAML, JSON or shell file of any system that is known, a folder that holds a profiler_config.json, or `env` for
what this shell has set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import typer

from . import FOUND_WRONG, WRONG_USE, _show

if TYPE_CHECKING:
    from ..config.adapters import Written
    from ..config.configuring import Understood

_FEW_EXTRAS = 8
_FILE_HELP = "YAML, JSON or shell file, a folder with a profiler_config.json, or env."
_FROM_HELP = "Whose configuration it is, where the file holds several."
_FILE = typer.Argument(..., metavar="FILE", help=_FILE_HELP)
_FROM = typer.Option(None, "--from", metavar="FLAVOUR", help=_FROM_HELP)
_JSON = typer.Option(False, "--json", help="Everything as one JSON object.")


def show(file: str = _FILE, flavour: Optional[str] = _FROM, json: bool = _JSON) -> None:  # noqa: UP045
    """Show what a configuration means: every field, and where it was given."""
    found = _understood(file, flavour)
    if json:
        _show.as_json({"source": found.source.name, **_meaning(found)})
        return
    console = _show.console()
    console.print(f"{found.source.name}: {found.flavour}", markup=False)
    console.print(_table(found))
    _tell(found)


def convert(
    file: str = _FILE, to: str = typer.Option(..., "--to", metavar="FLAVOUR", help="What to write it as."),
    flavour: Optional[str] = _FROM, json: bool = _JSON,  # noqa: UP045
) -> None:  # fmt: skip
    """Write a configuration for another system to standard output, and what that cannot express to standard error."""
    from ..config import adapters, configuring

    if to not in adapters.known():
        _stop(f"--to {to}: choose one of {', '.join(adapters.known())}", WRONG_USE)
    found = _understood(file, flavour)
    written = configuring.write(found.read.config, to)
    if json:
        lost = [{"field": one.field, "value": one.value, "why": one.why} for one in written.lost]
        _show.as_json({"source": found.source.name, "to": to, "text": written.text, "lost": lost, **_meaning(found)})
        return
    print(written.text, end="" if written.text.endswith("\n") else "\n")
    _tell(found)
    _tell_lost(to, written)


COMMANDS = (show, convert)


def _understood(file: str, flavour: str | None) -> Understood:
    import os

    from ..config import configuring
    from ..errors import ConfigError

    try:
        return configuring.understand(os.environ if file == "env" else file, flavour)
    except ConfigError as exc:
        _stop(str(exc), FOUND_WRONG if exc.problems else WRONG_USE)
    raise AssertionError  # _stop does not return


def _stop(message: str, status: int) -> None:
    from ..report.escape import for_terminal

    for line in message.splitlines():
        typer.echo(f"mstxkit: {for_terminal(line)}", err=True)
    raise typer.Exit(status)


def _meaning(found: Understood) -> dict[str, Any]:
    return {
        "flavour": found.flavour,
        "config": found.read.config.model_dump(mode="json"),
        "places": {field: place._asdict() for field, place in found.read.places.items()},
        "notes": list(found.read.notes),
        "warnings": list(found.warnings),
    }


def _table(found: Understood) -> Any:
    from rich.table import Table

    from ..config.adapters import flat
    from ..report.escape import for_rich

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("field", no_wrap=True)
    table.add_column("value", overflow="fold", max_width=60)
    table.add_column("given", overflow="fold")
    for field, value in flat(found.read.config).items():
        place = found.read.places.get(field) or found.read.places.get(field.partition(".")[0])
        if field == "extras":
            value = {name: kept if len(kept) <= _FEW_EXTRAS else f"{len(kept)} keys" for name, kept in value.items()}
        given = "default" if place is None else " ".join(filter(None, [str(place.line or ""), place.key]))
        table.add_row(*(for_rich(text) for text in (field, _shown(value), given)))
    return table


def _shown(value: Any) -> str:
    import json

    return value if isinstance(value, str) and value else json.dumps(value, default=str)


def _tell(found: Understood) -> None:
    from ..report.escape import for_terminal

    for kind, texts in (("note", found.read.notes), ("warning", found.warnings)):
        for text in texts:
            typer.echo(f"{kind}: {for_terminal(text)}", err=True)


def _tell_lost(to: str, written: Written) -> None:
    from ..report.escape import for_terminal

    for one in written.lost:
        typer.echo(f"{to} cannot express {one.field}={_shown(one.value)}: {for_terminal(one.why)}", err=True)
