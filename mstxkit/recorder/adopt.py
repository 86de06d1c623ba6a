"""Adoption: what a killed process left on this host is sealed into its run, with what it was inside of.

Done at the start of the next process of the run on the host, in the background, and by `mstxkit collect`. Several adopters may try at
once: whoever renames the pointer file first does it. Nothing is followed out of the run's own folders.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from .. import faults, identity, livefile, places, segment
from ..errors import FormatError, MstxkitError
from . import blocks
from .engine import engine
from .sealed import SealedFiles

_CLAIMED = ".adopting."
_NO_QUOTA = 1 << 62


class Adopted(NamedTuple):
    """One process whose live file was sealed."""

    name: str
    records: int
    open_ranges: bool


def collect(run: str | os.PathLike[str]) -> list[Adopted]:
    """Seal everything that dead processes of a run left on this host.

    Raises:
        MstxkitError: `run` is no run folder.
    """
    folder = Path(os.path.realpath(run))
    found = places.read_json(folder / places.RUN_FILE)
    if found is None or not places.is_run_id(found.get("run")):
        raise MstxkitError(f"{run} is no run folder: it has no {places.RUN_FILE} that says a run id")
    adopted = (_adopt(folder, pointer, found["run"]) for pointer in sorted((folder / places.LIVE).glob("*.json*")))
    return [one for one in adopted if one is not None]


def _adopt(run: Path, pointer: Path, run_id: str) -> Adopted | None:
    try:
        claimed = _claim(pointer, run_id)
        if claimed is None:
            return None
        about = places.read_json(claimed) or {}
        name = identity.process_name(about)
        try:
            result = _seal_file(run, name, _checked_path(about, name, run_id), run_id)
        except FormatError as exc:
            faults.note("adopt", exc)  # nothing in it can be read: it is left where it is, and no longer announced
            result = None
        claimed.unlink(missing_ok=True)
        return result
    except (OSError, MstxkitError) as exc:
        faults.note("adopt", exc)
        return None


def _claim(pointer: Path, run_id: str) -> Path | None:
    """Rename the pointer of a dead process so that nobody else adopts it; None when it is not ours to adopt."""
    about = places.read_json(pointer)
    if about is None or about.get("run") != run_id or identity.is_alive(about, _heartbeat_age_s(about)) is not False:
        return None
    base, _, adopter = pointer.name.partition(_CLAIMED)
    if adopter and _is_running(adopter):
        return None
    claimed = pointer.with_name(f"{base}{_CLAIMED}{os.getpid()}.{identity.pid_start(os.getpid())}")
    try:
        os.rename(pointer, claimed)
    except FileNotFoundError:
        return None
    return claimed


def _is_running(adopter: str) -> bool:
    pid, _, started = adopter.partition(".")
    return pid.isdecimal() and str(identity.pid_start(int(pid))) == started


def _heartbeat_age_s(about: dict[str, Any]) -> float | None:
    """For a process of another pid namespace, whose pid says nothing here."""
    import time

    try:
        with _mapped(Path(str(about.get("path")))) as view:
            return (time.monotonic_ns() - livefile.heartbeat_ns(view)) / 1e9
    except (OSError, ValueError, FormatError):
        return None


def _checked_path(about: dict[str, Any], name: str, run_id: str) -> Path:
    """The live file's path, if it is where a live file of this run and process can be."""
    path = Path(str(about.get("path")))
    if not path.is_absolute() or path.name != f"{name}.live" or path.parent.name != run_id or ".." in path.parts:
        raise MstxkitError(f"the pointer of {name} names {path}, which is no place of a live file; it is left alone")
    return path


def _mapped(path: Path) -> mmap.mmap:
    """A private, read-only map of a file of this user, never of a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise MstxkitError(f"{path} is no file of this user; it is left alone")
        return mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    finally:
        os.close(descriptor)


def _seal_file(run: Path, name: str, path: Path, run_id: str) -> Adopted | None:
    try:
        mapping = _mapped(path)
    except FileNotFoundError:
        return None  # its host was started anew, or somebody removed it
    with mapping:
        view = memoryview(mapping)
        try:
            header = livefile.read_header(view)
            if livefile.read_identity(view).get("run", run_id) != run_id:
                raise MstxkitError(f"{path} belongs to another run; it is left alone")
            result = _seal_banks(run, name, view, header)
        finally:
            view.release()
    path.unlink(missing_ok=True)
    return result


def _seal_banks(run: Path, name: str, view: memoryview, header: livefile.Header) -> Adopted:
    files = SealedFiles(run / places.SEALED, name, 1 << 30, _NO_QUOTA, lambda count: None)
    records = 0
    for bank in blocks.banks_in_order(view, header.layout):
        payload = _encoded(bank)
        if payload.n:
            files.append(blocks.of_records(view, payload, bank.seq, bank.origin), payload.n)
            records += payload.n
    open_ranges = blocks.of_open_ranges(view)
    if open_ranges is not None:
        files.append(open_ranges, 0)
    ended = "exit" if header.state == livefile.CLOSED else "killed"
    files.append(blocks.of_end(view, ended), 0)
    return Adopted(name, records, open_ranges is not None)


def _encoded(bank: livefile.Bank) -> segment.Payload:
    if engine.NATIVE:
        return segment.Payload(*engine.encode_left(bank.raw, bank.text, bank.salt))
    return segment.encode_bank(bank.raw, bank.text, bank.salt)
