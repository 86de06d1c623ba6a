"""Makes room: the oldest data of sessions are removed, and session.json says so; never the newest of a request.

Of each request the newest session of each rank stays, however large it is. What still records, or is just being
parsed, stays. `removed` in session.json says when, how much and why.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from ..host import folders, identity
from . import documents, layout
from .fetching import has_ended
from .session_file import RecordedSession, as_text, read_sessions
from .values import text_of, whole_number

_LOCK = "retention.lock"
_WAIT_S = 5.0


class Removed(NamedTuple):
    """Data that were removed: the session's folder relative to the run, and bytes."""

    folder: str
    bytes: int


class _Kept(NamedTuple):
    session: RecordedSession
    path: Path
    bytes: int
    end_ns: int
    series: tuple[str, str, int | None]  # of these the newest stays


def make_room(run: Path, run_id: str, limit_bytes: int, root: Path | None = None) -> list[Removed]:
    """Remove the oldest data in the run, or with a root on this host's own disk, until so many bytes are left.
    Raises OSError, MstxkitError: somebody else is at it, or something cannot be removed.
    """
    if limit_bytes <= 0 or not (run / layout.PROFILES).is_dir():
        return []
    with documents.hold_lock(run / layout.PROFILES / _LOCK, _WAIT_S):
        every = [kept for session in read_sessions(run, run_id) if (kept := _find_kept(run, session, root)) is not None]
        for gone in (kept for kept in every if kept.session.document.get("removed")):
            _remove_data(gone.path)
        present = [kept for kept in every if not kept.session.document.get("removed")]
        return [_remove_kept(run, kept, limit_bytes) for kept in _too_much(present, limit_bytes)]


def _too_much(present: list[_Kept], limit_bytes: int) -> list[_Kept]:
    """What is to go, the oldest first."""
    oldest_first = sorted(present, key=lambda kept: kept.end_ns)
    newest = {kept.series: kept for kept in oldest_first}
    total, chosen = sum(kept.bytes for kept in present), []
    for kept in oldest_first:
        may_go = has_ended(kept.session.document) and kept is not newest[kept.series]
        if total > limit_bytes and may_go and kept.bytes:
            chosen.append(kept)
            total -= kept.bytes
    return chosen


def _find_kept(run: Path, session: RecordedSession, root: Path | None) -> _Kept | None:
    """Its data, where they are in the run, or below the root; None where they are elsewhere, or in use."""
    document, below = session.document, tuple(session.folder.split(os.sep)[1:])
    gone = document.get("removed")
    about = gone if isinstance(gone, dict) else document
    stored = about.get("stored")
    if root is not None:
        is_here = isinstance(stored, dict) and stored.get("host") == identity.name_host()
        path = root.joinpath(*below) if is_here else None
    else:
        parts = layout.data_parts(below, text_of(about.get("output")), text_of(document.get("request")))
        path = run.joinpath(layout.PROFILES, *parts) if parts is not None and stored is None else None
    if path is None or not os.path.exists(path) or os.path.realpath(path) != str(path):
        return None
    if (documents.read_json(run / session.folder / layout.ANALYSIS_FILE) or {}).get("state") == "parsing":
        return None
    request, stage, rank = session.key
    series = request, "" if request else stage, rank
    return _Kept(session, path, folders.size_bytes(path), whole_number(document.get("end_ns")), series)


def _remove_kept(run: Path, kept: _Kept, limit_bytes: int) -> Removed:
    """Say it first: what is cut off after that is finished by the next one."""
    document = kept.session.document
    document["removed"] = {
        "ns": time.time_ns(), "bytes": kept.bytes, "why": f"more than {limit_bytes} bytes of profiles",
        "output": document.get("output"), "stored": document.get("stored"),
    }  # fmt: skip
    document.update(output=None, stored=None)
    documents.replace_file(run / kept.session.folder / layout.SESSION_FILE, as_text(document))
    _remove_data(kept.path)
    return Removed(kept.session.folder, kept.bytes)


def _remove_data(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
