"""What happens to profiles once they are recorded, in a process of its own on each host, at the lowest priority.

`escalation/duty/caretaker.py` starts it; nothing of a training is in it. One of a host is at work for a run; it ends
when nothing is left to do. `mstxkit profiles RUN --fetch` does the same by hand.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import MstxkitError
from ..host import detached
from . import documents, local_place, retention
from .fetching import Fetched, fetch_all

_LOCK = "aftercare.lock"


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
    detached.let_go()
    detached.give_way()
    take_care(detached.of_words(Care, sys.argv[1:]))


def take_care(care: Care) -> list[Fetched]:
    """Do all that there is to do on this host, unless somebody is at it; what was moved or could not be."""
    done: list[Fetched] = []
    root = None if care.disk is None else local_place.root_of(care.disk, care.run_id)
    while True:
        # Where nothing is kept on a disk of this host there is nothing to be alone at.
        lock = documents.try_lock(root / _LOCK) if root is not None and root.is_dir() else nullcontext(True)
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
        done += fetch_all(care.run, care.run_id, root, care.mb_s) if care.mb_s > 0 else []
    for place, limit_bytes in places:
        with suppress(OSError, MstxkitError):  # the next one goes on
            retention.make_room(care.run, care.run_id, limit_bytes, place)
    return done
