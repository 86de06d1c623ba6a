"""A fork without our threads, also in the eyes of Python, which from 3.12 on warns of a fork with more than one.

It counts what the kernel lists: threads that were joined a moment ago too, or that ended by themselves, and in 3.13
those that the after-fork calls have started.

Source: CPython 3.12 and 3.13, `Modules/posixmodule.c`, `warn_about_fork_with_threads` and `os_fork_impl`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from types import FrameType
from typing import Callable

from .. import faults

_COUNTS, _COUNTS_LATE = sys.version_info >= (3, 12), sys.version_info >= (3, 13)
# What a fork takes longer at most for our threads, and which share of it is waited before it and after it each.
WAITS_AT_MOST_S, SHARE = 0.05, 0.4
# The fork after which our threads come back may be on its way out yet, and one that begins waits for us: not for long.
RETURNS_WITHIN_S = 0.005
# Threads of ours that ended by themselves, the newest: (kernel's id, when). Nobody joins them, and it may list them
# yet; some time later another thread may have that id.
_left: deque[tuple[str, float]] = deque(maxlen=16)
_IS_LISTED_FOR_S = 1.0
# What is to be called when a fork has returned to the frame that asked for it.
_waiting: list[tuple[Callable[[], object], FrameType]] = []
_ask_again: Callable[[], object] | None = None


def end_threads(end: Callable[[float], int], deadline: float) -> None:
    """Call `end`, which joins threads until a deadline and says how many, and wait until the kernel does not list them
    any more.
    """
    before = _others_than_left() if _COUNTS else 0
    expected = before - end(deadline)
    while _COUNTS and len(_list_threads()) > expected and time.monotonic() < deadline:
        time.sleep(0.0001)


def warns_of(ours: int) -> bool:
    """Would Python warn of a fork for our threads alone, as there are no others but the one that forks? `ours`: how
    many there are.
    """
    return _COUNTS and _others_than_left() <= 1 + ours


def _others_than_left() -> int:
    since = time.monotonic() - _IS_LISTED_FOR_S
    return len(_list_threads().difference(thread for thread, when in _left if when >= since))


def leave_thread() -> None:
    """Called by a thread of ours that ends by itself, before anybody can learn that it has ended."""
    if _COUNTS:
        _left.append((str(threading.get_native_id()), time.monotonic()))


def _list_threads() -> set[str]:
    try:
        return set(os.listdir("/proc/self/task"))
    except OSError:
        return set()


def start_threads(start: Callable[[], object]) -> None:
    """Call `start` in the parent of a fork: at once, or where Python is still to count, when `os.fork` has returned.

    Where the program has threads of its own Python warns anyway, and `start` is called at once. Call this from an
    after-fork call itself: the frame above that is the one that asked for the fork.
    """
    if _ask_again and threading.active_count() == 1 and threading.current_thread() is threading.main_thread():
        after_fork = sys._getframe(1)
        _waiting.append((start, after_fork.f_back or after_fork))
    else:
        start()


def watch_forks() -> None:
    """Register what `start_threads` needs; after all other after-fork calls of ours."""
    global _ask_again
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
    _ask_again = partial(ctypes.pythonapi.Py_AddPendingCall, run, None)
    os.register_at_fork(after_in_parent=_ask_again)


def _run_waiting(_: object) -> int:
    with faults.noted("forking"):
        # Is Python in an after-fork call of somebody who registered later, such as `logging`'s, imported since?
        asked, above = (_waiting[0][1], sys._getframe(1).f_back) if _waiting else (None, None)
        while above is not None and above is not asked:
            above = above.f_back
        if _ask_again and above is not None:
            _ask_again()
        else:
            while _waiting:
                _waiting.pop()[0]()
    return 0


def is_about_to_exec(caller: FrameType | None) -> bool:
    """A child of `subprocess` with a `preexec_fn` runs Python for a moment: a live file would outlast it, with
    nothing in it.

    Source: CPython 3.9 to 3.13, `subprocess.py`, `Popen._execute_child`, which calls `_posixsubprocess.fork_exec`.
    """
    return caller is not None and caller.f_code.co_name == "_execute_child"
