"""Faults inside mstxkit: counted, logged once per place, never raised into the training code.

While a fork is under way they are kept and logged after it. The forking thread may hold the locks of logging then, and
wait for the very thread of ours that would log.

`reraise` is for mstxkit's own tests only: with it a fault is raised where it happens.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Callable

_INFO, _WARNING = 20, 30  # as of logging
counts: dict[str, int] = {}
reraise = False
# Set by `engine.choose` to the engine's count_fault, so that the number is also in the live file's header.
on_fault: Callable[[], None] | None = None
# What waits for the end of a fork; a few, as each place is logged once.
_waiting: deque[tuple[int, str, tuple[object, ...], Any]] = deque(maxlen=100)
_is_held = False
_said: set[str] = set()


def count_event(where: str) -> bool:
    """Count an event of which nobody need be told now. Is it the first of that place in this process?"""
    seen = counts.get(where, 0)
    counts[where] = seen + 1
    return not seen


def note_fault(where: str, exc: BaseException) -> None:
    """Count a fault at `where` and log the first one of that place with its traceback."""
    is_first = count_event(where)
    try:
        if on_fault is not None:
            on_fault()
    except Exception:
        pass  # it is counted here all the same
    if reraise:
        raise exc
    if is_first:
        message = "mstxkit: fault in %s, counted from here on; your program is not affected"
        _log_fault(_WARNING, message, where, exc_info=(type(exc), exc, exc.__traceback__))


class noted:
    """An exception of these kinds that comes up inside is a fault at `where`, and comes no further."""

    def __init__(self, where: str, kinds: type[Exception] | tuple[type[Exception], ...] = Exception) -> None:
        self._where, self._kinds = where, kinds

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> bool:
        if not isinstance(exc, self._kinds):
            return False
        note_fault(self._where, exc)
        return True


def warn_once(where: str, message: str) -> None:
    """Count an event that is no exception (a cap reached, say) and log the first one."""
    if count_event(where):
        _log_fault(_WARNING, "mstxkit: %s", message)


def say_once(message: str, is_asked_for: bool = False) -> None:
    """Log what is no fault, and not counted as one, once a process; as information where it was asked for."""
    if message not in _said:
        _said.add(message)
        _log_fault(_INFO if is_asked_for else _WARNING, "mstxkit: %s", message)


class NotLoaded(dict[str, Any]):
    """What a name of ours is while it cannot be loaded, as no descriptor or memory is left: to call it, or to ask for
    anything of it, is counted, and gives nothing.
    """

    def __init__(self, name: str, exc: BaseException) -> None:
        super().__init__()
        note_fault(name, exc)

    def __call__(self, *args: object, **named: object) -> NotLoaded:
        """Nothing, as itself."""
        return self

    def __getattr__(self, name: str) -> NotLoaded:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    __enter__ = __missing__ = __call__

    def __exit__(self, *error: object) -> None:
        """The program's exception, if there is one, goes on."""


def hold_logging() -> None:
    """Log nothing from now on: a fork begins."""
    global _is_held
    _is_held = True


def go_on() -> None:
    """Log what was kept, and at once again: the fork is over."""
    global _is_held
    _is_held = False
    while _waiting and not _is_held:
        level, message, args, exc_info = _waiting.popleft()
        _log_fault(level, message, *args, exc_info=exc_info)


def _log_fault(level: int, message: str, *args: object, exc_info: Any = None) -> None:
    if _is_held:
        _waiting.append((level, message, args, exc_info))
        return
    try:
        if "logging" in sys.modules:
            import logging

            logging.getLogger("mstxkit").log(level, message, *args, exc_info=exc_info)
        elif level >= _WARNING:
            # As logging does that nobody has set up. A thread of ours that imports it while another one forks would
            # have it let go of a lock after the fork that it did not take before.
            sys.stderr.write(f"{message % args}\n")
            if exc_info:
                sys.__excepthook__(*exc_info)
    except Exception:
        pass  # a handler of the program's that raises: there is nobody left to tell


def reset_counts() -> None:
    """Forget all counts: for tests and for a forked child, whose faults are its own."""
    global _is_held
    counts.clear()
    _waiting.clear()
    _is_held = False


def tell_hooks(hooks: list[Callable[[], None]]) -> None:
    """Call all of these; a fault of one keeps it from nothing. Never raises."""
    for call in list(hooks):
        with noted("told"):
            call()
