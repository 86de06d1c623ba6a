"""Ranges and marks: how one begins, is on its track and in its stage, is told to tools, and ends as a record.

    begin     a hook is told · sinks are told · a place on its track · its clock · a slot in the live file · its stage
    end       its clock · a record · the slot · its track and its stage · sinks are told · a hook is told

Whatever interrupts a begin takes back what has been done; whatever interrupts an end, the rest is done all the same.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from ...host import names
from ...store import records
from ..plain_values import settle
from . import banks, clock, interruptions, limits, listeners, sites, tracks
from .interruptions import begins_with_try
from .listeners import AWAITED, RECORD, TOOLS, WATCH
from .tracks import Opened

on_decorate: Callable[[tuple[Any, ...], Any], Any] | None = None
# Called where a process is found to be a child that was forked past `os.fork`.
on_forked: Callable[[], None] = lambda: None  # noqa: E731


def begin(opened: Opened, stream: Any, may_move: bool) -> None:
    """Begin a range in the calling context, where anything is on."""
    site = opened.site
    if listeners.on & AWAITED:
        listeners.tell_first()
    if listeners.on & WATCH and site.is_watched:
        listeners.tell_entered(opened, may_move)
    on = listeners.on & ~AWAITED
    if not on and opened.told_in is None:
        return
    live = banks.live if on & RECORD else None
    if live is not None and live.pid != os.getpid():
        on_forked()
        return
    opened.before, opened.live = clock.now(), live
    site.calls += 1
    if site.limits is not None:
        limits.look(opened)
    if on & TOOLS and not opened.is_coalesced:
        listeners.begin_in_sinks(opened, stream)
    stage = site.own_stage
    if live is None and stage is None and not opened.is_coalesced:
        return  # only tools see it
    track = tracks.track_here()
    opened.take_place(track)
    opened.is_inner = stage is not None and stage in [other.site.own_stage for other in track.open]
    opened.track = track
    track.open.append(opened)
    if live is not None and not opened.is_coalesced:
        banks.open_slot(opened)
    else:
        opened.start, opened.is_written = clock.now(), live is None
    if stage is not None:
        stage.begins(opened)
        sites.seen.setdefault(stage.key)
        tracks.stage_changed(track)


def finish(opened: Opened) -> None:
    """Do what is left of its end. What is done is not done again."""
    if not opened.is_written:
        opened.busy = opened.busy or int(opened.is_body)
        if opened.live is not banks.live:
            opened.is_written = True  # it was let go of
        elif opened.is_coalesced:
            limits.ended(opened)
        else:
            if opened.made_with or opened.added:
                _settle_attributes(opened)
            opened.live.write(opened)
    if opened.slot:
        banks.close_slot(opened)
    track, stage = opened.track, opened.site.own_stage
    if track is not None:
        track.leave(opened)
        if stage is not None:
            stage.ends(opened)
            tracks.stage_changed(track)
        opened.track = None
    if opened.ends:
        listeners.end_in_sinks(opened)
    if opened.before:  # what it took its thread, sinks included
        opened.site.cost_ns += clock.now() - opened.end + (opened.start or opened.end) - opened.before
        opened.before = 0
    if opened.told_in is not None:
        listeners.tell_left(opened)


def _settle_attributes(opened: Opened) -> None:
    """All attributes of a range in order, within the limit, of plain values.

    A later value of a key replaces the earlier one. What is neither plain nor can be made so stays what it is.
    """
    together: dict[str, Any] = {}
    is_lost = False
    for attributes in (opened.made_with, opened.added):
        for key, value in tuple(attributes.items()) if attributes else ():
            if issubclass(type(key), str):
                together[str.__str__(key)] = value
            else:
                is_lost = True  # a wrapper's callable may give any dict
    limited = list(together.items())[: records.ATTRIBUTE_LIMIT]
    settled, opened.is_lost = settle(limited, is_lost or len(limited) < len(together))
    opened.settled = dict(settled)


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
        unfinished.failed, unfinished.end = True, unfinished.end or clock.now()
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
    live = banks.live
    try:
        site = sites.intern(message, None, domain)
        if listeners.on & TOOLS:
            listeners.mark_in_sinks(site, stream)
        if listeners.on & RECORD and live is not None:
            instant, track = Opened(site, attributes), tracks.track_here()
            instant.start = instant.end = clock.now()
            instant.kind = records.MARK
            instant.take_place(track)
            _settle_attributes(instant)
            live.write(instant)
            track.leave(instant)
    except Exception as exc:
        if not interruptions.is_ours(exc):
            raise
        if live is banks.live:  # else it was let go of meanwhile
            interruptions.note("mark", exc)


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

    def __enter__(self, may_move: bool = False) -> Range:
        opened = None
        try:
            if listeners.on:
                self._site = site = self._site or sites.intern(self.name, self.stage, self.domain)
                opened = Opened(site, self._attributes)
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
                banks.count(banks.FAULTS)
                return
            opened = self._entries[-1]
            del self._entries[-1]
            if opened is not None:
                opened.failed, opened.end = kind is not None and kind not in _NO_FAILURES, clock.now()
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
            return _DONE
        finally:
            self.__exit__(kind, error, traceback)

    def __call__(self, function: Any) -> Any:
        """Decorate `function`: each call of it is a range like this one."""
        if not callable(function) and not hasattr(type(function), "__get__") or on_decorate is None:
            raise TypeError("a range is used in a with statement, or decorates one function")
        return on_decorate(self._list_settings(dict(self._attributes or {}) or None), function)

    def __reduce__(self) -> tuple[Any, ...]:
        return sites.unpickle, self._list_settings(dict(self._attributes or {}))

    def _list_settings(self, attributes: Any) -> tuple[Any, ...]:
        return self.name, self.stage, self.domain, self._stream, attributes

    def set(self, /, **attributes: object) -> None:
        """Add attributes to the innermost open entry before its end."""
        opened = self._entries[-1] if self._entries else None
        if opened is not None:
            opened.added = {**(opened.added or {}), **attributes}


class _OpenRange(Range):
    """While it is open. A range that has ended has no `__del__`: what comes up in one is lost to the program."""

    __slots__ = ()

    def __del__(self) -> None:
        try:
            while self._entries:
                self.__exit__(RuntimeError)
        except Exception:
            pass  # the interpreter is going away


class _Done:
    """What is awaited, and done."""

    def __await__(self) -> Any:
        return iter(())


_DONE = _Done()
# The end of an iterator is none.
_NO_FAILURES = (GeneratorExit, StopIteration, StopAsyncIteration)
