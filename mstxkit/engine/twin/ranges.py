"""Ranges and marks: how one begins, is on its track and in its stage, is told to tools, and ends as a record.

    begin     a hook is told · sinks are told · a place on its track · its clock · a slot in the live file · its stage
    end       its clock · a record · the slot · its stage and its track · sinks are told · a hook is told

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

# One call of a site in so many, less one, is timed, and looks whether this process is still the one that recorded.
_LOOKED_AT = 15
_DEAR_NS = 10_000  # what a call takes beyond this is not taken for the usual

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
    if on & TOOLS or not site.calls & _LOOKED_AT:
        opened.before = clock.now()
        if live is not None and live.pid != os.getpid():
            on_forked()
            return
    site.calls += 1
    opened.live = live
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
        _show(opened, live)
    else:
        opened.start, opened.is_written = clock.now(), live is None
    if stage is not None:
        stage.begins(opened)
        sites.seen.setdefault(stage.key)
        tracks.stage_changed(track)


def _show(opened: Opened, live: Any) -> None:
    """A process that is killed leaves its open ranges in slots; the active bank says what they are."""
    bank = live.bank
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
        opened.failed, opened.end = failed, clock.now()
        for act in _ACTS:
            act(opened)
    except BaseException as exc:
        if _undo("range.end", exc, opened):
            raise


def _undo(where: str, exc: BaseException, opened: Opened | None) -> bool:
    """End what has begun of it. Is it the program's, and passes on? A fault of ours is noted."""
    if opened is not None:
        tracks.unfinished.append(opened)
        finish_rest()
    is_ours = interruptions.is_ours(exc)
    if is_ours and (opened is None or opened.live in (None, banks.live)):  # else it was let go of meanwhile
        interruptions.note(where, exc)
    return not is_ours


def finish_rest() -> None:
    """End what was interrupted in its begin or end, as far as that can be done here."""
    for opened in tuple(tracks.unfinished):
        is_whole, opened.failed, opened.end = True, True, opened.end or clock.now()
        for act in _ACTS:
            try:
                act(opened)  # what is done is not done again
            except BaseException:  # one is enough, and it passes on
                is_whole = False
        if is_whole and opened in tracks.unfinished:  # a signal's handler may have been faster
            tracks.unfinished.remove(opened)


tracks.finish_rest = finish_rest


def _write(opened: Opened) -> None:
    live = opened.live
    if opened.is_written or live is not banks.live:
        return
    opened.busy = opened.busy or int(opened.is_body)
    if opened.is_coalesced:
        limits.ended(opened)
        return
    w2 = records.duration_bits(opened.end - opened.start) | opened.depth << 40 | records.ERROR * opened.failed
    attributes, is_lost = _attributes_of(opened) if opened.made_with or opened.added else ({}, False)
    live.write(opened, w2, attributes, is_lost)


def _attributes_of(opened: Opened) -> tuple[dict[str, Any], bool]:
    """All attributes of a range in order, within the limit, of plain values; and is any of them lost?

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
    settled, is_lost = settle(limited, is_lost or len(limited) < len(together))
    return dict(settled), is_lost


def _leave(opened: Opened) -> None:
    track, stage = opened.track, opened.site.own_stage
    if track is None:
        return
    tracks.unlink(opened)
    if stage is not None:
        stage.ends(opened)
        tracks.stage_changed(track)
    opened.home.parked.discard(track)  # where it was parked
    tracks.let_go(track)
    opened.track = None


def _add_cost(opened: Opened) -> None:
    """What it took its thread, sinks included; where that was not timed, as much as the last that was."""
    site, spent = opened.site, opened.site.usual_ns
    if opened.before:
        spent = clock.now() - opened.end + (opened.start or opened.end) - opened.before
        site.usual_ns = min(spent, _DEAR_NS)
    site.cost_ns += spent


# In this order. Each does nothing where it was done before.
_ACTS: tuple[Callable[[Opened], None], ...] = (
    _write, banks.close_slot, _leave, listeners.end_in_sinks, _add_cost, listeners.tell_left,
)  # fmt: skip


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
            instant.end = clock.now()
            instant.take_place(track)
            w2 = instant.depth << 40 | records.MARK << records.KIND_SHIFT
            live.write(instant, w2, *_attributes_of(instant))
            tracks.let_go(track)
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
            if _undo("range.begin", exc, opened):
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
                finish(opened, kind is not None and kind not in _NO_FAILURES)
            if not self._entries:
                self.__class__ = Range
        except BaseException as exc:
            if self._entries and opened in (None, self._entries[-1]):  # up to Python 3.9, anywhere
                opened = self._entries.pop()
            if _undo("range.end", exc, opened):
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
