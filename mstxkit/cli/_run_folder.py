"""The run that a command names: its folder, which may be given as a link, and its id."""

from __future__ import annotations

from pathlib import Path

from ..errors import ReadError
from ..store import layout, run_file


def found(run: Path) -> tuple[Path, str]:
    """The folder, resolved, and the run's id.

    Raises:
        ReadError: there is no such folder, or it is no run.
    """
    folder = run.resolve()
    if not folder.is_dir():
        raise ReadError(f"{run}: no such run folder; a run is the folder that was given to capture() or MSTXKIT_RUN")
    run_id = run_file.id_of(folder)
    if run_id is None:
        raise ReadError(f"{run}: not a run, or a damaged one: {run / layout.RUN_FILE} does not say its id")
    return folder, run_id
