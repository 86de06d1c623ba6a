"""Ranges and marks: how one begins, is on its track and in its stage, is told to tools, and ends as a record.

    begin     a hook is told · tools are told · a place on its track · its clock · a slot in the live file · its stage
    end       its clock · a record · the slot · its stage and its track · tools are told · a hook is told

Whatever interrupts a begin takes back what has been done; whatever interrupts an end, the rest is done all the same.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from ...host import names
from ...store import records
from . import attributes, banks, clock, interruptions, limits, sinks, sites, switches, tracks, watch
from .interruptions import begins_with_try, note
from .switches import AWAITED, RECORD, TOOLS, WATCH
from .tracks import Opened

# One call of a site in so many, less one, is timed, and looks whether this process is still the one that recorded.
_LOOKED_AT = 15
_DEAR_NS = 10_000  # what a call takes beyond this is not taken for the usual

on_decorate: Callable[[tuple[Any, ...], Any], Any] | None = None
# Called where a process is found to be a child that was forked past `os.fork`.
on_forked: Callable[[], None] = lambda: None  # noqa: E731


def begin(opened: Opened, stream: Any, may_move: bool) -> None:
    """Begin a range in the calling context, where anything is on."""
    site = opened.site
    if switches.on & AWAITED:
        watch.first()
    if switches.on & WATCH and site.is_watched:
        watch.entered(opened, may_move)
    on = switches.on & ~AWAITED
    if not on and opened.told_in is None:
        return
    live = banks.live if on & RECORD else None
    if on & TOOLS or not site.calls & _LOOKED_AT:
        opened.before = clock.now()
        if live is not None and live.pid != os.getpid():
            on_forked()
            return
    site.calls += 1
    if site.limits is not None:
        limits.look(opened)
    if on & TOOLS and not opened.is_coalesced:
        sinks.begin(opened, stream)
    stage = site.own_stage
    if live is None and stage is None and not opened.is_coalesced:
        return  # only tools see it
    track = tracks.track_here()
    opened.take_place(track)
    opened.track, track.top, opened.live = track, opened, live
    if live is None or opened.is_coalesced:
        opened.start = clock.now()
        opened.is_written = live is None
        if opened.is_coalesced:
            site.coalesced += 1
            if live is not None:
                banks.count(banks.COALESCED)
    else:
        _show(opened, live)
    if stage is not None:
        around = tracks.chain(opened.parent, track.ground)[:-1] if stage.open else ()
        opened.is_inner = stage in [other.site.own_stage for other in around]
        stage.begins(opened)
        sites.seen.setdefault(stage.key)
        tracks.stage_changed(track)


def _show(opened: Opened, live: Any) -> None:
    """A process that is killed leaves its open ranges in slots; the active bank says what they are."""
    bank = live.bank
    if not bank.knows(opened):
        live.define(opened)
    opened.start = clock.now()
    opened.is_written = False
    banks.open_slot(opened)
    if live.bank is not bank:
        live.define(opened)  # another thread has rotated before it saw the slot


@begins_with_try
def finish(opened: Opened, failed: bool) -> None:
    """End a range, all of it and once. An exception of the program's that comes up meanwhile passes on after that."""
    try:
        opened.end = clock.now()
        if not opened.is_written:
            _write(opened, failed)
        if opened.slot:
            banks.close_slot(opened)
        if opened.track is not None:
            _leave(opened)
        if opened.ends:
            _end_in_tools(opened)
        site = opened.site
        if opened.before:  # what it took its thread, tools included
            spent = clock.now() - opened.end + (opened.start or opened.end) - opened.before
            site.usual_ns = spent if spent < _DEAR_NS else _DEAR_NS
            site.cost_ns += spent
        else:
            site.cost_ns += site.usual_ns
        if opened.told_in is not None:
            watch.left(opened, failed)
    except BaseException as exc:
        tracks.unfinished.append(opened)
        finish_rest()
        if not interruptions.is_ours(exc):
            raise
        if opened.live is banks.live:  # else it was let go of meanwhile
            note("range.end", exc)


def finish_rest() -> None:
    """End what was interrupted in its end, as far as that can be done here."""
    for opened in tuple(tracks.unfinished):
        is_whole, opened.end = True, opened.end or clock.now()
        for act in (_write, banks.close_slot, _leave, _end_in_tools, watch.left):
            try:
                act(opened, True)  # what is done is not done again
            except BaseException:  # one is enough, and it passes on
                is_whole = False
        if is_whole and opened in tracks.unfinished:  # a signal's handler may have been faster
            tracks.unfinished.remove(opened)


tracks.finish_rest = finish_rest


def _write(opened: Opened, failed: bool) -> None:
    live = opened.live
    if opened.is_written or live is not banks.live:
        return
    if opened.is_body and not opened.busy:
        opened.busy = 1
    if opened.is_coalesced:
        limits.ended(opened, failed)
        return
    w2 = opened.end - opened.start
    if not 0 <= w2 <= records.DURATION_MAX:
        w2 = records.duration_bits(w2)
    w2 |= opened.depth << 40 | records.ERROR if failed else opened.depth << 40
    if opened.made_with or opened.added:
        live.write(opened, w2, *attributes.collect(opened))
    else:
        live.write(opened, w2)


def _leave(opened: Opened, failed: bool = False) -> None:
    track, stage = opened.track, opened.site.own_stage
    if track is None:
        return
    tracks.unlink(opened)
    if stage is not None:
        stage.ends(opened)
        tracks.stage_changed(track)
    if track.thread is None:  # it was parked
        opened.home.parked.discard(track)
    elif track.top is track.ground:
        tracks.let_go(track)
    opened.track = None


def _end_in_tools(opened: Opened, failed: bool = False) -> None:
    while opened.ends:
        tell_end = opened.ends[-1]
        del opened.ends[-1]
        tell_end()


def mark(message: Any, domain: Any, stream: Any, made_with: dict[str, Any]) -> None:
    """An instant, in the calling context."""
    if switches.on & AWAITED:
        watch.first()
    live = banks.live
    try:
        site = sites.intern(message, None, domain)
        if switches.on & TOOLS:
            sinks.mark(site, stream)
        if switches.on & RECORD and live is not None:
            instant = Opened(site, made_with)
            instant.end = clock.now()
            track = tracks.track_here()
            instant.take_place(track)
            values = attributes.collect(instant)
            live.write(instant, instant.depth << 40 | records.MARK << records.KIND_SHIFT, *values)
            tracks.let_go(track)
    except Exception as exc:
        if not interruptions.is_ours(exc):
            raise
        if live is banks.live:
            note("mark", exc)


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
            if switches.on:
                site = self._site
                if site is None:
                    site = self._site = sites.intern(self.name, self.stage, self.domain)
                opened = Opened(site, self._attributes)
                begin(opened, self._stream, may_move)
                self.__class__ = _OpenRange
            self._entries.append(opened)
            return self
        except BaseException as exc:
            if opened is not None:
                tracks.unfinished.append(opened)
                if opened in self._entries:
                    self._entries.remove(opened)
                finish_rest()
            if not interruptions.is_ours(exc):
                raise
            if opened is None or opened.live in (None, banks.live):  # else it was let go of meanwhile
                note("range.begin", exc)
            self._entries.append(None)
            return self

    @begins_with_try
    def __exit__(self, kind: Any = None, error: Any = None, traceback: Any = None) -> None:
        try:
            opened = None
            if not self._entries:
                note("range.exit_without_enter")
                return
            opened = self._entries[-1]
            del self._entries[-1]
            if opened is not None:
                finish(opened, kind is not None and kind not in _NO_FAILURES)
            if not self._entries:
                self.__class__ = Range
        except BaseException:
            if opened is not None:
                tracks.unfinished.append(opened)
                finish_rest()
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
        return on_decorate(self._settings(dict(self._attributes or {}) or None), function)

    def __reduce__(self) -> tuple[Any, ...]:
        return sites.unpickle, self._settings(dict(self._attributes or {}))

    def _settings(self, attributes: Any) -> tuple[Any, ...]:
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
                opened = self._entries.pop()
                if opened is not None:
                    finish(opened, True)
        except Exception:
            pass  # the interpreter is going away


class _Done:
    """What is awaited, and done."""

    def __await__(self) -> Any:
        return iter(())


_DONE = _Done()
# The end of an iterator is none.
_NO_FAILURES = (GeneratorExit, StopIteration, StopAsyncIteration)
