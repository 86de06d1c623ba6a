"""Exceptions that nobody caught, told on their way out: the hooks that were there are called all the same.

Source: CPython 3.9 to 3.13, `Lib/threading.py` (`excepthook`, and its `args`), `Python/pythonrun.c` (`sys.excepthook`).
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from typing import Any, Callable

from .. import faults
from ..host import interpreters

_TEXT_AT_MOST, _AT_MOST = 8000, 8
# Nobody's fault.
_ENDINGS = (SystemExit, KeyboardInterrupt, GeneratorExit)

Tell = Callable[[dict[str, Any]], None]


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
        try:
            text = "".join(traceback.format_exception(kind, exc, trace, limit=-20, chain=False))[-_TEXT_AT_MOST:]
            about = {"type": kind.__name__, "text": text, "thread": thread[:64], "is_main": is_main}
            tell({**about, "time_ns": time.time_ns()})
        except Exception as exc:
            faults.note("unhandled", exc)

    def put_back(self) -> None:
        """The hooks that were there before, unless somebody has set his own since: his calls ours, which says nothing
        any more.
        """
        self._tell = None
        if sys.excepthook == self._hooks[0]:
            sys.excepthook = self._in_main
        if threading.excepthook == self._hooks[1]:
            threading.excepthook = self._in_thread
