"""Hooks of the Python twin: a watched range begins, has ended; the process's step has changed; the first of all begins.

A site with a stage of its own is watched, and whichever `watch_site` marked. A hook may do anything, also start a
profiler that sets a sink, or let another thread run: what was known before it is read again.
"""

from __future__ import annotations

import threading
from typing import Callable

from . import sinks
from .sites import Site

is_watching = False
is_awaited = False
on_change: Callable[[], None] = lambda: None  # noqa: E731
on_fault: Callable[[str, BaseException], None] = lambda where, exc: None  # noqa: E731

_entered: Callable[[Site, bool], object] | None = None
_left: Callable[[Site, bool], object] | None = None
_stepped: Callable[[int], object] | None = None
_told: tuple[int, int] | None = None  # which step, and on which thread
_first: Callable[[], object] | None = None


def set_watch(
    entered: Callable[[Site, bool], object] | None,
    left: Callable[[Site, bool], object] | None,
    stepped: Callable[[int], object] | None,
    /,
) -> None:
    """Whom to tell from now on; None: nobody."""
    global _entered, _left, _stepped, _told
    _entered, _left, _stepped, _told = entered, left, stepped, None


def watch(on: object, /) -> None:
    """Tell of watched ranges that begin from now on; or of no more."""
    global is_watching
    is_watching = bool(on)
    on_change()


def await_first(hook: Callable[[], object] | None, /) -> None:
    """Call this once the next range or mark is about to begin, whoever it is; None: nobody waits for it any more.

    `hook` may switch recording on: then that range is recorded. Threads that come while it runs call it too. A forked
    child waits for nothing until it is told to. Where it returns True, the one after that calls it as well.
    """
    global is_awaited, _first
    is_awaited, _first = hook is not None, hook
    on_change()


def first() -> None:
    """The first range or mark is about to begin."""
    asks_again = False
    try:
        asks_again = _first is not None and _first() is True
    except Exception as exc:
        on_fault("watch.first", exc)
    finally:
        if not asks_again:
            await_first(None)


def entered(site: Site, may_move: bool) -> object | None:
    """A watched range begins.

    Returns:
        The process in which `left` calls the hook; None where no hook was called.
    """
    if _entered is None:
        return None
    process = sinks.process  # a hook may fork
    try:
        _entered(site, may_move)
    except Exception as exc:
        on_fault("watch.entered", exc)
    except BaseException:  # the user's Ctrl-C: the range does not begin
        left(site, True, process)
        raise
    return process


def left(site: Site, failed: bool, process: object) -> None:
    """It has ended."""
    if _left is None or process is not sinks.process:
        return
    try:
        _left(site, failed)
    except Exception as exc:
        on_fault("watch.left", exc)


def stepped(step: int) -> None:
    """Somebody has said the step; patched calls do at each call."""
    global _told
    if _stepped is None:
        return
    step_here = step, threading.get_ident()
    if step_here == _told and not is_watching:
        return
    _told = step_here
    try:
        _stepped(step)
    except Exception as exc:
        on_fault("watch.stepped", exc)


def after_fork() -> None:
    """A forked child does not call the parent's hooks."""
    global is_watching, is_awaited, _first
    is_watching, is_awaited, _first = False, False, None
    set_watch(None, None, None)
