"""Hooks: a watched range begins, has ended; the process's step has changed; the first of all begins.

A site with a stage of its own is watched, and whichever `watch_site` marked. A hook may do anything, also start a
profiler that sets a sink, or let another thread run: what was known before it is read again.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

from . import interruptions, switches
from .sites import Site, checked

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
    switches.switch(switches.WATCH, on)


def watch_site(site: Site, /) -> None:
    """Watch it from now on, as a site with a stage is from the beginning."""
    checked(site).is_watched = True


def await_first(hook: Callable[[], object] | None, /) -> None:
    """Call this once the next range or mark is about to begin, whoever it is; None: nobody waits for it any more.

    `hook` may switch recording on: then that range is recorded. Threads that come while it runs call it too. A forked
    child waits for nothing until it is told to. Where it returns True, the one after that calls it as well.
    """
    global _first
    _first = hook
    switches.switch(switches.AWAITED, hook is not None)


def first() -> None:
    """The first range or mark is about to begin."""
    asks_again = False
    try:
        asks_again = _first is not None and _first() is True
    except Exception as exc:
        interruptions.note("watch.first", exc)
    finally:
        if not asks_again:
            await_first(None)


def entered(opened: Any, may_move: bool) -> None:
    """A watched range begins. Whoever is told of it is told of its end."""
    if _entered is None:
        return
    opened.told_in = switches.process  # a hook may fork
    try:
        _entered(opened.site, may_move)
    except Exception as exc:
        interruptions.note("watch.entered", exc)


def left(opened: Any, failed: bool) -> None:
    """It has ended."""
    process, opened.told_in = opened.told_in, None
    if _left is None or process is not switches.process:
        return
    try:
        _left(opened.site, failed)
    except Exception as exc:
        interruptions.note("watch.left", exc)


def stepped(step: int) -> None:
    """Somebody has said the step; patched calls do at each call."""
    global _told
    if _stepped is None:
        return
    step_here = step, threading.get_ident()
    if step_here == _told and not switches.on & switches.WATCH:
        return
    _told = step_here
    try:
        _stepped(step)
    except Exception as exc:
        interruptions.note("watch.stepped", exc)


def after_fork() -> None:
    """A forked child does not call the parent's hooks."""
    global _first
    _first = None
    set_watch(None, None, None)
