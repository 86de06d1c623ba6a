"""`mstxkit collect RUN`: seal what killed processes left on this host, move what is on its disk into the run, and turn
it all into Parquet.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import typer

from ..errors import MstxkitError
from ..host import folders
from ..reading.report.escape import for_terminal
from ..reading.report.units import write_size
from ..store import sealed_place
from ..store.care_record import SealedCare
from ..store.sealed_care import Moved, take_care
from . import FOUND_WRONG, _show, find_run

if TYPE_CHECKING:
    from ..reading.dataset.compacting import Compacted
    from ..recorder.adopt import Adopted

_WAIT_S = 60.0
_COMPACT_HELP = "Then turn sealed files into Parquet, of all hosts, with a summary of each stage, step and process."
_REMOVE_HELP = "With --compact: remove sealed files once all of them is in the dataset."
_RAY_HELP = "With --compact: one task on each node of the Ray that runs here turns its own files."


def collect(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    compact: bool = typer.Option(False, "--compact", help=_COMPACT_HELP),
    remove: bool = typer.Option(False, "--remove", help=_REMOVE_HELP),
    hosts: Optional[list[str]] = typer.Option(
        None, "--host", metavar="NAME", help="With --compact: of this host only; may be repeated."
    ),
    ray: bool = typer.Option(False, "--ray", help=_RAY_HELP),
    json: bool = typer.Option(False, "--json", help="What was done, as one JSON object."),
) -> None:
    """Seal and move what this host still holds of a run.

    What killed processes left is sealed; what is on this host's own disk moves into the run. With --compact,
    RUN/compact has it all as Parquet by day, role and host: all tables read either.

    What still runs is left alone. Ends with 1 where something could not be sealed, moved or compacted, with 2 where
    there is no such run.

    Example: mstxkit collect runs/exp7 --compact
    """
    if not compact and (remove or hosts or ray):
        raise typer.BadParameter("--remove, --host and --ray say how to: add --compact", param_hint="--compact")
    if ray and hosts:
        raise typer.BadParameter("with --ray each host turns its own files", param_hint="--host")
    folder, run_id = find_run(run)
    from ..recorder import adopt  # it loads the engine

    left: list[str] = []
    sealed = adopt.collect_dead(folder, on_problem=lambda name, exc: left.append(f"{name}: {exc}"))
    moved = _move_sealed(folder, run_id)
    done = compact_run(folder, hosts, remove, ray) if compact else None
    if json:
        document: dict[str, Any] = {"sealed": [process._asdict() for process in sealed], "not_sealed": left}
        document |= {"moved": moved.names, "problem": moved.problem}
        _show.as_json(document if done is None else {**document, "compacted": {"path": str(folder), **done._asdict()}})
    else:
        _tell_collected(sealed, moved, left)
        if done is not None:
            _tell_compacted(folder, done, hosts)
        elif not sealed and not left and moved == Moved([]):
            typer.echo("nothing to collect on this host")
    if moved.problem or left or (done is not None and done.left):
        raise typer.Exit(FOUND_WRONG)


def _move_sealed(run: Path, run_id: str) -> Moved:
    """From this host's own disks, as fast as it goes."""
    moved = Moved([])
    for place in sealed_place.on_this_host(run, run_id):
        care = SealedCare(run, run_id, folders.in_shared_memory() / run_id, place, math.inf)
        done = take_care(care, _WAIT_S) or Moved([], f"another process is at work on {place}")
        moved = Moved(moved.names + done.names, moved.problem or done.problem)
    return moved


def _tell_collected(sealed: list[Adopted], moved: Moved, left: list[str]) -> None:
    for why in left:
        typer.echo(f"not sealed: {for_terminal(why)}")
    for process in sealed:
        open_ranges = " and what it was inside of" if process.open_ranges else ""
        typer.echo(f"sealed {for_terminal(process.name)}: {process.records} records{open_ranges}")
    if moved.names:
        typer.echo(f"moved into the run: {len(moved.names)} sealed file{'' if len(moved.names) == 1 else 's'}")
    if moved.problem:
        typer.echo(f"not moved: {for_terminal(moved.problem)}")


def compact_run(run: Path, hosts: Optional[list[str]], remove: bool, ray: bool) -> Compacted:
    """Turn sealed files into Parquet, and remove them then where that is wanted; of these hosts, or with Ray each host
    its own. Raises: MstxkitError where it cannot be written.
    """
    from ..reading.dataset import compacting, on_ray

    try:
        with _show.show_progress("Compacting", None if ray else 1.0) as advance:
            return on_ray.compact_nodes(run, remove) if ray else compacting.compact_files(run, hosts, remove, advance)
    except OSError as exc:
        raise MstxkitError(f"{run} cannot be compacted: {exc.strerror or exc}") from exc


def _tell_compacted(run: Path, done: Compacted, hosts: Optional[list[str]]) -> None:
    """What became of them, and which hosts there are where others were asked for."""
    from ..reading.dataset import compacting

    words = "nothing to compact: all sealed files are in the dataset, or are still written to"
    if done.batches or done.removed or done.left:
        of_parquet = f"{done.ranges} ranges and {done.summaries} summaries, {write_size(done.bytes)} of Parquet"
        words = f"{done.files} sealed files ({write_size(done.sealed_bytes)}): {of_parquet}"
    typer.echo(words)
    if done.removed:
        typer.echo(f"removed: {done.removed} sealed files")
    if done.left:
        typer.echo(f"left as they are: {done.left} sealed files that cannot be read whole; mstxkit report says why")
    there = compacting.hosts_of(run) if hosts else []
    if unknown := sorted({*(hosts or ())} - {*there}):
        typer.echo(for_terminal(f"no sealed file is of host {', '.join(unknown)}: they are of {', '.join(there)}"))
