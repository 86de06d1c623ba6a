"""What happens to profiles once they are recorded, in a process of its own on each host, at the lowest priority: they
are fetched into the run, and the oldest data are removed where these are more than may stay.

`escalation/duty/caretaker.py` starts it; nothing of a training is in it. One of a host is at work for a run; it ends
when nothing is left to do. `mstxkit profiles RUN --fetch` does the same by hand.

Of each request the newest session of each rank stays, however large it is. What still records, or is just being
parsed, stays. `removed` in session.json says when, how much and why.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Iterable, NamedTuple

from ..errors import MstxkitError
from ..host import apart, folders, identity
from ..host.priority import give_way
from . import documents, layout, local_place
from .fetching import Fetched, Pace, fetch_all, has_ended
from .session_file import RecordedSession, as_text, sessions
from .values import text_of, whole_number

_LOCK, _ROOM_LOCK = "aftercare.lock", "retention.lock"
_WAIT_S = 5.0


class Care(NamedTuple):
    """What is to be done with the profiles of a run."""

    run: Path
    run_id: str
    disk: Path | None  # the folder on this host's own disk, `profiles="local:…"`; None: profiles are in the run
    mb_s: float = 50.0  # so many megabytes a second go from there into the run; 0: they stay
    # host_bytes, run_bytes: so much may stay on each host, and in the run; 0: no limit
    host_bytes: int = 0
    run_bytes: int = 0

    @property
    def is_needed(self) -> bool:
        """Is there anything to do after a session?"""
        return bool(self.run_bytes or (self.disk is not None and (self.mb_s or self.host_bytes)))


def main() -> None:
    """The process: let go of who started it, then take care. Its words are those of a `Care`."""
    apart.let_go()
    give_way()
    take_care(apart.of_words(Care, sys.argv[1:]))


def take_care(care: Care) -> list[Fetched]:
    """Do all that there is to do on this host, unless somebody is at it; what was moved or could not be."""
    done: list[Fetched] = []
    root = None if care.disk is None else local_place.root_of(care.disk, care.run_id)
    while True:
        # Where nothing is kept on a disk of this host there is nothing to be alone at.
        lock = documents.alone(root / _LOCK) if root is not None and root.is_dir() else nullcontext(True)
        with lock as is_alone:
            new = _fetch_once(care, root) if is_alone else []
        # What came while the lock was held found it held: look again without it.
        done += new
        if not is_alone or all(fetched.problem for fetched in new):
            return done


def _fetch_once(care: Care, root: Path | None) -> list[Fetched]:
    done: list[Fetched] = []
    places: list[tuple[Path | None, int]] = [(None, care.run_bytes)]
    if root is not None and root.is_dir():
        places.insert(0, (root, care.host_bytes))
        done += fetch_all(care.run, care.run_id, root, Pace(care.mb_s * 1e6)) if care.mb_s > 0 else []
    for place, limit_bytes in places:
        with suppress(OSError, MstxkitError):  # the next one goes on
            make_room(care.run, care.run_id, limit_bytes, place)
    return done


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
    with documents.locked(run / layout.PROFILES / _ROOM_LOCK, _WAIT_S):
        every = [kept for session in sessions(run, run_id) if (kept := _find_kept(run, session, root)) is not None]
        _finish_removals(kept for kept in every if kept.session.document.get("removed"))
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
        is_here = isinstance(stored, dict) and stored.get("host") == identity.host()
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
    _finish_removals([kept])
    return Removed(kept.session.folder, kept.bytes)


def _finish_removals(gone: Iterable[_Kept]) -> None:
    for kept in gone:
        shutil.rmtree(kept.path) if kept.path.is_dir() else kept.path.unlink(missing_ok=True)
