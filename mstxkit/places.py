"""Folders that can be trusted: the run folder and the host-local folder of live files, made, checked and never
followed elsewhere.

Folders are 0700, files 0640. A run folder given as a symbolic link is resolved once, at the start; inside it no link
is followed.
"""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

from .errors import CaptureError, MstxkitError

FOLDER_MODE = 0o700
FILE_MODE = 0o640
RUN_FILE = "run.json"
LIVE, SEALED, PATCHES = "live", "sealed", "patches"
SHARED_MEMORY = "/dev/shm"


def open_run_folder(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Make or check a run folder and return it, resolved, with the run's id.

    Raises:
        CaptureError: it cannot be made, is not a folder, belongs to somebody else, or is not writable.
    """
    given = Path(path)
    try:
        folder = Path(os.path.realpath(given))
        make_folder(folder)
        for inner in (LIVE, SEALED):
            make_folder(folder / inner)
        return folder, _run_id(folder)
    except (OSError, ValueError) as exc:
        raise CaptureError(
            f"the run folder {given} cannot be used: {getattr(exc, 'strerror', None) or exc}; "
            "give capture() or MSTXKIT_RUN a folder that this user can write"
        ) from exc


def make_folder(folder: Path) -> None:
    """Make a private folder, or check that the one there is a real one of this user.

    Raises:
        CaptureError: it is a link, no folder, or belongs to somebody else.
        OSError: it cannot be made.
    """
    try:
        os.makedirs(folder, FOLDER_MODE, exist_ok=True)
    except FileExistsError:
        pass  # said better below
    found = os.lstat(folder)
    if stat.S_ISLNK(found.st_mode):
        raise CaptureError(f"{folder} is a symbolic link; a folder of mstxkit's own is needed there")
    if not stat.S_ISDIR(found.st_mode):
        raise CaptureError(f"{folder} is not a folder; name another place for the run")
    if found.st_uid != os.geteuid():
        raise CaptureError(f"{folder} belongs to user {found.st_uid}, not to {os.geteuid()}; name a folder of your own")


def _run_id(folder: Path) -> str:
    """The id in run.json, which the first process of a run writes and all others read."""
    file = folder / RUN_FILE
    for _ in range(50):
        known = read_json(file)
        if known is not None and is_run_id(known.get("run")):
            return str(known["run"])
        fresh = {"format": 1, "run": os.urandom(16).hex(), "created_ns": time.time_ns()}
        if _write_new(file, json.dumps(fresh)):
            return str(fresh["run"])
        time.sleep(0.01)
    raise CaptureError(f"{file} is there but says no run id; remove it, or name another run folder")


def is_run_id(value: object) -> bool:
    """32 hex digits: what may become part of a path."""
    return isinstance(value, str) and len(value) == 32 and all(c in "0123456789abcdef" for c in value)


def put_back_run_folder(folder: Path, run_id: str) -> None:
    """Make a run folder again that was removed under its running processes, as the same run.

    Raises:
        CaptureError: something else stands there now.
        OSError: it cannot be made.
    """
    for one in (folder, folder / LIVE, folder / SEALED):
        make_folder(one)
    _write_new(folder / RUN_FILE, json.dumps({"format": 1, "run": run_id, "created_ns": time.time_ns()}))


def _write_new(file: Path, text: str) -> bool:
    """Write a file that must not be there yet, whole at once; False when another process was first."""
    draft = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    try:
        write_file(draft, text.encode())
        return _link_new(draft, file)
    finally:
        draft.unlink(missing_ok=True)


def _link_new(draft: Path, file: Path) -> bool:
    try:
        os.link(draft, file)
        return True
    except FileExistsError:
        return False
    except OSError:
        return _write_without_links(file, draft.read_bytes())


def _write_without_links(file: Path, content: bytes) -> bool:
    """The same on a file system that has no hard links: who reads it too early reads it again."""
    try:
        write_file(file, content, os.O_EXCL)
        return True
    except FileExistsError:
        return False


def write_file(file: Path, content: bytes, more_flags: int = 0) -> None:
    """Write a file with mode 0640. Links are not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | more_flags
    descriptor = os.open(file, flags, FILE_MODE)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, FILE_MODE)
        stream.write(content)


def replace_file(file: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old or the new one, never half of it."""
    draft = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    try:
        write_file(draft, content)
        os.replace(draft, file)
    finally:
        draft.unlink(missing_ok=True)


def read_json(file: Path, limit_bytes: int = 1 << 20) -> dict[str, Any] | None:
    """A JSON object from a regular file; None when it is missing, a link, too large, or no JSON object."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit_bytes:
            return None
        value = json.loads(os.read(descriptor, limit_bytes + 1))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)
    return value if isinstance(value, dict) else None


def open_lock_file(path: Path) -> int:
    """A file of this user's own to lock, made where it is missing. Closing any descriptor of it frees a `lockf` lock.

    Raises:
        CaptureError: what is there is no such file.
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise CaptureError(f"{path} is no file of user {os.geteuid()}'s own; remove it")


def is_still(descriptor: int, path: Path) -> bool:
    """Is this open file the one that `path` leads to, or was that removed or replaced?"""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def live_folder(run_id: str, preferred: str | None, fallback: Path) -> Path:
    """The host-local folder for a run's live files: on tmpfs, or inside the run folder where that cannot be had.

    Args:
        preferred: Parent folder to use instead of /dev/shm.
        fallback: The run folder.

    Raises:
        CaptureError: `preferred` cannot be used, or nothing can.
    """
    if preferred is not None:
        return _usable(Path(preferred), run_id)
    try:
        if os.path.isdir(SHARED_MEMORY) and os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
            return _private(Path(SHARED_MEMORY), run_id)
    except (OSError, CaptureError):
        pass  # somebody else's folder under our name, or a full tmpfs: the run's own disk is the stated fallback
    return _usable(fallback, run_id)


def _usable(parent: Path, run_id: str) -> Path:
    try:
        return _private(parent, run_id)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise CaptureError(f"no live file can be made in {parent}: {reason}; give live_folder= another place") from exc


def _private(parent: Path, run_id: str) -> Path:
    mine = parent / f"mstxkit-{os.geteuid()}"
    make_folder(mine)
    if stat.S_IMODE(os.lstat(mine).st_mode) & 0o077:
        os.chmod(mine, FOLDER_MODE)
    make_folder(mine / run_id)
    return mine / run_id


def text_of(path: str, error: type[MstxkitError], limit_bytes: int = 1 << 20) -> str:
    """A user's text file, UTF-8 with or without a mark.

    Raises:
        `error`: it cannot be read, is no file, too large, or not UTF-8; the message says in which line.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise error(f"{path}: this is no file")
        with open(path, "rb") as file:
            content = file.read(limit_bytes + 1)
    except (OSError, ValueError) as exc:
        raise error(f"{path}: {getattr(exc, 'strerror', None) or exc}") from None
    if len(content) > limit_bytes:
        raise error(f"{path}: larger than {limit_bytes} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise error(f"{path}:{content.count(10, 0, exc.start) + 1}: this is not UTF-8") from None


def is_inside(path: str, folder: Path) -> bool:
    """Does `path`, its links resolved, lie inside `folder`?"""
    return os.path.commonpath([os.path.realpath(path), os.path.realpath(folder)]) == os.path.realpath(folder)
