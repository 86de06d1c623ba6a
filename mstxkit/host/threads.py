"""Whether a thread that is started here is one of the kernel's, what such a one waits for; and no signal is its."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` names each of a mask: 0.3 ms of a fork
import _thread
import threading
import time
from contextlib import suppress
from typing import Any

from . import proc_files

_REPLACERS = ("gevent", "eventlet")
# Taken once: who replaces threads after this has been imported replaces what makes their locks, too.
kernel_lock = _thread.allocate_lock
# A thread's own faults, and what a process is asked by for its stacks: whatever thread takes that shows all of them.
_TAKEN = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS", "SIGTRAP", "SIGURG")
_LEFT = frozenset(_signal.valid_signals().difference(getattr(_signal, name) for name in _TAKEN))


class Latch:
    """A `threading.Event` whose `wait` needs no new lock: an Event makes one, of a library's that has replaced threads
    since, and the thread that waits would become one of its tasks' for good.

    Source: CPython 3.9 to 3.14, `Lib/threading.py`, `Condition.wait`.
    """

    def __init__(self) -> None:
        self._lock, self.is_set = kernel_lock(), False
        self._lock.acquire()

    def set(self) -> None:
        """Let all go on that wait, now and later."""
        self.is_set = True
        with suppress(RuntimeError):  # it is open already
            self._lock.release()

    def clear(self) -> None:
        """Have who waits from now on wait."""
        self.is_set = False
        self._lock.acquire(blocking=False)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, at most so long. Is it?"""
        if self._lock.acquire(timeout=max(seconds, 0.0)) and self.is_set:
            with suppress(RuntimeError):  # for who waits besides; it is open already
                self._lock.release()
        return self.is_set


def replaced_by() -> str | None:
    """The library that has put tasks of its own in the place of threads; None: threads are the kernel's.

    All such tasks share one thread with the program. One of ours that waits in the kernel would stop the program.

    Source: gevent 26.9.0, `gevent/monkey/__init__.py` (`patch_thread`) and `gevent/thread.py`; eventlet 0.41.3,
        `eventlet/patcher.py` (`monkey_patch`) and `eventlet/green/thread.py`: both replace `_thread.start_new_thread`.
    """
    module = getattr(_thread.start_new_thread, "__module__", None) or ""
    library = module.partition(".")[0]
    return library if library in _REPLACERS else None


def start_unwaited(thread: threading.Thread) -> None:
    """As `thread.start()`, but not waiting until the new thread has had a CPU and the GIL, milliseconds on a busy host.

    Until then it is neither alive nor can it be joined: `wait_for` does both.
    Raises RuntimeError: no thread can be started.

    Source: CPython 3.9 to 3.14, `Lib/threading.py`, `Thread.start`: it ends with `self._started.wait()`.
    """
    started: Any = getattr(thread, "_started", None)
    if started is not None:
        started.wait = lambda timeout=None: True
    try:
        start_without_signals(thread)
    finally:
        if started is not None:
            del started.wait


def wait_for(thread: threading.Thread, deadline: float | None) -> bool:
    """Has it ended, by a deadline of `time.monotonic`? None: wait as long as that takes."""
    started: Any = getattr(thread, "_started", None)
    left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
    if started is not None and not started.wait(left_s):
        return False
    thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
    return not thread.is_alive()


def start_without_signals(thread: threading.Thread) -> None:
    """As `thread.start()`; signals are for the program's own threads, from its first moment on, also blocked ones."""
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())  # a handler may raise after each: then nothing is blocked
    try:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _LEFT)
        thread.start()
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


def is_runnable(native_id: int | None) -> bool:
    """Does this thread of this process run, or would it if it had a CPU? False where that is not known."""
    return proc_files.stat_of(f"/proc/self/task/{native_id}")[:1] == ["R"]
