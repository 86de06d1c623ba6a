"""Ranges and marks: how one begins, is on its track and in its stage, is told to tools, and ends as a record.

    begin     a hook is told · sinks are told · a place on its track · its clock · a slot in the live file · its stage
    end       its clock · a record · the slot · its track and its stage · sinks are told · a hook is told

Whatever interrupts a begin takes back what has been done; whatever interrupts an end, the rest is done all the same.
"""

from __future__ import annotations

import os
import threading
from types import coroutine
from typing import Any, Callable, Iterator

from ...host import names
from ...store import records
from . import banks, interruptions, listeners, sites, stages, tracks
from .interruptions import begins_with_try
from .listeners import AWAITED, ENTERED, LEFT, RECORD, TOOLS, WATCH, hooks
from .tracks import Opened, Track

on_decorate: Callable[[tuple[Any, ...], Any], Any] | None = None


def leave_parent() -> None:
    """A forked child touches nothing of its parent's file, tells its tools and hooks nothing, and is inside of nothing.

    All is off until it is switched on there.
    """
    banks.lock, banks.live, banks.beat = threading.RLock(), None, None
    listeners.on, listeners.process, listeners.sinks = 0, object(), dict.fromkeys(listeners.sinks)
    listeners.set_watch(None, None, None)
    listeners.await_first(None)
    stages.seen.clear()
    for stage in stages.interned.values():
        stage.sums, stage.open = {}, set()
        stage.times.clear()
    tracks.leave_all()


def begin(opened: Opened, stream: Any, may_move: bool) -> None:
    """Begin a range in the calling context, where anything is on."""
    site = opened.site
    if listeners.on & AWAITED:
        listeners.tell_first()
    if listeners.on & WATCH and site.is_watched and hooks[ENTERED] is not None:
        opened.told_in = listeners.process  # who is told of a begin is told of the end; and a hook may fork
        listeners.tell(ENTERED, hooks[ENTERED], site, may_move)
    on = listeners.on & ~AWAITED
    if not on and opened.told_in is None:
        return
    live = banks.live if on & RECORD else None
    if live is not None and live.pid != os.getpid():
        leave_parent()  # a child that was forked past `os.fork`
        return
    opened.before, opened.live = banks.now(), live
    site.calls += 1
    if site.is_limited:
        sites.look(opened, tracks.track_here().open)
    if on & TOOLS and not opened.is_coalesced:
        listeners.begin_in_sinks(opened, stream)
    stage = site.own_stage
    if live is None and stage is None and not opened.is_coalesced:
        return  # only tools see it
    track = tracks.track_here()
    opened.look_around(track)
    if opened.body is not None:
        track.bodies.add(opened.body)
    track.open.append(opened)
    if live is not None and not opened.is_coalesced:
        live.open_slot(opened)
    else:
        opened.start, opened.is_written = banks.now(), live is None
    if stage is not None:
        stage.begins(opened)
        tracks.stage_changed()


def finish(opened: Opened) -> None:
    """Do what is left of its end. What is done is not done again."""
    if not opened.is_written:
        opened.busy = opened.busy or int(opened.body is not None)
        if opened.live is not banks.live:
            opened.is_written = True  # it was let go of
        elif opened.is_coalesced:
            sites.add_coalesced(opened)
        else:
            opened.live.write(opened)
    if opened.slot:
        opened.live.close_slot(opened)
    if opened.home is not None:
        if opened.site.own_stage is not None:
            opened.site.own_stage.ends(opened)
        tracks.leave(opened)
    if opened.ends:
        listeners.end_in_sinks(opened)
    if opened.before:  # what it took its thread, sinks included
        opened.site.cost_ns += banks.now() - opened.end + (opened.start or opened.end) - opened.before
        opened.before = 0
    told_in, opened.told_in = opened.told_in, None
    if told_in is listeners.process:
        listeners.tell(LEFT, hooks[LEFT], opened.site, opened.failed)


def finish_rest(where: str = "range.end", exc: BaseException | None = None, opened: Opened | None = None) -> bool:
    """End what was interrupted in its begin or end, as far as that can be done here.

    Is what has interrupted this one now the program's, and passes on? A fault of ours is noted, but for one of a live
    file that was let go of meanwhile.
    """
    if opened is not None:
        tracks.unfinished.append(opened)  # before all that may be interrupted too
    is_ours = exc is not None and interruptions.is_ours(exc)
    if opened is not None and is_ours:
        opened.is_written = True
    for unfinished in tuple(tracks.unfinished):
        unfinished.failed, unfinished.end = True, unfinished.end or banks.now()
        try:
            finish(unfinished)
        except BaseException:  # one is enough, and it passes on
            continue
        if unfinished in tracks.unfinished:  # a signal's handler may have been faster
            tracks.unfinished.remove(unfinished)
    if is_ours and exc is not None and (opened is None or opened.live in (None, banks.live)):
        interruptions.note(where, exc)
    return not is_ours


tracks.finish_rest = finish_rest


def mark(message: Any, /, *, domain: Any = names.DEFAULT_DOMAIN, stream: Any = None, **attributes: object) -> None:
    """An instant, inside of what is open."""
    if not listeners.on:
        return
    if listeners.on & AWAITED:
        listeners.tell_first()
    instant = None
    try:
        instant = Opened(sites.intern(message, None, domain), attributes)
        if listeners.on & TOOLS:
            listeners.mark_in_sinks(instant.site, stream)
        instant.live = live = banks.live
        if listeners.on & RECORD and live is not None:
            instant.look_around(tracks.track_here())
            instant.start = instant.end = banks.now()
            instant.kind = records.MARK
            live.write(instant)
            instant.home.let_go()
    except BaseException as exc:
        if finish_rest("mark", exc, instant):
            raise


class Range:
    """An interval: begins on entry, ends on exit. May be entered again, also while it is open.

    One that is thrown away while open is ended with `error`, at the latest when the garbage collector finds it.
    """

    __slots__ = ("__weakref__", "_attributes", "_entries", "_site", "_stream", "domain", "name", "stage")

    _entries: list[Opened | None]  # None: everything was off

    def __init__(self, name: Any, stage: Any, domain: Any, stream: Any, attributes: Any, site: Any = None) -> None:
        self.name, self.stage, self._site = name, stage, site
        self.domain = names.DEFAULT_DOMAIN if domain is None else domain
        self._stream, self._attributes, self._entries = stream, attributes, []

    def __enter__(self, may_move: bool = False, body: Track | None = None) -> Range:
        opened = None
        try:
            if listeners.on:
                self._site = site = self._site or sites.intern(self.name, self.stage, self.domain)
                opened = Opened(site, self._attributes)
                opened.body = body
                begin(opened, self._stream, may_move)
                self.__class__ = _OpenRange
            self._entries.append(opened)
            return self
        except BaseException as exc:
            if opened is not None and opened in self._entries:
                self._entries.remove(opened)
            if finish_rest("range.begin", exc, opened):
                raise
            self._entries.append(None)
            return self

    @begins_with_try
    def __exit__(self, kind: Any = None, error: Any = None, traceback: Any = None, opened: Any = None) -> None:
        try:
            if not self._entries:
                banks.count("faults")
                return
            opened = self._entries[-1]
            del self._entries[-1]
            if opened is not None:
                opened.failed, opened.end = kind is not None and kind not in _NO_FAILURES, banks.now()
                finish(opened)
            if not self._entries:
                self.__class__ = Range
        except BaseException as exc:
            if self._entries and opened in (None, self._entries[-1]):  # up to Python 3.9, anywhere
                opened = self._entries.pop()
            if finish_rest("range.end", exc, opened):
                raise

    async def __aenter__(self) -> Range:
        return self.__enter__(True)

    @begins_with_try
    def __aexit__(self, kind: Any = None, error: Any = None, traceback: Any = None) -> Any:
        try:
            return await_nothing()
        finally:
            self.__exit__(kind, error, traceback)

    def __call__(self, function: Any) -> Any:
        """Decorate `function`: each call of it is a range like this one."""
        if not callable(function) and not hasattr(type(function), "__get__") or on_decorate is None:
            raise TypeError("a range is used in a with statement, or decorates one function")
        return on_decorate(self.__reduce__()[1], function)

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = dict(self._attributes or {}) or None
        return sites.unpickle, (self.name, self.stage, self.domain, self._stream, attributes)

    def set(self, /, **attributes: object) -> None:
        """Add attributes to the innermost open entry before its end."""
        opened = self._entries[-1] if self._entries else None
        if opened is not None:
            opened.attributes = {**(opened.attributes or {}), **attributes}


class _OpenRange(Range):
    """While it is open. A range that has ended has no `__del__`: what comes up in one is lost to the program."""

    __slots__ = ()

    def __del__(self) -> None:
        try:
            while self._entries:
                self.__exit__(RuntimeError)
        except Exception:
            pass  # the interpreter is going away


@coroutine
def await_nothing() -> Iterator[None]:
    """What is awaited, and done."""
    yield from ()


# The end of an iterator is none.
_NO_FAILURES = (GeneratorExit, StopIteration, StopAsyncIteration)


class Span:
    """One range around several pieces of work, for what has no single body: async generators.

    It is on a track only while the body runs. At a suspension everything that the body has open is taken off: the
    caller, or another task, is not inside of it. The time between resume and suspension adds up to `busy`.
    """

    def __init__(self, of: Range) -> None:
        self._range, self._body = of, Track(0)
        self._resumed_at: int | None = None  # while the body runs; 0 while it is about to
        self.has_begun = self._is_over = False

    def drive(self, awaitable: Any) -> Driven:
        """Run one awaitable inside the span."""
        return Driven(self, awaitable, False)

    def resume(self) -> None:
        """The body runs from here."""
        if True in (self._resumed_at is not None, self._is_over):
            return
        is_first, self.has_begun, self._resumed_at = not self.has_begun, True, 0
        if is_first:
            self._range.__enter__(True, self._body)
        if is_first and self._is_over:  # ended by whom a hook or sink let run
            self._range.__exit__(RuntimeError)
        self._move(True)
        self._resumed_at = banks.now()

    def suspend(self, failed: bool = False) -> None:
        """The body runs up to here."""
        self._move(False)

    def _move(self, onto_track: bool) -> None:
        """Where the body runs, that was busy until now. What it has open goes onto the track here, or off any."""
        opened = self._range._entries[0] if self._range._entries else None  # None also where all was off at its begin
        since, self._resumed_at = self._resumed_at, None
        if opened is not None and opened.home is not None:
            opened.busy += banks.now() - since if since else 0
            tracks.move(opened, tracks.track_here() if onto_track else self._body)

    @begins_with_try
    def close(self, failed: object) -> None:
        """End the range, where it has begun. Once."""
        try:
            if not self._is_over:
                self._move(True)
        finally:
            if self.has_begun and not self._is_over:
                self._is_over = True
                if self._range._entries:
                    self._range.__exit__(RuntimeError if failed else None)


_FINISHED = iter(())


class Driven:
    """Runs a coroutine or generator inside one range, from its first resume to its return, raise or close."""

    # Python lets go of them in this order: the body's frames leave their ranges before its own is thrown away.
    __slots__ = ("__weakref__", "_body", "_leave", "_span")

    def __init__(self, span: Span, body: Any, ends_span: bool) -> None:
        iterate = getattr(type(body), "__await__", None) or iter
        self._span, self._body = span, iterate(body)
        self._leave = span.close if ends_span else span.suspend

    def __await__(self) -> Driven:
        return self

    __iter__ = __await__

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Resume the body with a value."""
        if value is None and not hasattr(self._body, "send"):
            return self._resume_body(self._body.__next__)
        return self._resume_body(self._body.send, value)

    def throw(self, *error: Any) -> Any:
        """Resume the body with an exception."""
        try:
            return self._resume_body(self._body.throw, *error)
        finally:
            # An exception that leaves keeps this frame: with the exception in it, that would be a cycle.
            error = ()

    def _resume_body(self, resume: Any, *args: Any) -> Any:
        try:
            self._span.resume()
            result = resume(*args)
            self._span.suspend()
            return result
        except BaseException as exc:
            self._stop_body(not isinstance(exc, (StopIteration, GeneratorExit)))
            raise
        finally:
            resume, args = None, ()

    @begins_with_try
    def _stop_body(self, failed: bool) -> None:
        try:
            self._leave(failed)
        finally:
            self._leave(failed)  # where the first time was interrupted
        if self._leave != self._span.close:
            # Else the exception that comes out keeps, by way of this frame, what was thrown into the body.
            self._body = _FINISHED

    def close(self) -> None:
        """Close the body, and the range with it."""
        try:
            if self._span.has_begun:
                self._span.resume()
            self._body.close()
        except BaseException:
            self._leave(True)
            raise
        self._leave(False)
