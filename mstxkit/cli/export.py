"""`mstxkit export RUN --to FORMAT`: a run, or a part of it, as files of another tool."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import typer

from ..errors import ReadError
from ..reading.exporters import FOLDER, list_formats
from ..reading.report import choice
from ..reading.report.escape import for_terminal
from . import _output, _show

if TYPE_CHECKING:
    from ..reading.run import Run

_INTO_HELP = "Of ascend-db: add one rank's ranges to a copy of this profile of torch_npu."
_EXCEL_HELP = "Of csv: times in µs, and texts for numbers that Excel rounds."
_SINCE_HELP = "What goes on then or later: a time (2026-11-24T18:30; 18:30), or the last 30m, 2h, 45s of the run."
_SPAN = re.compile(r"(\d{1,6})\s*(s|m|h|d)", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def export(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    to: str = typer.Option(..., "--to", help=f"The format: {', '.join(list_formats())}.", show_default=False),
    output: Optional[Path] = typer.Option(
        None, "-o", "--output", help="The file or folder to write.  [default: the run's name with the format's suffix]"
    ),
    steps: Optional[str] = typer.Option(None, metavar="A:B", help="Steps A to B, both included; also A, A: and :B."),
    ranks: Optional[str] = typer.Option(None, metavar="0,3-5", help="These ranks only."),
    stages: Optional[str] = typer.Option(None, metavar="NAME,…", help="These stages only; * stands for anything."),
    since: Optional[str] = typer.Option(None, metavar="TIME", help=_SINCE_HELP),
    until: Optional[str] = typer.Option(None, metavar="TIME", help="What began before then; forms as of --since."),
    layout: Optional[str] = typer.Option(None, help="Of ascend-db: msmonitor (default) or torch-npu.", hidden=True),
    into: Optional[Path] = typer.Option(None, metavar="PROFILE", help=_INTO_HELP, hidden=True),
    excel: bool = typer.Option(False, "--excel", help=_EXCEL_HELP, hidden=True),
) -> None:
    """Write a run, or a part of it, as files of another tool.

    perfetto for ui.perfetto.dev, ascend-db for MindStudio Insight and msprof-analyze, csv and parquet for tables.

    Example: mstxkit export runs/exp7 --to perfetto --steps 100:110
    """
    from ..reading.exporters import load_exporter
    from ..reading.report.units import write_count

    if to not in list_formats():
        raise typer.BadParameter(f"{to!r} is no format; choose one of {', '.join(list_formats())}", param_hint="--to")
    exporter = load_exporter(to)
    of_format = {"layout": layout, "into": None if into is None else str(into), "excel": "yes" if excel else None}
    options = {name: value for name, value in of_format.items() if value is not None}
    if foreign := [name for name in options if name not in exporter.options]:
        raise typer.BadParameter(f"the format {to} has no such option", param_hint=f"--{foreign[0]}")
    of_part = {"steps": steps, "ranks": ranks, "stages": stages, "since": since, "until": until}
    typed = {name: text for name, text in of_part.items() if text is not None}
    opened = _open_part(run, typed)
    target = output or Path(f"{run.resolve().name}{exporter.suffix}")
    with _output.write_whole(target, exporter.form == FOLDER) as draft:
        with _show.show_progress("Exporting", opened.files.rows_at_most() * exporter.readings) as advance:
            opened.files.on_rows = advance
            count = exporter.write_to(opened, draft, **options)
        _check_found(count, opened, typed)
    typer.echo(f"{for_terminal(str(target))}: {write_count(count, 'event')}")
    if opened.damage:
        typer.echo(f"not all of the run could be read: mstxkit report {for_terminal(str(run))} says what is missing")
    for line in exporter.advice(target):
        typer.echo(for_terminal(line))


def _open_part(run: Path, typed: dict[str, str]) -> Run:
    """The run, of which a table has what the options name; all of it without options. Raises: ReadError where one is in
    no form that it may have, or nothing of the run answers to it.
    """
    from ..reading.run import open_run

    whole = open_run(run)
    if not typed:
        return whole
    wanted, processes = choice.read_choice(*map(typed.get, ("steps", "ranks", "stages"))), whole.processes()
    reach = whole.files.reach() if wanted.steps or wanted.stages else None
    choice.check_choice(wanted, processes["rank"], reach and reach.first_step, reach and reach.last_step)
    there, last_ns = processes["rank"].drop_nulls().unique(), processes["last_seen_ns"].max()
    assert isinstance(last_ns, (int, type(None)))
    within = None
    if wanted.steps and reach and reach.first_step is not None and reach.last_step is not None:
        within = range(max(wanted.steps.first, reach.first_step), min(wanted.steps.last, reach.last_step) + 1)
    return open_run(
        run,
        steps=within,
        ranks=None if wanted.ranks is None else [r for r in there if any(s.first <= r <= s.last for s in wanted.ranks)],
        stages=choice.names_of("stage", wanted.stages, reach.stages) if wanted.stages is not None and reach else None,
        **{name: _read_moment(f"--{name}", typed[name], last_ns) for name in ("since", "until") if name in typed},
    )


def _check_found(count: int, run: Run, typed: dict[str, str]) -> None:
    """Raises ReadError where options were given and left nothing: each has its place in the run, all of them none."""
    if typed and not count:
        options = (f"--{name} {text}" for name, text in typed.items())
        processes = run.processes()
        first, last = _as_text(processes["start_ns"].min()), _as_text(processes["last_seen_ns"].max())
        unread = "; not all of it could be read (mstxkit report)" if run.damage else ""
        raise ReadError(f"nothing of the run is left by {' '.join(options)}; it lasted from {first} to {last}{unread}")


def _as_text(moment: object) -> str:
    """A moment in ns in local time, as options take it."""
    if not isinstance(moment, int):
        return "?"
    return f"{datetime.fromtimestamp(min(max(moment, 0), 1 << 62) / 1e9):%Y-%m-%dT%H:%M:%S}"


def _read_moment(option: str, text: str, last_ns: int | None) -> int | datetime:
    if span := _SPAN.fullmatch(text.strip()):
        back = timedelta(**{_UNITS[span[2]]: int(span[1])})
        return (last_ns or 0) - round(back.total_seconds()) * 1_000_000_000
    try:
        if ":" in text.strip()[:3]:  # of a day: the last one of the run that has come so far
            last = datetime.fromtimestamp((last_ns or 0) / 1e9).astimezone()
            moment = datetime.combine(last, time.fromisoformat(text.strip())).astimezone()
            return moment if moment <= last else moment - timedelta(days=1)
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        forms = "give a time (2026-11-24T18:30, or 18:30), or a span (30m, 2h) before the end"
        raise ReadError(f"{option} {text!r}: {forms}") from None
