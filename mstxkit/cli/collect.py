"""`mstxkit collect RUN`: seal what killed processes left on this host, and move what is on its disk into the run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..host import folders
from ..reading.report.escape import for_terminal
from ..store import sealed_place
from ..store.care_record import SealedCare
from ..store.moving import Moved
from ..store.sealed_care import take_care
from . import FOUND_WRONG, _run_folder, _show

if TYPE_CHECKING:
    from ..recorder.adopt import Adopted

_WAIT_S = 60.0


def collect(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    json: bool = typer.Option(False, "--json", help="The names of what was sealed, as JSON."),
) -> None:
    """Seal and move what this host still holds of a run.

    What killed processes left is sealed; what is on this host's own disk moves into the run.

    What still runs is left alone. Ends with 1 where something could not be sealed or moved, with 2 where there is no
    such run.

    Example: mstxkit collect runs/exp7
    """
    folder, run_id = _run_folder.found(run)
    from ..recorder import adopt  # it loads the engine

    left: list[str] = []
    sealed = adopt.collect(folder, on_problem=lambda name, exc: left.append(f"{name}: {exc}"))
    moved = _moved(folder, run_id)
    if json:
        document = {"sealed": [process._asdict() for process in sealed], "moved": moved.names, "problem": moved.problem}
        _show.as_json({**document, "not_sealed": left})
    else:
        _say(sealed, moved, left)
    if moved.problem or left:
        raise typer.Exit(FOUND_WRONG)


def _moved(run: Path, run_id: str) -> Moved:
    """From this host's own disks, as fast as it goes."""
    moved = Moved([])
    for place in sealed_place.on_this_host(run, run_id):
        done = take_care(SealedCare(run, run_id, folders.in_shared_memory() / run_id, place, math.inf), _WAIT_S)
        problem = f"another process is at work on {place}" if done is None else done.problem
        moved = Moved(moved.names + ([] if done is None else done.names), moved.problem or problem)
    return moved


def _say(sealed: list[Adopted], moved: Moved, left: list[str]) -> None:
    for why in left:
        typer.echo(f"not sealed: {for_terminal(why)}")
    for process in sealed:
        open_ranges = " and what it was inside of" if process.open_ranges else ""
        typer.echo(f"sealed {for_terminal(process.name)}: {process.records} records{open_ranges}")
    if moved.names:
        typer.echo(f"moved into the run: {len(moved.names)} sealed file{'' if len(moved.names) == 1 else 's'}")
    if moved.problem:
        typer.echo(f"not moved: {for_terminal(moved.problem)}")
    if not sealed and not left and moved == Moved([]):
        typer.echo("nothing to collect on this host")
