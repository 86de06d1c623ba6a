"""What `mstxkit collect --compact` does: sealed files become a Parquet dataset, with a summary of each stage that is
always kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Optional

import typer

from ..errors import MstxkitError
from ..reading.report.escape import for_terminal
from ..reading.report.units import size
from ._progress import progress

if TYPE_CHECKING:
    from ..reading.dataset.compacting import Compacted


def compacted(run: Path, hosts: Optional[list[str]], remove: bool, ray: bool) -> Compacted:
    """Turn sealed files into Parquet, and remove them then where that is wanted; of these hosts, or with Ray each host
    its own. Raises: MstxkitError where it cannot be written.
    """
    from ..reading.dataset import compacting, on_ray

    try:
        with progress("Compacting", None if ray else 1.0) as advance:
            return on_ray.compact(run, remove) if ray else compacting.compact(run, hosts, remove, advance)
    except OSError as exc:
        raise MstxkitError(f"{run} cannot be compacted: {exc.strerror or exc}") from exc


def say(run: Path, done: Compacted, hosts: Optional[list[str]]) -> None:
    """What became of them, and which hosts there are where others were asked for."""
    from ..reading.dataset import compacting

    _say(done)
    there = compacting.hosts_of(run) if hosts else []
    if unknown := sorted({*(hosts or ())} - {*there}):
        typer.echo(for_terminal(f"no sealed file is of host {', '.join(unknown)}: they are of {', '.join(there)}"))


def _say(done: Compacted) -> None:
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
