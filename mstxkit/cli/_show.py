"""How verbs show things: rich on a terminal, the same in plain text in a pipe, JSON when asked for."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, NoReturn

import typer

from ..reading.report.escape import for_terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ..reading.report.number_table import PlainTable

PIPE_COLUMNS = 120
Advance = Callable[[float], None]
_DRAWN_EVERY_S = 0.1


def open_console() -> Console:
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


def make_table(*columns: str, **options: Any) -> PlainTable:
    """A table of these columns."""
    from ..reading.report.number_table import PlainTable

    return PlainTable(*columns, **options)


def stop_command(message: str, status: int) -> NoReturn:
    """End the command with this message, each of its lines as ours."""
    for line in message.splitlines():
        say_line(line)
    raise typer.Exit(status)


def say_line(text: str) -> None:
    """A line of ours on standard error, at once."""
    typer.echo(f"mstxkit: {for_terminal(text)}", err=True)


def as_json(fields: Mapping[str, Any]) -> None:
    """One object on standard output, as JSON in ASCII, with `schema`, the number of its form: 1 where it has none."""
    print(json.dumps({"schema": 1, **fields}, indent=2, default=str))


@contextmanager
def show_progress(what: str, total: float | None = None) -> Iterator[Advance]:
    """A bar on standard error shows how far `what` has come while the body runs; in a pipe, in a file and on a dumb
    terminal nothing does. It is gone when the body ends, however that is.

    `with progress("Exporting", total=rows) as advance: advance(1000)` says that a thousand more are done: as often as
    you like, from any one thread; it never raises. `what` is plain text; `total` is None where nobody knows.
    """
    try:
        is_seen = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    except ValueError:  # a closed stream
        is_seen = False
    if not is_seen:
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    how_far = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if total else (SpinnerColumn(),)
    columns = (TextColumn("{task.description}", markup=False), *how_far)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total or None)
        waiting, drawn_at = 0.0, time.monotonic()

        def advance(amount: float) -> None:
            nonlocal waiting, drawn_at
            waiting += amount
            now = time.monotonic()
            if now - drawn_at >= _DRAWN_EVERY_S:
                bar.advance(task, waiting)
                waiting, drawn_at = 0.0, now

        yield advance
