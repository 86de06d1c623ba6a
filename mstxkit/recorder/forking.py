"""A fork without our threads, also in the eyes of Python, which from 3.12 on warns of a fork with more than one.

It counts what the kernel lists: threads that were joined a moment ago too, and in 3.13 those that the after-fork calls
have started.

Source: CPython 3.12 and 3.13, `Modules/posixmodule.c`, `warn_about_fork_with_threads` and `os_fork_impl`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Callable

from .. import faults

_COUNTS, _COUNTS_LATE = sys.version_info >= (3, 12), sys.version_info >= (3, 13)
# What a fork waits for our threads at most, all together; then it goes on without them.
WAITS_AT_MOST_S = 0.05
_waiting: list[Callable[[], None]] = []
_is_watching = False


def end_threads(end: Callable[[float], int], deadline: float) -> None:
    """Call `end`, which joins threads until a deadline and says how many, and wait until the kernel does not list them
    any more.
    """
    before = _thread_count() if _COUNTS else 0
    expected = before - end(deadline)
    while _COUNTS and _thread_count() > expected and time.monotonic() < deadline:
        time.sleep(0.0001)


def _thread_count() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def start_threads(start: Callable[[], None]) -> None:
    """Call `start` in the parent of a fork: at once, or where Python is still to count, when `os.fork` has returned.

    Where the program has threads of its own Python warns anyway, and `start` is called at once.
    """
    if _is_watching and threading.active_count() == 1 and threading.current_thread() is threading.main_thread():
        _waiting.append(start)
    else:
        start()


def watch_forks() -> None:
    """Register what `start_threads` needs; after all other after-fork calls of ours."""
    global _is_watching
    if not _COUNTS_LATE:
        return
    try:
        import ctypes
        from functools import partial
    except ImportError:  # a Python without libffi: then it warns
        return

    # A pending call is made as soon as the interpreter is back in Python code. So that this is where os.fork was
    # called, and not in an after-fork call, asking for it must be C all through.
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_waiting)
    os.register_at_fork(after_in_parent=partial(ctypes.pythonapi.Py_AddPendingCall, run, None))
    _is_watching = True


def _run_waiting(_: object) -> int:
    while _waiting:
        try:
            _waiting.pop()()
        except Exception as exc:
            faults.note("forking", exc)
    return 0
