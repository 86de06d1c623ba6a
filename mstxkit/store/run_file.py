"""The run folder and `run.json` in it: the id that the first process of a run writes and all others read.

Hosts that do not share the folder write one each. They agree where the id was handed on to them, or where their
launcher says which job they are of (`host/launch.py`). A run folder given as a symbolic link is resolved once, at the
start; inside it no link is followed.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ..errors import CaptureError
from ..host import environment, folders, launch
from . import documents, layout

_NAMED = 3  # of the runs in a folder that is none


def open_run_folder(path: str | os.PathLike[str], new_id: str = "") -> tuple[Path, str]:
    """Make or check a run folder and return it, resolved, with the run's id.
    `new_id`: what its id becomes, where it is no run yet; default: as `likely_id`.
    Raises CaptureError: it cannot be made, is not a folder, belongs to somebody else, or is not writable.
    """
    asked = Path(path)
    try:
        folder = Path(os.path.realpath(asked))
        _make_folders(folder)
        return folder, _agreed_id(folder, new_id if is_run_id(new_id) else likely_id(asked))
    except (OSError, ValueError) as exc:
        raise CaptureError(
            f"the run folder {asked} cannot be used: {getattr(exc, 'strerror', None) or exc}; "
            "give capture() or MSTXKIT_RUN a folder that this user can write"
        ) from exc


def likely_id(asked: str | os.PathLike[str]) -> str:
    """The id of a run in a folder that is none yet: as it was handed on to this process, else as all hosts of its job
    draw it from what their launcher says and from the folder, else a random one.
    """
    handed_on, folder = os.environ.get(environment.RUN_ID, ""), os.environ.get(environment.RUN)
    if is_run_id(handed_on) and folder and os.path.realpath(folder) == os.path.realpath(asked):
        return handed_on
    return launch.run_id(os.path.abspath(os.fspath(asked))) or os.urandom(16).hex()


def put_back_run_folder(folder: Path, run_id: str) -> None:
    """Make a run folder again that was removed under its running processes, as the same run.
    Raises CaptureError: something else stands there now; OSError: it cannot be made.
    """
    _make_folders(folder)
    _write_run(folder, run_id)


def remove_empty(folder: Path) -> None:
    """Remove the folder of a run in which there is nothing but its id. One that holds more stays as it is."""
    with suppress(OSError):  # somebody has begun to use it, or cleared it
        for part in (layout.LIVE, layout.SEALED):
            os.rmdir(folder / part)
        if os.listdir(folder) == [layout.RUN_FILE]:
            (folder / layout.RUN_FILE).unlink()
            os.rmdir(folder)


def id_of(folder: Path) -> str | None:
    """The id of a run; None where the folder is no run."""
    fields = documents.read_json(folder / layout.RUN_FILE)
    return str(fields["run"]) if fields is not None and is_run_id(fields.get("run")) else None


def why_none(run: str | os.PathLike[str]) -> str:
    """Why a path is no run, or one without an id: the words of every command and call."""
    if not os.path.isdir(run):
        why = "no such folder"
    elif not layout.is_run(run):
        runs = [name for name in documents.names_in(os.path.realpath(run)) if layout.is_run(os.path.join(run, name))]
        more = f"{len(runs) - _NAMED} more and " if len(runs) > _NAMED else ""
        meant = f"; runs in it: {more}{', '.join(runs[-_NAMED:])}" if runs else ""
        why = f"not a run: it has neither {layout.RUN_FILE} nor {layout.SEALED}/ nor {layout.LIVE}/{meant}"
    else:
        why = f"a damaged run: its {layout.RUN_FILE} does not say its id"
    return f"{os.fspath(run)}: {why}; a run is the folder that was given to capture() or MSTXKIT_RUN"


def is_run_id(value: object) -> bool:
    """32 hex digits: what may become part of a path."""
    return isinstance(value, str) and len(value) == 32 and all(c in "0123456789abcdef" for c in value)


def _make_folders(folder: Path) -> None:
    for part in (folder, folder / layout.LIVE, folder / layout.SEALED):
        folders.make_folder(part)


def _agreed_id(folder: Path, new_id: str) -> str:
    for _ in range(50):
        run_id = id_of(folder)
        if run_id is not None:
            return run_id
        if _write_run(folder, new_id):
            return new_id
        time.sleep(0.01)
    raise CaptureError(f"{folder / layout.RUN_FILE} is there but says no run id; remove it, or name another run folder")


def _write_run(folder: Path, run_id: str) -> bool:
    content = documents.encode_document(run_id, {"created_ns": time.time_ns()})
    return documents.write_new(folder / layout.RUN_FILE, content)
