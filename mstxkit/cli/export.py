"""`mstxkit export RUN --to FORMAT`: a run, or a part of it, as files of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import typer

from ..reading.exporters import FOLDER, formats
from ..reading.report.escape import for_terminal
from . import _choosing, _output
from ._progress import progress

_INTO_HELP = "Of ascend-db: add one rank's ranges to a copy of this profile of torch_npu."
_EXCEL_HELP = "Of csv: times in µs, and texts for numbers that Excel rounds."


def export(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    to: str = typer.Option(..., "--to", help=f"The format: {', '.join(formats())}.", show_default=False),
    output: Optional[Path] = typer.Option(
        None, "-o", "--output", help="The file or folder to write.  [default: the run's name with the format's suffix]"
    ),
    steps: Optional[str] = typer.Option(None, metavar="A:B", help=_choosing.STEPS_HELP),
    ranks: Optional[str] = typer.Option(None, metavar="0,3-5", help=_choosing.RANKS_HELP),
    stages: Optional[str] = typer.Option(None, metavar="NAME,…", help=_choosing.STAGES_HELP),
    since: Optional[str] = typer.Option(None, metavar="TIME", help=_choosing.SINCE_HELP),
    until: Optional[str] = typer.Option(None, metavar="TIME", help=_choosing.UNTIL_HELP),
    layout: Optional[str] = typer.Option(None, help="Of ascend-db: msmonitor (default) or torch-npu.", hidden=True),
    into: Optional[Path] = typer.Option(None, metavar="PROFILE", help=_INTO_HELP, hidden=True),
    excel: bool = typer.Option(False, "--excel", help=_EXCEL_HELP, hidden=True),
) -> None:
    """Write a run, or a part of it, as files of another tool.

    perfetto for ui.perfetto.dev, ascend-db for MindStudio Insight and msprof-analyze, csv and parquet for tables.

    Example: mstxkit export runs/exp7 --to perfetto --steps 100:110
    """
    from ..reading.exporters import load
    from ..reading.report.units import counted

    if to not in formats():
        raise typer.BadParameter(f"{to!r} is no format; choose one of {', '.join(formats())}", param_hint="--to")
    exporter = load(to)
    options = _options(
        to, exporter.options, layout=layout, into=None if into is None else str(into), excel="yes" if excel else None
    )
    opened = _choosing.opened(run, steps, ranks, stages, since, until)
    target = output or Path(f"{run.resolve().name}{exporter.suffix}")
    with _output.whole(target, exporter.form == FOLDER) as draft:
        with progress("Exporting", opened.files.rows_at_most() * exporter.readings) as advance:
            opened.files.on_rows = advance
            count = exporter.write_to(opened, draft, **options)
        _choosing.check_found(count, opened, steps=steps, ranks=ranks, stages=stages, since=since, until=until)
    typer.echo(f"{for_terminal(str(target))}: {counted(count, 'event')}")
    if opened.damage:
        typer.echo(f"not all of the run could be read: mstxkit report {for_terminal(str(run))} says what is missing")
    for line in exporter.advice(target):
        typer.echo(for_terminal(line))


def _options(to: str, its_own: Any, **typed: str | None) -> dict[str, str]:
    """What was given of a format's own options."""
    options = {name: value for name, value in typed.items() if value is not None}
    for name in options:
        if name not in its_own:
            raise typer.BadParameter(f"the format {to} has no such option", param_hint=f"--{name}")
    return options
