"""Moves sealed files from a host's own disk into the run: each once, checked, at a limited rate, and to be gone on with
after any kill.

A file is claimed by a rename, copied under another name, read again, compared, renamed into its place, and only then
removed here (`sealed_place.py`). A file to which somebody may still write stays.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from ..errors import MstxkitError
from ..host import life
from . import documents, layout, sealed_place
from .fetching import Pace, copy_file, is_same, why_no_room

_ADOPTING = f"{layout.POINTER}{layout.CLAIMED}"


class Moved(NamedTuple):
    """What was moved, and why the rest was not."""

    names: list[str]
    problem: str = ""


class Writers:
    """Which processes may still write to their files: those that live, and those whose rest is still to be sealed.
    `live`: the folder of the live files of this host.
    """

    def __init__(self, run: Path, live: Path) -> None:
        self._run, self._live = run, live
        self._announced: set[str] | None = None

    def may_write(self, process: str) -> bool:
        """May this one? Ask after its files were listed: it says that it is there before it writes the first one.
        Raises OSError: the run folder cannot be listed.
        """
        if life.is_held(str(self._live / f"{process}{life.SUFFIX}")):
            return True
        if self._announced is None:
            self._announced = {announced_by(name) for name in os.listdir(self._run / layout.LIVE)}
        return process in self._announced


def announced_by(name: str) -> str:
    """The process whose pointer this is, whole, half made, or claimed by an adopter."""
    return name.partition(_ADOPTING)[0].removesuffix(layout.POINTER).removesuffix(layout.BEING_MADE)


def finished(names: list[str], writers: Writers) -> list[str]:
    """Of all sealed files in a place those to which nobody will write any more, oldest of a process first.
    Raises OSError: it cannot be told.
    """
    newest = layout.newest_of_each(names)
    return [name for name in layout.in_order(names)
            if name not in newest or not writers.may_write(layout.sealed_process(name))]  # fmt: skip


def move_all(place: Path, run: Path, writers: Writers, pace: Pace) -> Moved:
    """Move all that is finished, until one cannot be moved. Never raises."""
    moved: list[str] = []
    problem = ""
    try:
        for name in finished(sealed_place.names_in(place), writers):
            try:
                move(place, run / layout.SEALED, name, pace)
                moved.append(name)
            except MstxkitError as exc:
                problem = str(exc)
    except OSError as exc:
        problem = f"{run}: {exc.strerror or exc}"
    return Moved(moved, problem)


def move(place: Path, sealed: Path, name: str, pace: Pace) -> None:
    """Move one file, from whatever state it is in.
    Raises OSError, MstxkitError: it cannot be; then it is where it was, or claimed.
    """
    claimed, target = place / f"{name}{sealed_place.MOVING}", sealed / name
    source = claimed if os.path.lexists(claimed) else place / name
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise MstxkitError(f"{source} is no file")
    with documents.closing(documents.open_folder(sealed)) as folder:
        # Before it is claimed: its writer's own quota goes on counting it.
        if not is_same(source, target) and (why := why_no_room(sealed, os.lstat(source).st_size)):
            raise OSError(28, why)
        if source != claimed:
            os.rename(source, claimed)
        if not is_same(claimed, target):
            copy_file(claimed, target, pace)
        os.fsync(folder)
    claimed.unlink()
