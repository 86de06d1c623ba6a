"""Small files of a run: the one safe read, the one replacement as a whole, the one lock.

Nothing in a run can make a reader hang, leave the run or run out of memory: no link is followed, FIFOs and devices are
never waited for, sizes never taken on trust. Files are 0640, whatever the umask.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, TypeVar

from ..errors import CaptureError, FormatError, MstxkitError
from .values import whole_number

Item = TypeVar("Item")
Content = TypeVar("Content")
FORMAT = 1
FILE_MODE = 0o640
LIMIT_BYTES = 1 << 20
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_PIECE_BYTES = 1 << 26
# Of a file that was written to within this, another write may get the same time stamp.
_SETTLES_WITHIN_NS = 50_000_000
_UP_TO_MTIME = 4
_ASK_AGAIN_S = 0.2
_locking = threading.Lock()  # between threads, where `lockf` does nothing


class Unusable(MstxkitError):
    """A file or folder from which nothing may be taken, and the reason, which goes on after its path."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"{os.fspath(path)} {reason}")
        self.path, self.reason = os.fspath(path), reason


class WrittenByNewer(Unusable):
    """A file of a format that this mstxkit does not know yet: others can read it."""


@contextmanager
def close_after(descriptor: int) -> Iterator[int]:
    """This descriptor, which is closed at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_folder(path: str | os.PathLike[str], is_private: bool = False) -> int:
    """A descriptor of a folder that is no link. `is_private`: only this user may be able to write into it. Raises
    Unusable: somebody else may write into it; OSError: it cannot be had.
    """
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        if is_private:
            _check_owner(descriptor, path)
        return descriptor
    except Unusable:
        os.close(descriptor)
        raise


def names_in(path: str | os.PathLike[str], suffix: str = "") -> list[str]:
    """As `list_names`; of what cannot be listed, is no folder, or a link to one, there are none."""
    try:
        return list_names(path, suffix)
    except OSError:
        return []


def list_names(path: str | os.PathLike[str], suffix: str = "") -> list[str]:
    """The names in a folder that end in `suffix`, sorted, for who removes something by what is there.
    Raises OSError: it cannot be listed, is no folder, or a link to one. One that is not there holds nothing.
    """
    try:
        descriptor = open_folder(path)
    except FileNotFoundError:
        return []
    with close_after(descriptor):
        return sorted(name for name in os.listdir(descriptor) if name.endswith(suffix))


def open_regular(path: str | os.PathLike[str], folder: int | None = None) -> int:
    """A descriptor, for reading, of a regular file, in the folder of that descriptor; its last part may be no link.
    Raises FormatError: not a regular file; OSError: it cannot be opened.
    """
    descriptor = os.open(path, _FILE_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FormatError("not a regular file")
    return descriptor


def read_part(descriptor: int, offset: int, size: int) -> bytes:
    """What is there of `size` bytes from `offset`, as far as the file goes now. OSError: it cannot be read."""
    end = min(offset + size, os.fstat(descriptor).st_size)
    parts = []
    while offset < end and (part := os.pread(descriptor, min(end - offset, _PIECE_BYTES), offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def append_block(descriptor: int, before: int, block: bytes, first: bytes) -> int:
    """Write a block behind `before` bytes, in an empty file after `first`: the size. OSError: nothing is written."""
    if not before:
        os.fchmod(descriptor, FILE_MODE)
        block = first + block
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        os.ftruncate(descriptor, before)
        raise
    return before + len(block)


def state_of(file: Path) -> tuple[int, ...]:
    """What changes with a file's content, and where it is replaced; () where there is none. *Cost*: one call."""
    try:
        return _state_of(os.lstat(file))
    except OSError:
        return ()


def _state_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def withdraw_file(file: Path, state: tuple[int, ...]) -> None:
    """Remove a file that is still as `state_of` gave it; what somebody has put in its place stays. Never raises."""
    with suppress(OSError):
        if state_of(file)[:_UP_TO_MTIME] == state[:_UP_TO_MTIME]:  # whoever changes its mode leaves it what it is
            file.unlink()


def settled_state(descriptor: int) -> tuple[int, ...]:
    """`state_of` an open file, asked for before it is read: while it is the same, so is its content. () where it was
    written to just now: a write a moment later may get the same stamp.
    """
    status = os.fstat(descriptor)
    is_settled = abs(time.time_ns() - status.st_mtime_ns) > _SETTLES_WITHIN_NS
    return _state_of(status) if is_settled else ()


def read_small(file: Path, limit_bytes: int = LIMIT_BYTES, is_private: bool = False) -> bytes | None:
    """All of a small file; None where there is none. Neither it nor its folder may be a link.
    `is_private`: only this user may be able to write to the file and its folder. Raises Unusable: the folder or the
    file is not what it should be.
    """
    try:
        folder = open_folder(file.parent, is_private)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:  # a path with a null byte in it, say
        raise Unusable(file.parent, f"cannot be opened as a folder: {exc}") from None
    try:
        descriptor = open_regular(file.name, folder)
    except FileNotFoundError:
        return None
    except FormatError:
        raise Unusable(file, "is no file") from None
    except (OSError, ValueError) as exc:
        raise Unusable(file, f"cannot be opened (a file is needed, no link): {exc}") from None
    finally:
        os.close(folder)
    return _read_whole(descriptor, file, limit_bytes, is_private)


def _read_whole(descriptor: int, file: Path, limit_bytes: int, is_private: bool) -> bytes:
    try:
        with close_after(descriptor):
            if is_private:
                _check_owner(descriptor, file)
            content = read_part(descriptor, 0, limit_bytes + 1)
    except OSError as exc:
        raise Unusable(file, f"cannot be read: {exc.strerror}") from None
    if len(content) > limit_bytes:
        raise Unusable(file, f"is larger than {limit_bytes} bytes")
    return content


def _check_owner(descriptor: int, path: str | os.PathLike[str]) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise Unusable(path, f"belongs to user {status.st_uid}, not to {os.geteuid()}")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise Unusable(path, f"may be written by others: its mode is {stat.S_IMODE(status.st_mode):o}")


def read_document(
    file: Path, run_id: str, is_private: bool = False, limit_bytes: int = LIMIT_BYTES
) -> dict[str, Any] | None:
    """The JSON object of this run in a file; None where there is no file. Unusable: it is no such file."""
    content = read_small(file, limit_bytes, is_private)
    return None if content is None else document_in(content, file, run_id)


def find_document(file: Path, run_id: str, limit_bytes: int = LIMIT_BYTES) -> dict[str, Any] | None:
    """As `read_document`; None also where it is no such file."""
    try:
        return read_document(file, run_id, limit_bytes=limit_bytes)
    except Unusable:
        return None


def each_usable(
    items: Iterable[Item], read: Callable[[Item], Content], unusable: list[Unusable] | None = None
) -> Iterator[Content]:
    """What is read of each; where that is `Unusable`, it is left out, and why is added to these."""
    for item in items:
        try:
            yield read(item)
        except Unusable as exc:
            if unusable is not None:
                unusable.append(exc)


def document_in(content: bytes, file: Path, run_id: str, what: str = "file") -> dict[str, Any]:
    """The JSON object of format 1 and of this run ("": any) that a file's content is. Unusable: it is none."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        raise Unusable(file, "is half written, or no JSON" if content else "is empty") from None
    version = fields.get("format") if isinstance(fields, dict) else None
    if whole_number(version) > FORMAT:
        raise WrittenByNewer(file, f"is a {what} of format {version}, written by a newer mstxkit: upgrade this one")
    if not isinstance(fields, dict) or version != FORMAT:
        raise Unusable(file, f"is no {what} of format {FORMAT}")
    if run_id and fields.get("run") != run_id:
        raise Unusable(file, "belongs to another run")
    return fields


def encode_document(run_id: str, fields: Mapping[str, Any]) -> bytes:
    """A document of format 1 and of this run with these fields."""
    return json.dumps({"format": FORMAT, "run": run_id, **fields}).encode()


def object_in(content: bytes | str) -> dict[str, Any]:
    """The JSON object that this is; {} where it is none: a checksum that holds does not say who wrote it."""
    try:
        value = json.loads(content) if content else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_json(file: Path, limit_bytes: int = LIMIT_BYTES) -> dict[str, Any] | None:
    """A JSON object from a regular file; None when it is missing, a link, too large, or no JSON object."""
    try:
        value = json.loads(_read_whole(open_regular(file), file, limit_bytes, False))
    except (OSError, ValueError, RecursionError, MstxkitError):
        return None
    return value if isinstance(value, dict) else None


def text_of(path: str, error: type[MstxkitError], limit_bytes: int = 1 << 20) -> str:
    """A user's text file, UTF-8 with or without a mark.
    Raises `error`: it cannot be read, is no file, too large, or not UTF-8; the message says in which line.
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


def write_file(
    file: Path, content: bytes, more_flags: int = 0, is_lasting: bool = False, mode: int = FILE_MODE
) -> None:
    """Write a file. Links are not followed. `is_lasting`: it is on the disk once this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | more_flags
    descriptor = os.open(file, flags, mode)
    try:
        os.fchmod(descriptor, mode)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if is_lasting:
            os.fsync(descriptor)
    except OSError as exc:
        exc.filename = os.fspath(file)  # of a descriptor none is known, and it would pass for standard output's
        raise
    finally:
        os.close(descriptor)


def replace_file(file: Path, content: bytes, is_lasting: bool = False) -> None:
    """Write a file so that a reader sees the old or the new one, never half of it. `is_lasting` as of `write_file`."""
    draft = _draft_of(file)
    try:
        write_file(draft, content, is_lasting=is_lasting)
        os.replace(draft, file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_new(file: Path, content: bytes, mode: int = FILE_MODE) -> bool:
    """Write a file that must not be there yet, whole at once; False when another process was first."""
    draft = _draft_of(file)
    try:
        write_file(draft, content, mode=mode)
        try:
            os.link(draft, file)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: who reads the file too early reads it again
            write_file(file, content, os.O_EXCL, mode=mode)
        return True
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)


def _draft_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.{os.urandom(4).hex()}")


def open_lock_file(path: Path) -> int:
    """A file of this user's own to lock, made where it is missing. Closing any descriptor of it frees a `lockf` lock.
    Raises CaptureError: what is there is no such file; OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise CaptureError(f"{path} is no file of user {os.geteuid()}'s own; remove it")


def take_lock(path: Path) -> int | None:
    """A descriptor that holds the lock of this file while it is open, or, where the file system has no locks, does not;
    None: somebody else holds it. Raises as `open_lock_file`.
    """
    descriptor = open_lock_file(path)
    with suppress(OSError):
        if not lock_within(descriptor, fcntl.lockf):
            os.close(descriptor)
            return None
    return descriptor


def is_still(descriptor: int, path: Path) -> bool:
    """Is this open file the one that `path` leads to, or was that removed or replaced?"""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


@contextmanager
def hold_lock(path: Path, within_s: float) -> Iterator[None]:
    """Alone among the writers of all hosts, as far as their file system has locks.
    Raises MstxkitError: somebody else has the lock for so long; CaptureError, OSError: as `open_lock_file`.
    """
    if not _locking.acquire(timeout=within_s):
        raise MstxkitError(f"another thread of this process holds {path} for {within_s:.0f} s")
    try:
        with close_after(open_lock_file(path)) as file:
            with suppress(OSError):  # a file system without locks: who writes looks whether somebody was faster
                if within_s <= 0 or not lock_within(file, fcntl.lockf, within_s):
                    raise MstxkitError(f"{path} is locked by another process for {within_s:.0f} s; try again")
            yield
    finally:
        _locking.release()


@contextmanager
def try_lock(path: Path, within_s: float = 0.0) -> Iterator[bool]:
    """Is nobody else of this host at work under this lock, which ends with its holder? So long is waited for somebody.
    Raises CaptureError, OSError: as `open_lock_file`.
    """
    with close_after(open_lock_file(path)) as lock:
        try:
            is_alone = lock_within(lock, fcntl.flock, within_s, _ASK_AGAIN_S)
        except OSError:
            is_alone = False
        yield is_alone


def lock_within(
    descriptor: int, lock: Callable[[int, int], object], within_s: float = 0.0, every_s: float = 0.01
) -> bool:
    """Is this file locked by `fcntl.lockf` or `fcntl.flock`, within so long? OSError: there are no such locks here."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= deadline:
                return False
            time.sleep(every_s)
