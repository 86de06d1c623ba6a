"""This process's live file: made and mapped only once its space is really there, found by others through its pointer
file.

A full device is an error here, at creation, never a SIGBUS or a stall in somebody's training: `posix_fallocate` comes
before `mmap`. The pointer is written first, under a name that only adoption looks for, and removed last: a kill at
any moment leaves no file that nobody knows of.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from .. import faults
from ..errors import CaptureError
from ..host import folders, identity, life
from ..store import documents, livefile, process_pointer, records
from ..store import layout as names

_ON_DISK = (
    "{shm} has no room for what is recorded, or cannot be used: it is written to {folder} meanwhile, a disk, which can "
    "make the program wait; in a container, raise --shm-size, or give live_folder= another tmpfs"
)
_FOREIGN = "{mine} is another user's, or no folder: remove it; live files are in {folder} meanwhile, on a disk"
# Linux: give the pages back, and what of the file is in them (mman.h).
_MADV_REMOVE, _PAGE_BYTES = 9, mmap.PAGESIZE
# The last process of a run takes the run's folder on tmpfs with it, perhaps between another one's mkdir and open.
_TRIES = 20
# What a process leaves for others beside its live file.
_WORDS = names.STACKS_SUFFIX, names.TOLD_SUFFIX
_HANDED_ON = (names.HANDED_OVER_SUFFIX, names.RINGS_SUFFIX, names.ASK_SUFFIX, *_WORDS)
# A mapping has a descriptor too, and closes its number as it is freed, whosever that is by then: these never are.
_lost: list[mmap.mmap] = []


class LiveFile(NamedTuple):
    """A live file that is mapped. `view` is writable and ends with `let_go`."""

    path: Path
    pointer: Path
    view: memoryview
    mapping: mmap.mmap
    layout: livefile.Layout
    nonce: int
    name: str


def make_file(run: Path, who: dict[str, Any], layout: livefile.Layout, preferred: str | None, native: bool) -> LiveFile:
    """Make, allocate, map and announce the live file of this process.
    `run`: the run folder, checked. `who`: this process's identity. `preferred`: parent folder for live files instead of
    /dev/shm. Raises CaptureError: no place has room for it, or the run folder cannot be written.
    """
    name = identity.process_name(who)
    draft = run / names.LIVE / f"{name}{names.BEING_MADE}"
    try:
        path, mapping = _map_somewhere(run, who, layout, preferred, draft)
        view = memoryview(mapping)
        nonce = struct.unpack("<Q", os.urandom(8))[0]
        livefile.lay_out(view, layout, nonce, native)
        livefile.write_identity(view, who)
        live = LiveFile(path, draft.with_suffix(names.POINTER), view, mapping, layout, nonce, name)
        try:
            os.replace(draft, live.pointer)
        except OSError as exc:
            remove_file(live)
            raise CaptureError(f"the run folder {run} cannot be written: {exc.strerror or exc}") from exc
        return live
    finally:
        _unlink_file(draft)


def _map_somewhere(
    run: Path, who: dict[str, Any], layout: livefile.Layout, preferred: str | None, draft: Path
) -> tuple[Path, mmap.mmap]:
    """On tmpfs, or on a disk of this host where tmpfs is too small."""
    problems = []
    for is_on_disk in (False, True) if preferred is None else (False,):
        parent = str(_choose_disk(run)) if is_on_disk else preferred
        try:
            path, mapping = _map_in(parent, run, who, layout, draft)
            if preferred is None and Path(folders.SHARED_MEMORY) not in path.parents:
                template = _FOREIGN if folders.is_foreign(mine := folders.in_shared_memory()) else _ON_DISK
                faults.say_once(template.format(shm=folders.SHARED_MEMORY, mine=mine, folder=path.parent))
            return path, mapping
        except OSError as exc:
            problems.append(f"{parent or folders.SHARED_MEMORY}: {exc.strerror or exc}")
    raise CaptureError(
        f"no room for a live file of {layout.total_bytes >> 10} KiB ({'; '.join(problems)}); "
        "free some space, give live_folder=, or fewer or smaller banks"
    )


def _choose_disk(run: Path) -> Path:
    """The run's disk where it is this host's, else that of temporary files: a store may not wait for a network."""
    return run if folders.is_local(run) else Path(tempfile.gettempdir())


def _map_in(
    parent: str | None, run: Path, who: dict[str, Any], layout: livefile.Layout, draft: Path
) -> tuple[Path, mmap.mmap]:
    for left in reversed(range(_TRIES)):
        folder = folders.live_folder(who["run"], parent, lambda: _choose_disk(run))
        path = folder / f"{identity.process_name(who)}{names.LIVE_SUFFIX}"
        try:
            # First of all: from its pointer on, it is the lock that says whether this process lives.
            life.hold_lock(life_of(path))
            process_pointer.write_pointer(draft, path, who)
            with folders.allocate_file(path, layout.total_bytes, documents.FILE_MODE) as descriptor:
                return path, mmap.mmap(descriptor, layout.total_bytes, mmap.MAP_SHARED)
        except (OSError, CaptureError) as exc:
            life.let_go(life_of(path))
            forget_folder(folder)
            if not (left and isinstance(exc, FileNotFoundError)):
                raise
    raise AssertionError("unreachable")


def life_of(path: Path) -> Path:
    """The lock by which the process of this live file is known to live."""
    return path.with_suffix(life.SUFFIX)


def shrink_file(live: LiveFile) -> None:
    """Give back what nothing was written to: the process is just ending, and nobody may seal what it left for long.

    Never raises. What a thread still writes there is room again for, as long as tmpfs has any.
    """
    used = range(live.layout.bank_count)
    heads = [livefile.read_bank_head(live.view, live.layout.bank_at(index)) for index in used]
    for index, head in enumerate(heads):
        at, size = live.layout.bank_at(index), live.layout.bank_bytes
        is_used = head.state in (livefile.ACTIVE, livefile.FULL)
        begin = at + livefile.BANK_HEADER_BYTES + (head.record_count * records.RECORD_BYTES if is_used else 0)
        end = at + size - (head.text_bytes if is_used else 0)
        # A page more on both sides: another thread may just be writing a record.
        begin, end = (begin // _PAGE_BYTES + 2) * _PAGE_BYTES, (end // _PAGE_BYTES - 1) * _PAGE_BYTES
        try:
            if end > begin:
                live.mapping.madvise(_MADV_REMOVE, begin, end - begin)
        except (OSError, ValueError):
            return  # no tmpfs


def let_go(live: LiveFile) -> None:
    """Unmap, leaving file and pointer where they are, to be adopted."""
    life.let_go(life_of(live.path), remove=False)
    with faults.noted("live.let_go", BufferError):  # somebody still looks into it: it is unmapped with the last of them
        _unmap_file(live)


def forget_file(live: LiveFile) -> None:
    """Unmap in a forked child, whose parent may have been looking into it at that moment: then it stays mapped."""
    with suppress(BufferError):
        _unmap_file(live)


def _unmap_file(live: LiveFile) -> None:
    live.view.release()
    mapping = live.mapping
    try:
        if not mapping.closed and mapping.size() != len(mapping):  # by its descriptor
            raise OSError(errno.EBADF, "another file has its number by now")
        mapping.close()
    except OSError:
        _lost.append(mapping)


def take_away(live: LiveFile) -> None:
    """Remove file and pointer, and unmap. Its lock, by which the folder stays, is held until it is removed as well."""
    if _unlink_file(live.path):
        _unlink_file(live.pointer)
    forget_file(live)


def remove_file(live: LiveFile) -> None:
    """Remove file and pointer, and unmap."""
    if _unlink_file(live.path) and _unlink_file(live.pointer):
        life.let_go(life_of(live.path))
    let_go(live)
    forget_folder(live.path.parent)


def forget_folder(folder: Path) -> None:
    """Remove a run's folder of live files, if this was the last one in it.

    What killed processes passed on to each other goes with it; who needs it makes it again.
    """
    with suppress(OSError):
        left = os.listdir(folder)
        locks = [name for name in left if not (name.startswith(names.PASSED_ON) or name.endswith(_HANDED_ON))]
        # One that nobody holds is of somebody who is gone.
        if all(name.endswith(life.SUFFIX) and life.is_held(str(folder / name)) is False for name in locks):
            for name in left:
                _unlink_file(folder / name)
        os.rmdir(folder)


def _unlink_file(file: Path) -> bool:
    try:
        if file.is_dir() and not file.is_symlink():  # of what is passed on
            for name in os.listdir(file):
                os.unlink(file / name)
            os.rmdir(file)
        elif os.path.lexists(file):
            file.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # another process, at its end in the same moment, was faster
    except OSError as exc:
        faults.note_fault("live.remove", exc)
        return False
    return True
