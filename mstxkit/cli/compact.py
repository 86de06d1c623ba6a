"""`mstxkit compact RUN`: sealed files become a Parquet dataset, with a summary of each stage that is always kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Optional

import typer

from ..errors import MstxkitError
from ..reading.report.escape import for_terminal
from . import FOUND_WRONG, _run_folder, _show
from ._progress import progress

if TYPE_CHECKING:
    from ..reading.dataset.compacting import Compacted


def compact(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    remove: bool = typer.Option(False, "--remove", help="Remove sealed files once all of them is in the dataset."),
    hosts: Optional[list[str]] = typer.Option(None, "--host", metavar="NAME", help="Of this host only; repeatable."),
    ray: bool = typer.Option(False, "--ray", help="One task on each node of the Ray that runs here."),
    json: bool = typer.Option(False, "--json", help="What was done, as JSON."),
) -> None:
    """Turn sealed files into Parquet.

    They become files by day, role and host in RUN/compact, and a summary of each stage, step and process. All tables
    read either. What is still written to is left for the next time. With --ray, each host turns its own files.

    Example: mstxkit compact runs/exp7 --remove
    """
    from ..reading.dataset import compacting, on_ray

    if ray and hosts:
        raise typer.BadParameter("with --ray each host turns its own files", param_hint="--host")
    path = _run_folder.folder_of(run)
    try:
        with progress("Compacting", None if ray else 1.0) as advance:
            done = on_ray.compact(path, remove) if ray else compacting.compact(path, hosts, remove, advance)
    except OSError as exc:
        raise MstxkitError(f"{run} cannot be compacted: {exc.strerror or exc}") from exc
    if json:
        _show.as_json({"path": str(path), **done._asdict()})
    else:
        _say(done)
        there = compacting.hosts_of(path) if hosts else []
        if unknown := sorted({*(hosts or ())} - {*there}):
            typer.echo(for_terminal(f"no sealed file is of host {', '.join(unknown)}: they are of {', '.join(there)}"))
    if done.left:
        raise typer.Exit(FOUND_WRONG)


def _say(done: Compacted) -> None:
    from ..reading.report.units import size

    if not done.batches and not done.removed and not done.left:
        typer.echo("nothing to compact: all sealed files are in the dataset, or are still written to")
        return
    typer.echo(
        f"{done.files} sealed files ({size(done.sealed_bytes)}): {done.ranges} ranges and {done.summaries} summaries, "
        f"{size(done.bytes)} of Parquet"
    )
    if done.removed:
        typer.echo(f"removed: {done.removed} sealed files")
    if done.left:
        typer.echo(f"left as they are: {done.left} sealed files that cannot be read whole; mstxkit report says why")
