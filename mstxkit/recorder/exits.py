"""How this process ends, in its own words: the status of `os._exit`, which runs nothing at the end, the exception that
ended the program, and those that nobody caught, told on their way out, where the hooks that were there are called too.

Source: CPython 3.9 to 3.13, `Lib/threading.py` (`excepthook`, and its `args`), `Python/pythonrun.c` (`sys.excepthook`).
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from typing import Any, Callable

from .. import faults
from ..host import interpreters

_TEXT_AT_MOST, _AT_MOST = 8000, 8
# Nobody's fault.
_ENDINGS = (SystemExit, KeyboardInterrupt, GeneratorExit)

Tell = Callable[[dict[str, Any]], None]


class _Watching:
    """Whom to tell of `os._exit`, and what stood there before ours."""

    tell: Callable[[int], None] | None = None
    original: Any = None
    ours: Any = None


_watching = _Watching()


def watch_exits(tell: Callable[[int], None]) -> None:
    """Call `tell` with the status before this process ends by `os._exit`, until `leave_off`.

    Processes that are forked from here on have it too. Cost: none before the end.
    """
    _watching.tell = tell
    if os._exit is _watching.ours:
        return
    original = os._exit

    @functools.wraps(original)
    def _exit(status: int) -> Any:
        if _watching.tell is not None:
            try:
                _watching.tell(status)
            except Exception:  # nothing may keep it from ending, and nobody is left to hear of a fault
                pass
        return original(status)

    # Pickled by its name: a child that gets it as its target has its own.
    _exit.__module__ = "os"
    _watching.original, _watching.ours = original, _exit
    os._exit = _exit


def leave_off() -> None:
    """Tell nobody any more, and put back what was there, unless somebody else has replaced ours."""
    _watching.tell = None
    if _watching.ours is not None and os._exit is _watching.ours:
        os._exit = _watching.original
        _watching.ours = None


def name_error() -> str | None:
    """The name of the exception that ends this program, or this child of multiprocessing; None where there is none.

    Source: CPython 3.9 to 3.13, `Python/pythonrun.c` (an unhandled exception is kept in sys.last_type before the calls
        of atexit; at a prompt each one is, and the program goes on), `multiprocessing/process.py` (finalizers run while
        it is handled, up to 3.12; from then on `pool_children` keeps it as a program's is).
    """
    unhandled = None if interpreters.is_at_prompt() else getattr(sys, "last_type", None)
    kind = unhandled or sys.exc_info()[0]
    return None if kind is None or issubclass(kind, SystemExit) else kind.__name__


class Unhandled:
    """Tells of each, until `put_back`. `tell`: what is called with `type`, `text`, `thread`, `is_main`, `time_ns`, at
    most 8 times.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell: Tell | None = tell
        self._count = 0
        self._in_main, self._in_thread = sys.excepthook, threading.excepthook
        self._hooks = self._of_main, self._of_thread
        sys.excepthook, threading.excepthook = self._hooks

    def tell_of(self, exc: BaseException) -> None:
        """Tell of one that ends what is recorded here, before any hook is called."""
        self._note(type(exc), exc, exc.__traceback__, threading.current_thread().name, True)

    def _of_main(self, kind: Any, exc: Any, trace: Any) -> Any:
        if not interpreters.is_at_prompt():
            self._note(kind, exc, trace, threading.current_thread().name, True)
        return self._in_main(kind, exc, trace)

    def _of_thread(self, args: Any, /) -> Any:
        name = "" if args.thread is None else args.thread.name
        self._note(args.exc_type, args.exc_value, args.exc_traceback, name, False)
        return self._in_thread(args)

    def _note(self, kind: Any, exc: Any, trace: Any, thread: str, is_main: bool) -> None:
        tell = self._tell
        if tell is None or self._count >= _AT_MOST or issubclass(kind, _ENDINGS):
            return
        self._count += 1
        with faults.noted("unhandled"):
            import traceback

            text = "".join(traceback.format_exception(kind, exc, trace, limit=-20, chain=False))[-_TEXT_AT_MOST:]
            about = {"type": kind.__name__, "text": text, "thread": thread[:64], "is_main": is_main}
            tell({**about, "time_ns": time.time_ns()})

    def put_back(self) -> None:
        """The hooks that were there before, unless somebody has set his own since: his calls ours, which says nothing
        any more.
        """
        self._tell = None
        if sys.excepthook == self._hooks[0]:
            sys.excepthook = self._in_main
        if threading.excepthook == self._hooks[1]:
            threading.excepthook = self._in_thread
