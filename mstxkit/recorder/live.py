"""This process's live file: made and mapped only once its space is really there, found by others through its pointer file.

A full device is an error here, at creation, never a SIGBUS or a stall in somebody's training: `posix_fallocate` comes before `mmap`.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

from .. import identity, livefile, places
from ..errors import CaptureError

# What must stay free on tmpfs after a live file was made: others need it too.
_RESERVE_BYTES = 8 << 20
# Linux: fault all pages in now, so that the hot path never does (mman.h; in the mmap module since Python 3.10).
_MAP_POPULATE = 0x8000


class LiveFile(NamedTuple):
    """A live file that is mapped. `view` is writable and ends with `close`."""

    path: Path
    pointer: Path
    view: memoryview
    mapping: mmap.mmap
    layout: livefile.Layout
    nonce: int
    name: str


def make(run: Path, who: dict[str, Any], layout: livefile.Layout, preferred: str | None, native: bool) -> LiveFile:
    """Make, allocate, map and announce the live file of this process.

    Args:
        run: The run folder, checked.
        who: This process's identity.
        preferred: Parent folder for live files instead of /dev/shm.

    Raises:
        CaptureError: no place has room for it.
    """
    name = identity.process_name(who)
    path, mapping = _map_somewhere(run, who["run"], name, layout, preferred)
    view = memoryview(mapping)
    nonce = struct.unpack("<Q", os.urandom(8))[0]
    livefile.lay_out(view, layout, nonce, native)
    livefile.write_identity(view, who)
    pointer = run / places.LIVE / f"{name}.json"
    live = LiveFile(path, pointer, view, mapping, layout, nonce, name)
    try:
        announce(live, who)
    except OSError as exc:
        remove(live)
        raise CaptureError(f"the run folder {run} cannot be written: {exc.strerror or exc}") from exc
    return live


def _map_somewhere(
    run: Path, run_id: str, name: str, layout: livefile.Layout, preferred: str | None
) -> tuple[Path, mmap.mmap]:
    """On tmpfs, or in the run folder where tmpfs is too small."""
    folders = [places.live_folder(run_id, preferred, run)]
    if preferred is None and not folders[0].is_relative_to(run):
        folders.append(run)
    problems = []
    for folder in folders:
        if folder == run:
            folder = places.live_folder(run_id, str(run), run)
        path = folder / f"{name}.live"
        try:
            return path, _allocate_and_map(path, layout.total_bytes)
        except OSError as exc:
            problems.append(f"{folder}: {exc.strerror or exc}")
    raise CaptureError(
        f"no room for a live file of {layout.total_bytes >> 10} KiB ({'; '.join(problems)}); "
        "free some space, give live_folder=, or fewer or smaller banks"
    )


def _allocate_and_map(path: Path, size: int) -> mmap.mmap:
    space = os.statvfs(path.parent)
    if space.f_bavail * space.f_frsize < size + _RESERVE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, places.FILE_MODE)
    try:
        os.fchmod(descriptor, places.FILE_MODE)
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED | _MAP_POPULATE)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def announce(live: LiveFile, who: dict[str, Any]) -> None:
    """Write the pointer file: where the live file is, and by what to tell whether its process still runs."""
    kept = ("run", "host", "boot", "pid", "pidns", "pid_start", "start")
    pointer = {"format": 1, "path": str(live.path), **{key: who[key] for key in kept}}
    places.replace_file(live.pointer, json.dumps(pointer).encode())


def let_go(live: LiveFile) -> None:
    """Unmap, leaving file and pointer where they are."""
    live.view.release()
    live.mapping.close()


def remove(live: LiveFile) -> None:
    """Remove file and pointer, and unmap."""
    live.pointer.unlink(missing_ok=True)
    live.path.unlink(missing_ok=True)
    let_go(live)
    try:
        os.rmdir(live.path.parent)  # the last one out of this run's folder
    except OSError:
        pass
