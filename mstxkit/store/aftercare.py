"""What happens to profiles once they are recorded, in a process of its own on each host, at the lowest priority.

Nothing of a training is in it. One of a host is at work for a run; it ends when nothing is left to do. `mstxkit
profiles RUN --fetch` does the same by hand.

It also makes room: the oldest data of sessions are removed, and session.json says so; never the newest of a request. Of
each request the newest session of each rank stays, however large it is. What still records, or is just being parsed,
stays. `removed` in session.json says when, how much and why.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Iterable, NamedTuple

from .. import faults
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

    def as_words(self) -> list[str]:
        """For a command line."""
        return ["" if value is None else str(value) for value in self]

    @classmethod
    def of_words(cls, words: list[str]) -> Care:
        """The opposite of `as_words`."""
        run, run_id, disk, mb_s, host_bytes, run_bytes = words
        return cls(Path(run), run_id, Path(disk) if disk else None, float(mb_s), int(host_bytes), int(run_bytes))

    @property
    def is_needed(self) -> bool:
        """Is there anything to do after a session?"""
        return bool(self.run_bytes or (self.disk is not None and (self.mb_s or self.host_bytes)))


class Caretaker:
    """After sessions have ended starts the process of this module, and does nothing else. `consider` from one thread at
    a time: on the recorder's background thread and at the end of capture, never on the thread that trains.
    """

    def __init__(self, care: Care) -> None:
        self._care, self._seen = care, 0

    def consider(self, ended: int) -> None:
        """So many sessions have ended in this process. Never raises.

        Cost: a comparison; after a session a `posix_spawn`, which copies nothing of this process.
        """
        try:
            if ended != self._seen and self._care.is_needed:
                self._seen = ended
                apart.start("mstxkit.store.aftercare", self._care.as_words())
        except Exception as exc:
            faults.note("caretaker", exc)


def main() -> None:
    """The process: let go of who started it, then take care. Its words are those of a `Care`."""
    apart.let_go()
    give_way()
    take_care(Care.of_words(sys.argv[1:]))


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
    here = [root] if root is not None and root.is_dir() else []
    pace = Pace(care.mb_s * 1e6)
    done = [each for place in here if care.mb_s > 0 for each in fetch_all(care.run, care.run_id, place, pace)]
    for place, limit_bytes in (*((place, care.host_bytes) for place in here), (None, care.run_bytes)):
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

    @property
    def series(self) -> tuple[str, str, Any]:
        """Of these the newest stays."""
        request, stage, rank = self.session.key
        return request, "" if request else stage, rank


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
    by_age = sorted(present, key=lambda kept: whole_number(kept.session.document.get("end_ns")))
    newest = {kept.series: kept for kept in by_age}
    total, chosen = sum(kept.bytes for kept in present), []
    for kept in by_age:
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
    return _Kept(session, path, folders.size_bytes(path))


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
