"""`mstxkit import PATH… --run RUN`: what other tools recorded of the devices, joined with the stages of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import typer

from ..errors import MstxkitError
from ..reading.report.escape import for_rich, for_terminal
from ..reading.report.units import write_duration
from . import FOUND_WRONG, _show, find_run

_PATHS_HELP = "Files, or folders with them. [default: the run's own profiles]"
_RANK_HELP = "Whose they are, where neither a file nor its name says so."
_ROWS_SHOWN = 64


def import_(
    paths: Optional[list[Path]] = typer.Argument(None, metavar="[PATH]...", help=_PATHS_HELP, show_default=False),
    run: Path = typer.Option(..., "--run", help="The run's folder.", show_default=False),
    rank: Optional[int] = typer.Option(None, "--rank", min=0, help=_RANK_HELP, show_default=False),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Join what devices did with the stages of a run.

    Databases and traces of torch_npu, MindSpore, msprof, msMonitor and torch.

    Ends with 1 if something could not be read, or not be joined.

    Example: mstxkit import /data/prof/*_ascend_pt --run runs/exp7
    """
    from ..reading.importers import _importing, _places
    from ..reading.run import Damage, open_run
    from ..reading.tables import device

    find_run(run)  # without an id nothing can be kept in it
    opened = open_run(run)
    damage: list[Damage] = []
    if paths:
        sources = _places.find_files(paths, damage)
    else:
        sources = [source for source, _ in device.own_profiles(opened.files, run, is_limited=False)]
    size = sum(source.size for source in sources)
    with _show.show_progress("Importing", total=size) as advance:
        imported = _importing.import_all(opened.files, sources, advance, rank)
    for source, made in zip(sources, imported):
        if why := _importing.try_to_keep(run, opened.id, source, made):
            raise MstxkitError(f"{run}: what was imported cannot be kept: {why}")
    damage += [part for made in imported for part in made.damage]
    if json:
        files = [{**made.about(), "file": made.file, "rows": made.rows} for made in imported]
        _show.as_json({"files": files, "damage": [part._asdict() for part in damage]})
    else:
        _print_imported(imported, damage, is_own=not paths)
    if damage or any(made.problem for made in imported):
        raise typer.Exit(FOUND_WRONG)


def _print_imported(imported: list[Any], damage: list[Any], is_own: bool) -> None:
    for made in imported:
        ranks = ", ".join(str(rank) for rank in made.ranks[:8]) + (", …" if len(made.ranks) > 8 else "")
        events = f"{made.source}, rank {ranks}, {made.events:,} events, {len(made.rows)} stages"
        joined = f"not imported: {made.file} {made.problem}"
        if not made.problem:
            clock = made.clocks[0]
            how = f"{clock['how']} ({clock['matches']} agree)" if clock["matches"] else clock["how"]
            joined = f"{made.file}: {events}; clocks by {how}, right to {write_duration(clock['error_ns'])}"
        typer.echo(for_terminal(joined))
        for note in made.notes:
            typer.echo(for_terminal(f"  {note}"))
    _print_rows(imported)
    shown = {(made.file, made.problem) for made in imported}
    for part in damage:
        if (part.path, part.reason) not in shown:
            place = f" at byte {part.offset}" if part.offset else ""
            typer.echo(for_terminal(f"cannot be read: {part.path}{place}: {part.reason}"))
    if not imported and not damage:
        typer.echo("No profile of the run is left to import." if is_own else "There is nothing to import.")


def _print_rows(imported: list[Any]) -> None:
    """Each stage of each rank as each file tells it: a step of it, as a mean over the steps.

    With the names of files only where several tell of one stage of a rank, with spans only where there are any.
    """
    import polars as pl

    from ..reading.importers._join import DEVICE_SCHEMA
    from ..reading.report import devices

    rows = [{**row, "file": str(number)} for number, file in enumerate(imported) for row in file.rows]
    means = devices.take_means(pl.DataFrame(rows, schema=DEVICE_SCHEMA), "stage", "rank", "file")
    lines = means.sort("stage", "rank", pl.col("file").cast(pl.Int64)).to_dicts()
    spans = ("spans",) if any(row["spans_ns"] is not None for row in lines) else ()
    whose = ("file",) if len({(row["stage"], row["rank"]) for row in lines}) < len(lines) else ()
    numbers = ("rank", "steps", "recorded", *devices.PARTS, *spans)
    table = _show.make_table("stage", *whose, *numbers, right=numbers)
    for row in lines[:_ROWS_SHOWN]:
        file = for_rich(Path(imported[int(row["file"])].file).name, 40)
        times = devices.write_times(row, "?", (*devices.TIMES, *(f"{name}_ns" for name in spans)))
        table.add_row(for_rich(row["stage"], 40), *(file for _ in whose), str(row["rank"]), str(row["steps"]), *times)
    if lines:
        _show.open_console().print(table)
    if len(lines) > _ROWS_SHOWN:
        typer.echo(f"… and {len(lines) - _ROWS_SHOWN} more: open_run(RUN).device()")
