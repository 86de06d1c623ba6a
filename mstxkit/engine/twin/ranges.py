"""Ranges of the Python twin, the general way: any range, in any circumstances. The quick way is in `quick.py`."""

from __future__ import annotations

import os
import sys
from collections import deque
from sys import getrefcount
from typing import Any, Callable

from ... import faults
from ...host import names
from ...store import records
from . import banks, clock, limits, sinks, sites, tracks, watch
from .banks import Live
from .sites import Site
from .tracks import Node, Track

# A bank older than this many ticks could hold a duration that does not fit without scaling.
OLD = 1 << 39
# References to a range that nobody holds, as `getrefcount` counts them in its own exit: its cell's and the argument's.
# Later interpreters count otherwise.
NOBODY = 2 if sys.version_info < (3, 14) else -1

live: Live | None = None
is_on = False
is_recording = False

on_fault: Callable[[str, BaseException], object] = faults.note
on_decorate: Callable[[tuple[Any, ...], Any], Any] | None = None
# Called where the quick way must not be taken in this bank any more, and to make a position ready for it.
on_forked: Callable[[], None] = lambda: None  # noqa: E731
on_old_bank: Callable[[], None] = lambda: None  # noqa: E731
on_placed: Callable[[Node, Live], None] = lambda node, live: None  # noqa: E731


def fault(where: str, exc: BaseException | None = None) -> None:
    """Count a fault; one with an exception goes to the hook, whose own exceptions end here."""
    if exc is None:
        banks.count(live, banks.FAULTS)
        return
    try:
        on_fault(where, exc)
    except Exception:
        pass


class Open:
    """A range between its begin and its end."""

    __slots__ = ("attributes", "busy", "ends", "is_over", "more", "node", "process", "site", "start", "watched_in")

    def __init__(
        self, site: Site, node: Node | None, start: int, attributes: dict[str, Any] | None = None,
        ends: list[Callable[[], None]] | None = None,
    ) -> None:  # fmt: skip
        self.site, self.node, self.start, self.attributes, self.ends = site, node, start, attributes, ends
        self.more: dict[str, Any] | None = None
        self.busy = 0
        self.is_over = False
        self.process = sinks.process
        # What `watch.entered` gave.
        self.watched_in: object = None


def begin(
    site: Site, stream: Any = None, attributes: dict[str, Any] | None = None, is_driven: bool = False,
    may_move: bool = False,
) -> Open | None:  # fmt: skip
    """Begin a range in the calling context. None where nothing is on, or where that fails and no hook was called."""
    if watch.is_awaited:
        watch.first()
    if not is_on:
        return None
    watched_in = None
    if watch.is_watching and site.is_watched:
        watched_in = watch.entered(site, is_driven or may_move)
    before = clock.now()
    opened = None
    try:
        opened = _begin(site, stream, attributes, is_driven)
    except Exception as exc:
        fault("range.begin", exc)
    finally:
        site.calls += 1
        site.cost_ns += clock.now() - before
    if watched_in is not None:
        opened = opened or Open(site, None, 0)
        opened.watched_in = watched_in
    return opened


def _begin(site: Site, stream: Any, attributes: dict[str, Any] | None, is_driven: bool) -> Open:
    recorder = live if is_recording else None
    if recorder is not None and recorder.pid != os.getpid():
        on_forked()
        recorder = None
    nest = 0
    if site.limits is not None:
        track = tracks.track_here()
        nest = limits.nest_on(track, site)
        if site.limits.is_over(nest, clock.now()):
            return _fold(track, site, recorder, nest, is_driven)
    ends = sinks.begin(site, stream) if sinks.is_any() else None
    if recorder is None and not site.own_stage:
        return Open(site, None, 0, attributes, ends)  # only sinks see it: no clock, no track
    track = tracks.track_here()
    bank = recorder and recorder.bank
    node = position(track.node, site, recorder, is_driven)
    node.nest = nest
    track.node = node
    opened = Open(site, node, clock.now(), attributes, ends)
    if node.slot is not None:
        fill_slot(node, opened.start)
    if recorder is not None and recorder.bank is not bank:
        # Another thread has rotated before it saw the slot: a kill would leave what is open nameless.
        recorder.define_here(node.texts)
    if site.own_stage:
        sites.stage_of(site.own_stage).begins(opened.start, node.step, node.live is not None)
        tracks.stage_changed(track)
    return opened


def _fold(track: Track, site: Site, recorder: Live | None, nest: int, is_driven: bool) -> Open:
    """Begin a call that is coalesced: it is on its track, and that is all."""
    kept = None if is_driven else track.node.children.get(site)
    node = kept or tracks.child(track.node, site, None)
    if kept is None:
        node.nest = nest
        if recorder is not None:
            node.window = limits.window_of(node, recorder)
            if not is_driven and site.limits.is_all and may_be_quick(site):
                limits.keep(node)
    track.node = node
    return Open(site, node, clock.now())


def may_be_quick(site: Site) -> bool:
    """Does nothing watch each range?"""
    return not (sinks.is_any() or (watch.is_watching and site.is_watched))


def position(parent: Node, site: Site, recorder: Live | None, is_driven: bool) -> Node:
    """Where a range that begins here is. That of a body is nobody else's."""
    node = None if is_driven else parent.children.get(site)
    if node is None:
        node = tracks.child(parent, site, recorder)
        node.is_inside_itself = bool(site.own_stage) and _is_inside(parent, site.own_stage)
        if recorder is not None:
            node.texts = tracks.texts_of(site, node.home, node.stage)
            recorder.define_here(node.texts)
            if not is_driven and may_be_quick(site):
                on_placed(node, recorder)
                tracks.keep(node, recorder)
    return node


def _is_inside(node: Node, stage: int) -> bool:
    while node.parent is not node:
        if node.site.own_stage == stage:
            return True
        node = node.parent
    return False


def fill_slot(node: Node, start: int) -> None:
    """Say in its slot that a range is open at this position."""
    words, at = node.words, node.start_at
    words[at] = start
    words[at + 1] = node.w1
    words[at + 2] = node.w2
    words[at + 3] = start ^ node.key or 1


def end(opened: Open, failed: bool) -> None:
    """End a range: in the file, on its track and in the sinks that began it. Once; a second time is nothing."""
    if opened.is_over:
        return
    opened.is_over = True
    before = clock.now()
    if opened.node is not None:
        _end_on_track(opened, opened.node, failed)
    if opened.process is sinks.process:
        for tell_end in reversed(opened.ends or ()):
            tell_end()
    opened.site.cost_ns += clock.now() - before
    if opened.watched_in is not None:
        watch.left(opened.site, failed, opened.watched_in)


def _end_on_track(opened: Open, node: Node, failed: bool) -> None:
    at = clock.now()
    try:
        if node.window is not None:
            if node.window.live is live:
                limits.ended(node, opened.start, at, opened.busy, failed)
        elif node.live is not None and node.live is live:
            _record(opened, node, failed, at, live)
    except Exception as exc:
        if node.live is live:  # else it was let go of meanwhile
            fault("range.end", exc)
    try:
        _leave(opened, node, at)
    except Exception as exc:
        fault("range.end", exc)


def _record(opened: Open, node: Node, failed: bool, at: int, recorder: Live) -> None:
    if at - recorder.bank.origin > OLD:
        on_old_bank()
    w2 = records.duration_bits(at - opened.start) | node.depth << 40 | (records.ERROR if failed else 0)
    values, is_lost = attributes_of(opened.attributes, opened.more)
    recorder.write(node.texts, at, node.stage << 48, node.w1, w2, values, opened.busy, is_lost)
    if node.slot is not None or _is_marked(opened, node):
        node.words[node.mark_at] = 0
    tracks.give_slot_back(node)


def _is_marked(opened: Open, node: Node) -> bool:
    """Is it in a slot that was given back by another thread in the very moment in which it began the quick way?"""
    words = getattr(node, "words", None)  # none where there was no slot at all
    return words is not None and bool(words[node.mark_at] == opened.start ^ node.key)


def attributes_of(first: dict[str, Any] | None, more: dict[str, Any] | None) -> tuple[list[tuple[str, Any]], bool]:
    """The attributes of a range in order, within the limit; and is any of them lost?"""
    if not first and not more:
        return [], False
    together: dict[Any, Any] = {**(first or {}), **(more or {})}  # `timed` takes keys of any type
    values = [pair for pair in together.items() if issubclass(type(pair[0]), str)][: records.ATTRIBUTE_LIMIT]
    return values, len(values) < len(together)


def _leave(opened: Open, node: Node, at: int) -> None:
    track = node.track
    tracks.unlink(node)
    own_stage = node.site.own_stage
    if own_stage and opened.process is sinks.process:
        attributes = {**(opened.attributes or {}), **(opened.more or {})}
        is_recorded = node.live is not None and node.live is live
        is_inner = node.is_inside_itself
        stage = sites.stage_of(own_stage)
        stage.ends(at, node.step, opened.start, opened.busy, is_inner, attributes, is_recorded)
        tracks.stage_changed(track)
    tracks.left(track)


def mark(message: Any, domain: Any, stream: Any, attributes: dict[str, Any]) -> None:
    """An instant, in the calling context."""
    if watch.is_awaited:
        watch.first()
    try:
        site = sites.intern(message, None, domain)
        sinks.mark(site, stream)
        if is_recording and live is not None:
            _record_mark(site, attributes, live)
    except Exception as exc:
        fault("mark", exc)


def _record_mark(site: Site, attributes: dict[str, Any], recorder: Live) -> None:
    at = clock.now()
    track = tracks.track_here()
    here = track.node
    w1 = site.id | track.id << 16 | tracks.step_on(track) << 32
    w2 = min(here.height, records.DEPTH_MAX) << 40 | records.MARK << records.KIND_SHIFT
    texts = tracks.texts_of(site, track, here.inner)
    values, is_lost = attributes_of(attributes, None)
    recorder.write(texts, at, here.inner << 48, w1, w2, values, 0, is_lost)
    tracks.left(track)


class Range:
    """An interval: begins on entry, ends on exit. May be entered again, also while it is open.

    One that is thrown away while open is ended with `error`, at the latest when the garbage collector finds it.
    """

    __slots__ = ("_attributes", "_domain", "_entries", "_name", "_site", "_stage", "_stream")

    def __init__(
        self, name: Any, stage: Any = None, domain: Any = names.DEFAULT_DOMAIN, stream: Any = None,
        attributes: dict[str, Any] | None = None, site: Site | None = None,
    ) -> None:  # fmt: skip
        self._entries: list[Open | None] = []
        self._name, self._stage, self._domain = name, stage, domain
        self._stream, self._attributes, self._site = stream, attributes, site

    @property
    def name(self) -> Any:
        """The range's name."""
        return self._name

    @property
    def stage(self) -> Any:
        """The range's own stage, or None."""
        return self._stage

    @property
    def domain(self) -> Any:
        """The mstx domain."""
        return self._domain

    def __enter__(self) -> Range:
        self._entries.append(self._begin(False) if is_on else None)
        return self

    def _begin(self, is_driven: bool, may_move: bool = False) -> Open | None:
        try:
            if self._site is None:
                self._site = sites.intern(self._name, self._stage, self._domain)
        except Exception as exc:
            fault("range.begin", exc)
            return None
        return begin(self._site, self._stream, self._attributes, is_driven, may_move)

    def __exit__(self, kind: Any = None, error: Any = None, traceback: Any = None) -> None:
        if not self._entries:
            fault("range.exit_without_enter")
            return
        opened = self._entries.pop()
        if opened is not None:
            end(opened, is_failure(kind))

    async def __aenter__(self) -> Range:
        return self._enter_moving() if watch.is_watching else self.__enter__()

    def _enter_moving(self) -> Range:
        """Enter, in a body that may be suspended."""
        self._entries.append(self._begin(False, True) if is_on else None)
        return self

    async def __aexit__(self, kind: Any = None, error: Any = None, traceback: Any = None) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: Any) -> Any:
        """Decorate `function`: each call of it is a range like this one."""
        if not callable(function) and not hasattr(type(function), "__get__") or on_decorate is None:
            raise TypeError("a range is used in a with statement, or decorates one function")
        settings = (self._name, self._stage, self._domain, self._stream, dict(self._attributes or {}) or None)
        return on_decorate(settings, function)

    def __reduce__(self) -> tuple[Any, ...]:
        return sites.unpickle, (self._name, self._stage, self._domain, self._stream, dict(self._attributes or {}))

    def set(self, /, **attributes: object) -> None:
        """Add attributes to the innermost open entry before its end."""
        opened = self._entries[-1] if self._entries else None
        if opened is not None:
            opened.more = {**(opened.more or {}), **attributes}

    def __del__(self) -> None:
        try:
            for opened in reversed(self._entries):
                if opened is not None:
                    end(opened, True)
        except Exception:
            pass  # the interpreter is going away


def is_failure(kind: Any) -> bool:
    """Does leaving a body with this exception type mean that the body failed? The end of an iterator is none."""
    return kind is not None and kind not in (GeneratorExit, StopIteration, StopAsyncIteration)


def nobodys(lent: deque[Any]) -> Any:
    """One of these ranges, by weak references, that was let go of since, or None; what somebody holds stays."""
    for _ in range(len(lent)):
        try:
            reference = lent.popleft()
        except IndexError:
            break
        candidate = reference()
        if candidate is not None and getrefcount(candidate) == NOBODY + 1:
            candidate._lift()
            if not candidate._entries:
                return candidate
        elif candidate is not None:
            lent.append(reference)
    return None
