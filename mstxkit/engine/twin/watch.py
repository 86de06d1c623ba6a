"""Hooks: a watched range begins, has ended; the process's step has changed; the first of all begins.

A site with a stage of its own is watched, and whichever `watch_site` marked. A hook may do anything, also start a
profiler that sets a sink, or let another thread run: what was known before it is read again.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from . import interruptions, switches
from .sites import Site, checked

Hook = Optional[Callable[..., object]]
_entered: Hook = None  # called with a site and whether the range may move to another thread
_left: Hook = None  # with a site and whether the range failed
_stepped: Hook = None  # with the step
_told: tuple[int, int] | None = None  # which step, and on which thread
_first: Hook = None


def set_watch(entered: Hook, left: Hook, stepped: Hook, /) -> None:
    """Whom to tell from now on; None: nobody."""
    global _entered, _left, _stepped, _told
    _entered, _left, _stepped, _told = entered, left, stepped, None


def watch(on: object, /) -> None:
    """Tell of watched ranges that begin from now on; or of no more."""
    switches.switch(switches.WATCH, on)


def watch_site(site: Site, /) -> None:
    """Watch it from now on, as a site with a stage is from the beginning."""
    checked(site).is_watched = True


def await_first(hook: Hook, /) -> None:
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
    _tell("watch.entered", _entered, opened.site, may_move)


def left(opened: Any, failed: bool) -> None:
    """It has ended."""
    process, opened.told_in = opened.told_in, None
    if _left is not None and process is switches.process:
        _tell("watch.left", _left, opened.site, failed)


def stepped(step: int) -> None:
    """Somebody has said the step; patched calls do at each call."""
    global _told
    if _stepped is None:
        return
    step_here = step, threading.get_ident()
    if step_here != _told or switches.on & switches.WATCH:
        _told = step_here
        _tell("watch.stepped", _stepped, step)


def _tell(where: str, hook: Callable[..., object], *args: Any) -> None:
    try:
        hook(*args)
    except Exception as exc:
        interruptions.note(where, exc)


def after_fork() -> None:
    """A forked child does not call the parent's hooks."""
    global _first
    _first = None
    set_watch(None, None, None)
