"""Moves profiles from this host's own disk into the run: slowly, checked, and to be gone on with after any kill.

A file is copied under another name, read again, compared and renamed. A profile is renamed into its place when all of
its files are there; then session.json says so; then the source is removed. Whatever is cut off in between is found by
the next one, which does the rest of it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from ..errors import MstxkitError
from ..host import folders, life
from . import documents, local_place, session_file
from .layout import PROFILES, SESSION_FILE
from .values import text_of

_PIECE_BYTES = 1 << 22
_ROOM_BYTES = 64 << 20  # stays free on the run's disk
_PART, _DRAFT = ".part", ".~"
_SAME_TIME_NS = 2 * 10**9  # some file systems keep whole seconds


class Fetched(NamedTuple):
    """What became of one session's data: its folder relative to the run, and why they are not there, if so."""

    folder: str
    bytes: int = 0
    problem: str = ""


def fetch_all(run: Path, run_id: str, root: Path, mb_s: float) -> Iterator[Fetched]:
    """Move all that has ended below a root (`local_place.root_of`) into the run; what was moved, and what was not.
    `mb_s`: no more than so many megabytes a second; 0: no limit.
    """
    for below in list(local_place.sessions_below(root)):
        folder, source = run.joinpath(PROFILES, *below), root.joinpath(*below)
        name = str(Path(PROFILES, *below))
        try:
            document = documents.read_document(folder / SESSION_FILE, run_id)
            if document is None:
                yield Fetched(name, problem=f"the run has no {SESSION_FILE} of it: it stays")
            elif has_ended(document):
                count = _bring_over(source, folder, document, mb_s)
                _into_request(run, folder, document)
                shutil.rmtree(source)
                with suppress(OSError):  # one that is not empty stays
                    for depth in range(len(below) - 1, 0, -1):
                        os.rmdir(root.joinpath(*below[:depth]))
                yield Fetched(name, count)
        except (OSError, MstxkitError) as exc:
            yield Fetched(name, problem=str(exc))


def has_ended(document: dict[str, Any]) -> bool:
    """Does nobody write to these data any more?"""
    is_over = document.get("state") in (session_file.RECORDED, session_file.FAILED)
    return is_over or life.is_alive(document) is False


def _bring_over(source: Path, folder: Path, document: dict[str, Any], mb_s: float) -> int:
    """Copy all of a session's folder, unless the one before did; bytes that were copied.
    Raises OSError, MstxkitError: it cannot be done; the source stays then.
    """
    count = 0
    if document.get("stored") is None:
        return count
    if why := why_no_room(folder, folders.size_bytes(source)):
        raise MstxkitError(why)
    for name in documents.list_names(source):
        partial = folder / f"{name}{_PART}"
        if name == SESSION_FILE or name.endswith((_PART, _DRAFT)):
            raise MstxkitError(f"{source / name} has the name of a file of ours")
        if os.path.lexists(folder / name):  # the one before came so far
            continue
        count += _copy_paced(source / name, partial, mb_s)
        if _measure_sizes(partial) != _measure_sizes(source / name):
            raise MstxkitError(f"{partial} has not become what {source / name} is")
        os.rename(partial, folder / name)
    # From then on it says where there may still be something to do, to whoever comes next.
    document.update(fetched_from=document["stored"], stored=None)
    _say_so(folder, document)
    return count


def _into_request(run: Path, folder: Path, document: dict[str, Any]) -> None:
    output = document.get("output")
    is_for_tools = document.get("state") == session_file.RECORDED and text_of(document.get("request"))
    if not is_for_tools or not isinstance(output, str) or "/" in output or output in ("", ".", ".."):
        return
    if os.path.lexists(folder / output):
        document["output"] = session_file.into_request(run, folder, document, folder / output)
    else:  # the one before came so far
        place = session_file.place_in_request(run, folder, document)
        document["output"] = os.path.relpath(place / output, folder)
    _say_so(folder, document)


def _say_so(folder: Path, document: dict[str, Any]) -> None:
    documents.replace_file(folder / SESSION_FILE, session_file.as_text(document))


def _copy_paced(source: Path, place: Path, mb_s: float) -> int:
    """A file or a folder; what is there already stays. Links, pipes and devices are refused."""
    mode = os.lstat(source).st_mode
    if stat.S_ISDIR(mode):
        folders.make_folder(place)
        return sum(_copy_paced(source / name, place / name, mb_s) for name in documents.list_names(source))
    if not stat.S_ISREG(mode):
        raise MstxkitError(f"{source} is neither a file nor a folder")
    return 0 if is_same(source, place) else copy_file(source, place, mb_s)


def is_same(source: Path, place: Path) -> bool:
    """Was it copied whole, by one that was cut off later?"""
    if not os.path.lexists(place):
        return False
    here, there = os.lstat(source), os.lstat(place)
    is_as_old = abs(here.st_mtime_ns - there.st_mtime_ns) < _SAME_TIME_NS
    return stat.S_ISREG(there.st_mode) and here.st_size == there.st_size and is_as_old


def copy_file(source: Path, place: Path, mb_s: float) -> int:
    """Copy a file under another name, read the copy again, compare and rename it; its bytes. `mb_s` as of `fetch_all`.
    Raises OSError, FormatError, MstxkitError: it could not be copied, or the copy is another.
    """
    draft = place.with_name(f"{place.name}{_DRAFT}")
    with os.fdopen(documents.open_regular(source), "rb") as stream:
        wanted, count, times = hashlib.blake2b(), 0, os.fstat(stream.fileno())
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, documents.FILE_MODE), "r+b") as copy:
            os.fchmod(copy.fileno(), documents.FILE_MODE)
            while piece := stream.read(_PIECE_BYTES):
                wanted.update(piece)
                copy.write(piece)
                count += len(piece)
                if mb_s > 0:
                    time.sleep(len(piece) / (mb_s * 1e6))
            copy.flush()
            os.fsync(copy.fileno())
            os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # what is compared comes from the disk
            copy.seek(0)
            copied = hashlib.blake2b()
            while piece := copy.read(_PIECE_BYTES):
                copied.update(piece)
            if copied.digest() != wanted.digest():
                raise MstxkitError(f"the copy of {source} is not what was read: it stays where it is")
    os.utime(draft, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(draft, place)
    return count


def _measure_sizes(path: Path) -> dict[str, int]:
    """The files below a folder, or a file, with their sizes."""
    if not path.is_dir():
        return {"": path.lstat().st_size}
    files = [Path(place, name) for place, _, names in os.walk(path) for name in names]
    return {str(file.relative_to(path)): file.lstat().st_size for file in files if not file.name.endswith(_DRAFT)}


def why_no_room(folder: Path, needed_bytes: int) -> str:
    """Why so many bytes have no room on a run's disk, of which some stays free; "" where they have."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if not disk.f_blocks or needed_bytes + _ROOM_BYTES <= free:
        return ""
    return f"{needed_bytes >> 20} MiB are to come, and only {free >> 20} MiB are free on the run's disk"
