"""How this process ends, in its own words: the status of `os._exit`, which runs nothing at the end, and the exception
that ended the program.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

from ..host import interpreters


class _Watching:
    """Whom to tell of `os._exit`, and what stood there before ours."""

    tell: Callable[[int], None] | None = None
    original: Any = None
    ours: Any = None


_watching = _Watching()


def watch(tell: Callable[[int], None]) -> None:
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


def error() -> str | None:
    """The name of the exception that ends this program, or this child of multiprocessing; None where there is none.

    Source: CPython 3.9 to 3.13, `Python/pythonrun.c` (an unhandled exception is kept in sys.last_type before the calls
        of atexit; at a prompt each one is, and the program goes on), `multiprocessing/process.py` (finalizers run while
        it is handled, up to 3.12; from then on `pool_children` keeps it as a program's is).
    """
    unhandled = None if interpreters.is_at_prompt() else getattr(sys, "last_type", None)
    kind = unhandled or sys.exc_info()[0]
    return None if kind is None or issubclass(kind, SystemExit) else kind.__name__
