"""How verbs show things: rich on a terminal, the same in plain text in a pipe, JSON when asked for."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Mapping, NoReturn, Sequence

from ..reading.report.escape import for_terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ..reading.report.number_table import PlainTable

PIPE_COLUMNS = 120


def console() -> Console:
    """Standard output. In a pipe 120 columns wide, unless COLUMNS says otherwise."""
    from rich.console import Console

    class Output(Console):
        def print(self, *shown: Any, **options: Any) -> None:
            super().print(*shown, crop=False, **options)  # a terminal breaks what is longer, and cuts nothing

        def on_broken_pipe(self) -> None:
            raise  # the one that is being handled; rich would end with 1

    output = Output(highlight=False)
    if not output.is_terminal and not os.environ.get("COLUMNS"):
        output.width = PIPE_COLUMNS
    return output


def table(*columns: str, right: Sequence[str] = (), has_header: bool = True, **options: Any) -> PlainTable:
    """A table of these columns, `options` are rich's for them; numbers, in those on the `right`, never wrap."""
    from ..reading.report.number_table import PlainTable

    made = PlainTable(has_header=has_header)
    for name in columns:
        number: dict[str, Any] = {"justify": "right", "no_wrap": True} if name in right else {}
        made.add_column(name, **{"overflow": "fold", **options, **number})
    return made


def stop(message: str, status: int) -> NoReturn:
    """End the command with this message, each of its lines as ours."""
    import typer

    for line in message.splitlines():
        say(line)
    raise typer.Exit(status)


def say(text: str) -> None:
    """A line of ours on standard error, at once."""
    import typer

    typer.echo(f"mstxkit: {for_terminal(text)}", err=True)


def as_json(fields: Mapping[str, Any]) -> None:
    """One object on standard output, as JSON in ASCII, with `schema`, the number of its form: 1 where it has none."""
    print(json.dumps({"schema": 1, **fields}, indent=2, default=str))
