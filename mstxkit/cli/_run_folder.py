"""The run that a command names: its folder, which may be given as a link, and its id."""

from __future__ import annotations

from pathlib import Path

from ..errors import ReadError
from ..store import layout, run_file


def folder_of(run: Path) -> Path:
    """The folder, resolved. Raises: ReadError where there is none, or it is no run."""
    if not layout.is_run(run):
        raise ReadError(run_file.why_none(run))
    return run.resolve()


def found(run: Path) -> tuple[Path, str]:
    """The folder, resolved, and the run's id. Raises: ReadError also where a damaged run has none."""
    folder = folder_of(run)
    run_id = run_file.id_of(folder)
    if run_id is None:
        raise ReadError(run_file.why_none(run))
    return folder, run_id
