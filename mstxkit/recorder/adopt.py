"""Adoption: what a killed process left on this host is sealed into its run, with what it was inside of.

Done at the start of the next process of the run on the host, in the background, and by `mstxkit collect`. Several
adopters may try at once: whoever renames the pointer file first does it. An adopter may itself be killed: the next one
goes on where it was, bank by bank. Nothing is followed out of the run's own folders.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple

from .. import faults
from ..errors import FormatError, MstxkitError
from ..host import identity
from ..store import documents, layout, livefile, process_pointer, run_file, segment
from . import blocks, live
from .background import Background
from .sealed import SealedFiles, cut_torn_end, files_of

_ROTATE_BYTES, _NO_QUOTA = 1 << 29, 1 << 62


class Adopted(NamedTuple):
    """One process whose live file was sealed."""

    name: str
    records: int
    open_ranges: bool


class _Interrupted(Exception):
    """The adopter was told to leave off; what it has done stays done."""


def collect(run: str | os.PathLike[str], go_on: Callable[[], bool] = lambda: True) -> list[Adopted]:
    """Seal everything that dead processes of a run left on this host.

    Args:
        run: The run folder.
        go_on: Asked before each bank; where it says no, the rest is left to the next call.

    Raises:
        MstxkitError: `run` is no run folder.
    """
    folder = Path(os.path.realpath(run))
    run_id = run_file.id_of(folder)
    if run_id is None:
        raise MstxkitError(f"{run} is no run folder: it has no {layout.RUN_FILE} that says a run id")
    adopted = []
    for pointer in pointers(folder):
        try:
            adopted.append(_adopt(folder, pointer, run_id, go_on))
        except _Interrupted:
            break
        except (OSError, ValueError, TypeError, KeyError, MstxkitError) as exc:
            faults.note("adopt", exc)  # one that cannot be adopted must not keep the others from it
    return [adoption for adoption in adopted if adoption is not None]


class Adopter:
    """`collect` in a thread, away from the training.

    Args:
        run: The run folder.
    """

    def __init__(self, run: Path) -> None:
        self._run, self._is_done = run, False
        self._background = Background("mstxkit-adopt", self._adopt)

    def begin(self) -> None:
        """Start, where other processes have left something: with no thread, a fork from C is safer. Never raises."""
        try:
            self._is_done = len(pointers(self._run)) <= 1
            self.start()
        except Exception as exc:
            self._is_done = True
            faults.note("adopt", exc)

    def start(self) -> None:
        """Start, or go on after `leave_off`. Never raises; does not touch the run folder on this thread."""
        try:
            if not self._is_done:
                self._background.start()
        except RuntimeError as exc:
            faults.note("adopt", exc)

    def leave_off(self, deadline: float | None = None) -> bool:
        """End the thread after the bank that it is at: around a fork, and at the end. Has one ended?"""
        return self._background.pause(deadline)

    def _adopt(self) -> bool:
        try:
            collect(self._run, lambda: not self._background.is_pausing)
        except Exception as exc:
            faults.note("adopt", exc)
        self._is_done = not self._background.is_pausing
        return False


def pointers(run: Path) -> list[Path]:
    """Pointers of this host's processes: announced, half made, or claimed by an adopter."""
    kinds = (layout.POINTER, layout.BEING_MADE)
    candidates = (run / layout.LIVE).glob(f"{identity.host()}-*")
    return sorted(path for path in candidates if any(kind in path.name for kind in kinds))


def _adopt(run: Path, pointer: Path, run_id: str, go_on: Callable[[], bool]) -> Adopted | None:
    claimed, about = _claim(pointer, run_id)
    if claimed is None:
        return None
    try:
        name = identity.process_name(about)
        result = _seal_file(run, name, _checked_path(about, name, run_id), run_id, go_on)
    except FormatError as exc:
        faults.note("adopt", exc)  # nothing in it can be read: it is left where it is, and no longer announced
        result = None
    except BaseException:
        os.rename(claimed, pointer)
        raise
    claimed.unlink(missing_ok=True)
    return result


def _claim(pointer: Path, run_id: str) -> tuple[Path | None, dict[str, Any]]:
    """Rename the pointer of a dead process so that nobody else adopts it; None when it is not ours to adopt."""
    about = process_pointer.read(pointer)
    if about is None or about.get("run") != run_id or not _is_dead(about):
        return None, {}
    base, _, adopter = pointer.name.partition(layout.CLAIMED)
    if adopter and _is_running(adopter):
        return None, {}
    claimed = pointer.with_name(f"{base}{layout.CLAIMED}{os.getpid()}.{identity.pid_start(os.getpid())}")
    try:
        os.rename(pointer, claimed)
    except FileNotFoundError:
        return None, {}
    return claimed, about


def _is_dead(about: dict[str, Any]) -> bool:
    alive = identity.is_alive(about)
    if alive is None:  # another pid namespace, perhaps
        alive = identity.is_alive(about, _heartbeat_age_s(about))
    return alive is False


def _is_running(adopter: str) -> bool:
    pid, _, started = adopter.partition(".")
    return pid.isdecimal() and str(identity.pid_start(int(pid))) == started


def _heartbeat_age_s(about: dict[str, Any]) -> float | None:
    """For a process of another pid namespace, whose pid says nothing here."""
    try:
        with _mapped(Path(str(about.get("path")))) as mapping, memoryview(mapping) as view:
            livefile.read_header(view)
            return (time.monotonic_ns() - livefile.heartbeat_ns(view)) / 1e9
    except (OSError, ValueError, MstxkitError):
        return None


def _checked_path(about: dict[str, Any], name: str, run_id: str) -> Path:
    """The live file's path, if it is where a live file of this run and process can be."""
    path = Path(str(about.get("path")))
    is_its_own = path.name == f"{name}{layout.LIVE_SUFFIX}" and path.parent.name == run_id
    if not path.is_absolute() or not is_its_own or ".." in path.parts:
        raise MstxkitError(f"the pointer of {name} names {path}, which is no place of a live file; it is left alone")
    return path


def _mapped(path: Path) -> mmap.mmap:
    """A private, read-only map of a file of this user, never of a link."""
    try:
        descriptor = documents.open_regular(path)
    except FormatError as exc:
        raise MstxkitError(f"{path} is {exc}; it is left alone") from None
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise MstxkitError(f"{path} is no file of this user; it is left alone")
        return mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    finally:
        os.close(descriptor)


def _seal_file(run: Path, name: str, path: Path, run_id: str, go_on: Callable[[], bool]) -> Adopted | None:
    try:
        mapping = _mapped(path)
    except FileNotFoundError:
        live.forget_folder(path.parent)
        return None  # its process was killed before it was made, its host was started anew, or somebody removed it
    except ValueError:
        mapping = None  # empty: killed while it was made
    result = None
    if mapping is not None:
        with mapping, memoryview(mapping) as view:
            result = _seal_view(run, name, view, run_id, go_on)
    path.unlink(missing_ok=True)
    live.forget_folder(path.parent)
    return result


def _seal_view(run: Path, name: str, view: memoryview, run_id: str, go_on: Callable[[], bool]) -> Adopted | None:
    if not any(view[: len(livefile.MAGIC)]):
        return None  # killed before it was laid out
    header = livefile.read_header(view)
    if livefile.read_identity(view).get("run", run_id) != run_id:
        raise MstxkitError(f"{name} belongs to another run; it is left alone")
    return _seal_banks(run, name, view, header, go_on)


def _seal_banks(run: Path, name: str, view: memoryview, header: livefile.Header, go_on: Callable[[], bool]) -> Adopted:
    sealed_before, has_ended = _sealed_before(run / layout.SEALED, name)
    files = SealedFiles(run / layout.SEALED, name, _ROTATE_BYTES, _NO_QUOTA, lambda count: None)
    records = 0
    for _, block, count in blocks.of_left_banks(view, header.layout, sealed_before):
        if not go_on():
            raise _Interrupted
        files.append(block, count)
        records += count
    if has_ended:
        return Adopted(name, records, False)
    open_ranges = blocks.of_open_ranges(view)
    ending = blocks.of_end(view, "exit" if header.state == livefile.CLOSED else "killed")
    # In one write: a killed adopter leaves both or none.
    files.append((open_ranges or b"") + ending, 0)
    return Adopted(name, records, open_ranges is not None)


def _sealed_before(folder: Path, name: str) -> tuple[set[int], bool]:
    """Banks that the process itself, or an adopter that was killed, has sealed; and whether its end was written.

    A block or a file torn by a kill is cut off: its bank is still in the live file.
    """
    banks: set[int] = set()
    has_ended = False
    for path in files_of(folder, name):
        data = path.read_bytes()
        if len(data) < segment.FILE_HEADER_BYTES and segment.file_header().startswith(data):
            path.unlink()
            continue
        for pair in _scanned(data):
            if isinstance(pair, segment.Block):
                banks.add(int(pair.meta.get("bank", 0)))
                has_ended |= pair.kind == segment.END
            elif pair.offset + pair.size == len(data) and pair.reason.startswith("file ends inside"):
                cut_torn_end(path, pair.offset)
    return banks, has_ended


def _scanned(data: bytes) -> list[Any]:
    try:
        return list(segment.scan(data))
    except FormatError:
        return []  # the reader says so
