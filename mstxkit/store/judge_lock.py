"""`verdicts/judge.lock`: one judge a run, held by whoever judges it now, wherever its file system has locks."""

from __future__ import annotations

from pathlib import Path

from ..host import detached, folders, life
from . import documents, layout


def take_lock(run: Path) -> int | None:
    """As `documents.take_lock`; None: somebody else judges this run. Where there are no locks, the later life is the
    one that counts (`verdicts.py`).
    """
    folders.make_folder(run / layout.VERDICTS)
    return documents.take_lock(run / layout.VERDICTS / layout.JUDGE_LOCK)


def take_over(run: Path, module: str, but_in: str = "") -> int | None:
    """As `take_lock`, from who holds it and shows nothing any more: it is ended, with its page, where it is a process
    of this host, was started as `module`, and is in none of these states. Else it finds the file to be another, and
    ends.
    """
    detached.end_process(life.holder_of(run / layout.VERDICTS / layout.JUDGE_LOCK), module, but_in)
    (run / layout.VERDICTS / layout.JUDGE_LOCK).unlink(missing_ok=True)
    return take_lock(run)


def is_mine(run: Path, lock: int) -> bool:
    """Is what this descriptor locks still the lock? -1: there is none to be had."""
    return lock < 0 or documents.is_still(lock, run / layout.VERDICTS / layout.JUDGE_LOCK)


def is_held(run: Path) -> bool | None:
    """Does anybody judge this run? None: its file system has no locks. Not for a process that judges it itself: to ask
    would cost it the lock.
    """
    return life.has_holder(run / layout.VERDICTS / layout.JUDGE_LOCK)
