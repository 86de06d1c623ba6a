"""`mstxkit export RUN --to FORMAT`: a run as a file of another tool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import typer

from ..errors import MstxkitError
from ..reading.exporters import formats


def export(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    to: str = typer.Option(..., "--to", help=f"The format: {', '.join(formats())}.", show_default=False),
    output: Optional[Path] = typer.Option(
        None, "-o", "--output", help="The file to write.  [default: the run folder's name with the format's suffix]"
    ),
) -> None:
    """Write a run as another tool's file: chrome for Perfetto.

    Example: mstxkit export runs/exp7 --to chrome -o exp7.json
    """
    from ..reading.exporters import load
    from ..reading.run import open_run

    if to not in formats():
        raise typer.BadParameter(f"{to!r} is no format; choose one of {', '.join(formats())}", param_hint="--to")
    exporter, opened = load(to), open_run(run)
    target = output or Path(f"{run.resolve().name}{exporter.suffix}")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(draft, "w", encoding="utf-8") as file:
            count = exporter.write(opened, file)
        os.replace(draft, target)
    except OSError as exc:
        raise MstxkitError(f"{target} cannot be written: {exc.strerror or exc}") from exc
    finally:
        draft.unlink(missing_ok=True)
    typer.echo(f"{target}: {count} events")
