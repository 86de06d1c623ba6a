"""`mstxkit config show|convert FILE`: Show what a configuration means, or write it for another system.

FILE is a YAML, JSON, shell or Python file of any system that is known, a folder that holds a profiler_config.json, or
`env` for what this shell has set.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Iterator, Optional

import typer

from ..errors import ConfigError
from ..reading.report.escape import for_rich, for_terminal
from . import FOUND_WRONG, WRONG_USE, _show

if TYPE_CHECKING:
    from ..config.configuring import Understood

_FEW_EXTRAS = 8
_FILE_HELP = "YAML, JSON, shell or Python file (read, never run), a folder with a profiler_config.json, or env."
_FILE = typer.Argument(..., metavar="FILE", help=_FILE_HELP)
_FROM = typer.Option(None, "--from", metavar="FLAVOUR", help="Whose configuration it is, where the file holds several.")
_BRANCH_HELP = "Which branch of a script, or which call in a Python file, is meant: a line in it, or not:LINE."
_BRANCH = typer.Option([], "--branch", metavar="LINE", help=_BRANCH_HELP)
_VERL_HELP = "Which verl is meant (0.5.0) where that matters; else the one installed, or the newest."
_VERL = typer.Option(None, "--verl-version", metavar="VERSION", help=_VERL_HELP)
_JSON = typer.Option(False, "--json", help="Everything as one JSON object.")


def show(
    file: str = _FILE, flavour: Optional[str] = _FROM, branch: list[str] = _BRANCH,
    verl_version: Optional[str] = _VERL, json: bool = _JSON,
) -> None:  # fmt: skip
    """Show what a configuration means, and where it says so.

    Ends with 1 where it is wrong: then what is wrong, where, and what is allowed. With 2 where it cannot be read.

    Example: mstxkit config show ppo_trainer.yaml --from verl
    """
    from ..config.adapters import flatten_config

    with _reading(file, flavour, branch, verl_version) as understood:
        fields = flatten_config(understood.read.config)
    if json:
        _show.as_json({"source": understood.source.name, **_as_document(understood)})
        return
    console = _show.open_console()
    console.print(f"{understood.source.name}: {understood.flavour}", markup=False)
    table = _show.make_table()
    table.add_column("field", no_wrap=True)
    table.add_column("value", overflow="fold", max_width=60)
    table.add_column("given", overflow="fold")
    for field, value in fields.items():
        place = understood.read.places.get(field) or understood.read.places.get(field.partition(".")[0])
        if field == "extras":
            value = {name: kept if len(kept) <= _FEW_EXTRAS else f"{len(kept)} keys" for name, kept in value.items()}
        origin = "default" if place is None else " ".join(filter(None, [str(place.line or ""), place.key]))
        table.add_row(*(for_rich(text) for text in (field, _show_value(value), origin)))
    console.print(table)
    _tell_notes(understood)


def convert(
    file: str = _FILE, to: str = typer.Option(..., "--to", metavar="FLAVOUR", help="What to write it as."),
    flavour: Optional[str] = _FROM, branch: list[str] = _BRANCH,
    verl_version: Optional[str] = _VERL, json: bool = _JSON,
) -> None:  # fmt: skip
    """Write a configuration for another system to standard output.

    What that system cannot express is said on standard error.

    Example: mstxkit config convert ppo_trainer.yaml --to mindspeed_rl
    """
    from ..config import adapters, configuring
    from ..config.adapters import _verl_roles, verl, verl_0_5

    if to not in adapters.by_flavour():
        _show.stop_command(f"--to {to}: choose one of {', '.join(adapters.by_flavour())}", WRONG_USE)
    with _reading(file, flavour, branch, verl_version) as understood:
        if to == verl.FLAVOUR and not _verl_roles.at_least(0, 6):  # the form that the verl which is meant takes
            to = verl_0_5.FLAVOUR
        written = configuring.write_flavour(understood.read.config, to)
    if json:
        lost = [field._asdict() for field in written.lost]
        conversion = {"source": understood.source.name, "to": to, "text": written.text, "lost": lost}
        _show.as_json({**_as_document(understood), **conversion, "notes": [*understood.read.notes, *written.notes]})
        return
    print(written.text, end="" if written.text.endswith("\n") else "\n")
    _tell_notes(understood, written.notes)
    for field in written.lost:
        typer.echo(f"{to} cannot express {field.field}={_show_value(field.value)}: {for_terminal(field.why)}", err=True)


COMMANDS = (show, convert)


@contextlib.contextmanager
def _reading(file: str, flavour: str | None, branches: list[str], verl_version: str | None) -> Iterator[Understood]:
    """What a file means, read and in the body written as that version of verl does."""
    from ..config import configuring, sources
    from ..config.adapters import _verl_roles

    try:
        with _verl_roles.meant_version(verl_version):
            try:
                source = sources.read_source(os.environ if file == "env" else file, branches)
                understood = configuring.understand_source(source, flavour)
            except ConfigError as exc:
                _show.stop_command(str(exc), FOUND_WRONG if exc.problems else WRONG_USE)
            yield understood
    except ConfigError as exc:
        _show.stop_command(f"--verl-version: {exc}", WRONG_USE)


def _as_document(understood: Understood) -> dict[str, Any]:
    return {
        "flavour": understood.flavour, "config": understood.read.config.model_dump(mode="json"),
        "places": {field: place._asdict() for field, place in understood.read.places.items()},
        "notes": list(understood.read.notes), "warnings": list(understood.warnings),
    }  # fmt: skip


def _show_value(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, default=str)


def _tell_notes(understood: Understood, more_notes: tuple[str, ...] = ()) -> None:
    for kind, texts in (("note", (*understood.read.notes, *more_notes)), ("warning", understood.warnings)):
        for text in texts:
            typer.echo(f"{kind}: {for_terminal(text)}", err=True)
