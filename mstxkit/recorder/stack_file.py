"""Where this process writes what Python is at: for whoever asks while it hangs, and as a fatal signal ends it.

faulthandler writes it, where nobody else has switched that on: it chains to the handlers that are there, and a second
signal ends the process as it would have. Three ways lead here:

- a thread of ours, which holds the GIL, so that no other thread moves meanwhile (`write`);
- `STACKS_SIGNAL`, for whoever holds the GIL in native code and never gives it back; ignored by default, it harms nobody
  where our handler is gone. Whatever has a handler already keeps it;
- SIGSEGV, SIGFPE, SIGABRT, SIGBUS, SIGILL.

Nothing of it is on a training thread, but for the moment in which that is hung or dying.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterable

from ..host import proc_files
from ..host.descriptors import OwnDescriptor
from ..store import documents, stacks

# Ignored by default, as SIGCHLD and SIGWINCH are, but nobody's shell or terminal sends it.
STACKS_SIGNAL = signal.SIGURG
# Source: CPython 3.9 to 3.13, Modules/faulthandler.c, `faulthandler_handlers`.
_FATAL = (signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSEGV)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# More than any libc's `struct sigaction` takes. Source: glibc 2.41, bits/sigaction.h (152 bytes); musl 1.2.5, the same.
_ROOM, _HANDLER_BYTES = ctypes.c_char * 256, ctypes.sizeof(ctypes.c_void_p)


class _Writable:
    """What faulthandler takes for a file. It alone keeps it: once it has another one, that is somebody else's."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """Of the descriptor."""
        return self._number

    def flush(self) -> None:
        """Nothing is held back."""


class StackFile:
    """This process's file. `put_back` leaves the signals as they were.
    `path`: of the file, made here. Raises OSError: it cannot be made.

    Threads/fork: any thread of ours. A forked child closes its parent's, and makes a new one.
    """

    def __init__(self, path: Path) -> None:
        number = os.open(path, _FLAGS, documents.FILE_MODE)
        self._path, self._file = path, OwnDescriptor.of(number, path.name)
        os.fchmod(number, documents.FILE_MODE)
        self._fatal: Callable[[], object] = lambda: None
        self._asked: Callable[[], object] = lambda: None
        # Ray switches it on in its own processes, with its log: there it stays Ray's.
        if not faulthandler.is_enabled() and "ray" not in sys.modules:
            file = _Writable(number)
            faulthandler.enable(file, all_threads=True)  # fileno and flush are all it takes
            self._fatal = weakref.ref(file)
        if not _is_caught(STACKS_SIGNAL):
            file = _Writable(number)
            faulthandler.register(STACKS_SIGNAL, file, all_threads=True)
            self._asked = weakref.ref(file)
        self._ours: dict[int, bytes] = {n: _read_action(n)[:_HANDLER_BYTES] for n in (*_FATAL, STACKS_SIGNAL)}
        signal_here = int(STACKS_SIGNAL) if self._asked() is not None else 0
        os.write(number, stacks.line_of(stacks.BEGIN, {stacks.THREADS: _list_threads(), "signal": signal_here}))

    def look(self) -> None:
        """Once a second: has the program closed every descriptor that it has? Then its number may be another file's."""
        if not self._file.is_ours:
            self.put_back()

    def write(self, why: str) -> bool:
        """Every thread's calls, from a thread of ours. False where the file is not ours any more.

        *Cost*: the GIL, for as long as it takes: 0.1 ms a thread.
        """
        if not self._file.is_ours:
            return False
        number = self._file.number
        if os.fstat(number).st_size > stacks.LIMIT_BYTES:
            os.ftruncate(number, 0)
            os.write(number, stacks.line_of(stacks.BEGIN, {"signal": int(STACKS_SIGNAL) if self._asked() else 0}))
        about = {stacks.THREADS: _list_threads(), "why": why, "time_ns": time.time_ns()}
        os.write(number, stacks.line_of(stacks.THREADS, about))
        faulthandler.dump_traceback(number, all_threads=True)
        return True

    def say(self, word: str, fields: dict[str, Any]) -> None:
        """Add a line. Raises OSError."""
        if self._file.is_ours and os.fstat(self._file.number).st_size <= stacks.LIMIT_BYTES:
            os.write(self._file.number, stacks.line_of(word, fields))

    def put_back(self) -> None:
        """Leave the signals as they were, unless somebody has taken them over. Never raises."""
        if self._fatal() is not None:
            self._let_go_of(_FATAL, faulthandler.disable)
        if self._asked() is not None:
            self._let_go_of((STACKS_SIGNAL,), lambda: faulthandler.unregister(STACKS_SIGNAL))
        self._fatal = self._asked = lambda: None

    def _let_go_of(self, numbers: Iterable[int], let_go: Callable[[], object]) -> None:
        """faulthandler puts back what it found, also where the program has taken a signal over since."""
        actions = {number: _read_action(number) for number in numbers}
        let_go()
        for number, action in actions.items():
            if action and action[:_HANDLER_BYTES] != self._ours.get(number):
                _set_action(number, action, None)

    def close(self, is_left: bool = False) -> None:
        """Put back, and remove the file: who still wants to read it has it open. `is_left`: for who has not seen it, or
        as it is a parent's.
        """
        self.put_back()
        with suppress(OSError):  # the folder is gone, or nothing can be removed in it
            if self._file.is_ours and not is_left:
                self._path.unlink(missing_ok=True)
        self._file.close()


def _list_threads() -> list[list[Any]]:
    """(Python's number, the kernel's, name) of each thread that Python knows."""
    return [[t.ident, t.native_id, t.name[:64]] for t in threading.enumerate()[: stacks.THREADS_AT_MOST]]


def _is_caught(number: int) -> bool:
    """Has this signal a handler, of whatever language, or is it ignored on purpose?"""
    lines = proc_files.read_text("/proc/self/status").splitlines()
    try:
        masks = [line.split()[1] for line in lines if line.startswith(("SigCgt:", "SigIgn:", "SigBlk:"))]
        return not lines or any(int(mask, 16) >> number - 1 & 1 for mask in masks)
    except (ValueError, IndexError):
        return True


def _read_action(number: int) -> bytes:
    """What is done at a signal now: a `struct sigaction` of the C library's, of which nobody else need understand more
    than that it begins with the handler's address. b"" where the C library does not tell. *Cost*: a system call.
    """
    room = _ROOM()
    return b"" if _set_action(number, None, room) else room.raw


def _set_action(number: int, new: object, old: object) -> int:
    """0 where it was done."""
    try:
        return int(ctypes.pythonapi.sigaction(number, new, old))
    except (OSError, AttributeError, ctypes.ArgumentError):
        return -1
