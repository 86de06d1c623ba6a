"""The run that a command names: its folder, which may be given as a link, and its id."""

from __future__ import annotations

from pathlib import Path

from ..errors import ReadError
from ..store import layout, run_file


def find_run(run: Path) -> tuple[Path, str]:
    """The folder, resolved, and the run's id. Raises: ReadError where it is no run, or a damaged one without an id."""
    folder = run.resolve()
    run_id = run_file.id_of(folder) if layout.is_run(run) else None
    if run_id is None:
        raise ReadError(run_file.why_none(run))
    return folder, run_id
