"""The one lock of small files in a run, and that of a host: who writes, or works, is alone."""

from __future__ import annotations

import fcntl
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from ..errors import MstxkitError
from . import documents

_ASK_AGAIN_S = 0.2
_locking = threading.Lock()  # between threads, where `lockf` does nothing


@contextmanager
def locked(path: Path, within_s: float) -> Iterator[None]:
    """Alone among the writers of all hosts, as far as their file system has locks.
    Raises MstxkitError: somebody else has the lock for so long; CaptureError, OSError: as `open_lock_file`.
    """
    if not _locking.acquire(timeout=within_s):
        raise MstxkitError(f"another thread of this process holds {path} for {within_s:.0f} s")
    try:
        with documents.closing(documents.open_lock_file(path)) as file:
            _wait_for(file, path, within_s)
            yield
    finally:
        _locking.release()


@contextmanager
def alone(path: Path, within_s: float = 0.0) -> Iterator[bool]:
    """Is nobody else of this host at work under this lock, which ends with its holder? So long is waited for somebody.
    Raises CaptureError, OSError: as `open_lock_file`.
    """
    with documents.closing(documents.open_lock_file(path)) as lock:
        yield _is_had(lock, time.monotonic() + within_s)


def _is_had(lock: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_ASK_AGAIN_S)


def _wait_for(file: int, path: Path, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):
            time.sleep(0.01)
        except OSError:
            return  # a file system without locks: who writes looks whether somebody was faster
    raise MstxkitError(f"{path} is locked by another process for {within_s:.0f} s; try again")
