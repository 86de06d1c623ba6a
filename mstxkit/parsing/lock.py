"""One command parses a run at a time: a lock in the run, which ends with the last process that has it open.

It is handed on to the processes that parse, so that a command that was killed is over only when they are.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from ..errors import MstxkitError
from ..host import identity
from ..store import documents, layout

_DYING_S = 5.0  # a command that was just killed: its processes see that within moments
_LIMIT_BYTES = 1 << 12


def take_lock(folder: Path) -> int:
    """Lock the profiles of a run; the descriptor is the lock. Raises MstxkitError: another command has it, or the run
    cannot be written.
    """
    path = folder / layout.ANALYSIS_LOCK
    try:
        descriptor = documents.open_lock_file(path)
        # Not `lockf`: such a lock is not handed on to other processes.
        is_ours = documents.lock_within(descriptor, fcntl.flock, _DYING_S, 0.05)
    except OSError as exc:
        raise MstxkitError(
            f"{path} cannot be locked: {exc.strerror}; results are kept in the run, which must be writable: copy it"
        ) from exc
    if not is_ours:
        try:
            about: Any = json.loads(os.pread(descriptor, _LIMIT_BYTES, 0))
            holder = f" (process {int(about['pid'])} on {str(about['host'])[:64]})"
        except (ValueError, TypeError, KeyError, RecursionError):
            holder = ""
        os.close(descriptor)
        raise MstxkitError(f"another `mstxkit profiles --analyse` works on this run{holder}; wait until it has ended")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"host": identity.name_host(), "pid": os.getpid()}).encode(), 0)
    return descriptor
