"""Folders that can be trusted: private ones, mode 0700, and the host-local one of live files, made and checked."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterable, Iterator

from ..errors import CaptureError
from . import proc_files

FOLDER_MODE = 0o700
SHARED_MEMORY = "/dev/shm"
# Folders on these belong to this kernel alone: what another host writes into others, nobody here is told of.
_LOCAL_KINDS = frozenset(("tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay", "zfs"))
_MOUNTS_AT_MOST_BYTES = 16 << 20
# What must stay free on tmpfs after a file was made there: others need it too.
_RESERVE_BYTES = 8 << 20


def make_folder(folder: Path) -> None:
    """Make a private folder, or check that the one there is a real one of this user.
    Raises CaptureError: it is a link, no folder, or belongs to somebody else; OSError: it cannot be made.
    """
    try:
        status = os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        with suppress(FileExistsError):  # said better below
            os.makedirs(folder, FOLDER_MODE, exist_ok=True)
        status = os.lstat(folder)
    if stat.S_ISLNK(status.st_mode):
        raise CaptureError(f"{folder} is a symbolic link; a folder of mstxkit's own is needed there")
    if not stat.S_ISDIR(status.st_mode):
        raise CaptureError(f"{folder} is not a folder; name another place for the run")
    owner = status.st_uid
    if owner != os.geteuid():
        raise CaptureError(f"{folder} belongs to user {owner}, not to {os.geteuid()}; be that user, or name your own")


def make_below(folder: Path, parts: Iterable[str]) -> Path:
    """As `make_folder` each part of the way below a folder, which is there: the last of them. Raises as that does."""
    for part in parts:
        folder /= part
        make_folder(folder)
    return folder


def live_folder(run_id: str, preferred: str | None, fallback: Callable[[], Path]) -> Path:
    """The host-local folder for a run's live files: on tmpfs, or on a disk where that cannot be had.
    `preferred`: parent folder to use instead of /dev/shm. `fallback`: asked for a parent folder where /dev/shm cannot
    be used. Raises CaptureError: `preferred` cannot be used, or nothing can.
    """
    if preferred is None:
        # Somebody else's folder under our name, or a full tmpfs: a disk is the stated fallback.
        with suppress(OSError, CaptureError):
            if os.path.isdir(SHARED_MEMORY) and os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
                return _private_folder(Path(SHARED_MEMORY), run_id)
    parent = fallback() if preferred is None else Path(preferred)
    try:
        return _private_folder(parent, run_id)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise CaptureError(f"no live file can be made in {parent}: {reason}; give live_folder= another place") from exc


@contextmanager
def allocate_file(path: Path, size_bytes: int, mode: int) -> Iterator[int]:
    """A descriptor of a new file on tmpfs, whose space is really there, closed at the end. Where what is done with it
    fails the file is removed. Raises OSError: it cannot be had.
    """
    space = os.statvfs(path.parent)
    if space.f_bavail * space.f_frsize < size_bytes + _RESERVE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        os.posix_fallocate(descriptor, 0, size_bytes)
        yield descriptor
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def in_shared_memory() -> Path:
    """Where this user's live files are on tmpfs, in a folder a run."""
    return _of_user(Path(SHARED_MEMORY))


def is_foreign(path: Path) -> bool:
    """Is there something under that name that is no folder of this user's?"""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode)


def _of_user(parent: Path) -> Path:
    return parent / f"mstxkit-{os.geteuid()}"


def _private_folder(parent: Path, run_id: str) -> Path:
    mine = _of_user(parent)
    make_folder(mine)
    if stat.S_IMODE(os.lstat(mine).st_mode) & 0o077:
        os.chmod(mine, FOLDER_MODE)
    return make_below(mine, (run_id,))


def size_bytes(path: Path | None) -> int:
    """Bytes of a file, or of all files below a folder; what vanishes meanwhile counts nothing."""
    if path is None:
        return 0
    below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    total = 0
    for file in below if path.is_dir() else [path]:
        with suppress(OSError):
            total += file.lstat().st_size
    return total


def is_inside(path: str, folder: Path) -> bool:
    """Does `path`, its links resolved, lie inside `folder`?"""
    return os.path.commonpath([os.path.realpath(path), os.path.realpath(folder)]) == os.path.realpath(folder)


def is_local(folder: Path) -> bool:
    """Is this folder's file system this kernel's alone? Where that cannot be told, it is not."""
    try:
        device = os.stat(folder).st_dev
        which = f"{os.major(device)}:{os.minor(device)}"  # the third word of a line
        mounts = proc_files.read_text("/proc/self/mountinfo", _MOUNTS_AT_MOST_BYTES).splitlines()
        of_device = [line for line in mounts if line.split(" ", 3)[2:3] == [which]]
        kinds = {line.partition(" - ")[2].partition(" ")[0] for line in of_device}
    except (OSError, ValueError):
        return False
    return bool(kinds) and kinds <= _LOCAL_KINDS
