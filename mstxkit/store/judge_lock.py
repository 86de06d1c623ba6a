"""`verdicts/judge.lock`: one judge a run, held by whoever judges it now, wherever its file system has locks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ..host import folders, life
from . import documents, layout


def take(run: Path) -> int | None:
    """A descriptor that holds the lock while it is open; None: somebody else judges this run.
    Raises OSError, CaptureError: it cannot be had.
    """
    folders.make_folder(run / layout.VERDICTS)
    descriptor = documents.open_lock_file(run / layout.VERDICTS / layout.JUDGE_LOCK)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        return None
    except OSError:
        return descriptor  # a file system without locks: the later life is the one that counts (`judge_life.py`)


def take_over(run: Path) -> int | None:
    """As `take`, from who holds it and says nothing any more: it finds that the file is another one, and ends."""
    (run / layout.VERDICTS / layout.JUDGE_LOCK).unlink(missing_ok=True)
    return take(run)


def is_mine(run: Path, lock: int) -> bool:
    """Is what this descriptor locks still the lock? -1: there is none to be had."""
    return lock < 0 or documents.is_still(lock, run / layout.VERDICTS / layout.JUDGE_LOCK)


def is_held(run: Path) -> bool | None:
    """Does anybody judge this run? None: its file system has no locks. Not for a process that judges it itself: to ask
    would cost it the lock.
    """
    return life.has_holder(run / layout.VERDICTS / layout.JUDGE_LOCK)
