"""Tracks: who is inside what. A thread, or a context of `contextvars` on a thread, holds the ranges that it has open.

Python cannot ask which context it runs in. But a ContextVar's token can be used in the context that made it, and in no
other, not even in one copied from it: whoever can use a track's token is the context to which the track belongs.
"""

from __future__ import annotations

import threading
import weakref
from contextvars import ContextVar, Token
from typing import Any, Callable

from ...host import names
from ...store import livefile, records
from . import banks

_THREAD_NAME_BYTES = 64

_var: ContextVar[Track] = ContextVar("mstxkit.track")
# Within which stage, and step of `at_step`, as a context that is copied from this one inherits them.
ambient: ContextVar[tuple[Within | None, int | None]] = ContextVar("mstxkit.ambient", default=(None, None))
tracks: list[Track] = []

# Ranges whose end could not be done, as at the limit of recursion: whoever looks at tracks next does it.
unfinished: list[Opened] = []
finish_rest: Callable[[], object] = unfinished.clear

step = records.NO_STEP  # of this process, as records have it
first_said: list[int] | None = None  # the first that was said since recording began, and when, in ticks


class Within:
    """What is inside of an occurrence of a stage has this in common, tasks that were created there too."""

    around: tuple[Within | None, ...] = ()  # within which they are since it ended in another context than its own

    def __init__(self, stage: Any) -> None:
        self.stage = stage


def _stage_of(within: Within | None) -> Any:
    while within is not None and within.around:
        within = within.around[0]
    return None if within is None else within.stage


class Opened:
    """A range between its begin and its end, or a mark, which ends as it begins."""

    kind = records.RANGE
    ends: Any = None  # how to end it in sinks
    home: Any = None  # the track on which it began
    body: Any = None  # of a coroutine or generator: what holds it while that is suspended
    depth = 0  # ranges around it at its begin
    stage: Any = None  # that of its record
    inner: tuple[Within | None, ...] = ()  # within which stage is what is inside of it, if not in the one around it?
    live: Any = None  # the live file into which it is recorded
    is_written = True  # there, or is nothing to be?
    nest = 0  # of a limited site: its place, from 1, among its calls inside each other
    is_inner = False  # of a stage: is it inside of itself on its track?
    before = 0  # when it was about to begin
    told_in: Any = None  # in which process a hook was told of it
    is_coalesced = failed = False
    start = end = busy = slot = w1 = 0

    def __init__(self, site: Any, attributes: Any) -> None:
        self.site, self.attributes = site, attributes

    def look_around(self, track: Track) -> None:
        """Work out what its record says. It is not on the track yet."""
        own, at = self.site.own_stage, ambient.get()[1]
        self.home, self.depth = track, min(len(track.open), records.DEPTH_MAX)
        self.stage = own or _stage_of(track.find_innermost())
        self.inner = () if own is None else (Within(own),)
        self.is_inner = own is not None and own in [other.site.own_stage for other in track.open]
        self.w1 = self.site.id | track.id << 16 | (step if at is None else at) << 32


class Track:
    """The open ranges of one context, from the outermost to the innermost; or those of a body that is suspended.

    The token leads back to the context, and would keep it and all its values until a garbage collection: only the
    context that has its thread's own track, and contexts with open ranges, have one.
    """

    around: Within | None = None  # all of them
    token: Token[Track] | None = None

    def __init__(self, track_id: int) -> None:
        self.id = track_id
        self.life: Callable[[], ThreadLife | None] = lambda: None  # the thread's, while that lives
        self.os_id, self.is_own = 0, False
        self.open: list[Opened] = []
        self.bodies: set[Track] = set()  # that began here and go on: it stays theirs
        self.entry = livefile.TRACK, track_id, b""

    def find_innermost(self) -> Within | None:
        """Within which stage is what begins on it now?"""
        return [self.around, *(within for opened in self.open for within in opened.inner)][-1]

    def is_idle(self) -> bool:
        """Is it nobody's?"""
        return not self.open and not self.bodies

    def let_go(self) -> None:
        """A context that has no open range left lets go of its track, unless that is its thread's own."""
        if self.is_idle() and not self.is_own:
            self.token = None


class ThreadLife:
    """A thread: it is among the thread's locals, and so ends with it."""

    def __init__(self) -> None:
        # `threading.current_thread` would make an object for a thread that it does not know.
        name = getattr(getattr(threading, "_active", {}).get(threading.get_ident()), "_name", None)
        raw = name.encode("utf-8", "backslashreplace") if isinstance(name, str) else b""
        self.name = names.cut_text(raw, _THREAD_NAME_BYTES).decode()
        self.os_id = threading.get_native_id() & 0xFFFFFFFF
        self.own: Track | None = None  # the first that it had


class _Local(threading.local):
    def __init__(self) -> None:
        self.life = ThreadLife()


local = _Local()


def leave_all() -> None:
    """In a forked child nobody is inside of anything. The thread that goes on has another id."""
    global _var, ambient, local, step
    _var, ambient = ContextVar("mstxkit.track"), ContextVar("mstxkit.ambient", default=(None, None))
    local, step = _Local(), records.NO_STEP
    for track in tracks:
        track.open = []
    tracks.clear()


def own_track() -> Track | None:
    """The track that belongs to the calling context, if one does."""
    track = _var.get(None)
    if track is None or track.token is None:
        return None
    try:
        _var.reset(track.token)
    except ValueError:
        return None  # it is that of another context
    except RuntimeError:  # used before: an exception of the program's came between these lines
        if track.life() is not local.life:
            return None
    track.token = _var.set(track)
    return track


def track_here() -> Track:
    """That of the calling context; where it has none, the lowest idle one of its thread, or of one that is gone."""
    if unfinished:
        finish_rest()
    track = own_track()
    if track is not None:
        return track
    life = local.life
    with banks.lock:
        idle = [track for track in tracks if track.is_idle() and track.life() in (life, None)]
        idle.sort(key=lambda track: track.life() is None)
        if not idle:
            idle = [Track(min(len(tracks), records.TRACK_MAX))]
            tracks.append(idle[0])
        track = idle[0]
        if track.life() is not life:  # records on it name this thread from now on
            life.own = life.own or track
            track.life, track.os_id, track.is_own = weakref.ref(life), life.os_id, track is life.own
            track.token = None
            track.entry = livefile.TRACK, track.id, livefile.track_payload(life.os_id, not track.is_own, life.name)
    track.around = ambient.get()[0]
    _var.set(track)
    # Going back to the same value is cheaper than to none: hence twice.
    track.token = _var.set(track)
    return track


def stage_here() -> Any:
    """The innermost stage of the calling context."""
    if unfinished:
        finish_rest()
    track = own_track()
    return _stage_of(ambient.get()[0] if track is None else track.find_innermost())


def stage_changed() -> Track | None:
    """What is created in the calling context from here on inherits the stage that is current now; returns its track."""
    track = own_track()
    if track is not None:
        ambient.set((track.find_innermost(), ambient.get()[1]))
    return track


def _holder_of(opened: Opened) -> Track | None:
    """The track on which it is open, or what holds it while a body is suspended."""
    for holder in (opened.home, opened.body):  # mostly
        if holder is not None and opened in holder.open:
            return holder  # type: ignore[no-any-return]
    others = [holder for track in tracks for holder in (track, *track.bodies) if opened in holder.open]
    return others[0] if others else None


def leave(opened: Opened) -> None:
    """Take a range off its track. What is inside of it stays, and is in the stage around it from now on."""
    track = _holder_of(opened) or opened.home
    if opened in track.open:
        track.open.remove(opened)
    opened.home.bodies.discard(opened.body)
    if opened.inner and stage_changed() is not track:
        for within in filter(None, opened.inner):
            within.around = (track.find_innermost(),)
    track.let_go()
    opened.home.let_go()


def move(bottom: Opened, to: Track) -> None:
    """Take a range, and all that is open inside of it, to another track, or to what holds it while it is suspended."""
    track = _holder_of(bottom)
    if track is not None and track is not to:
        at = track.open.index(bottom)
        # No call in between: it is on one of them.
        to.open, track.open = to.open + track.open[at:], track.open[:at]
        stage_changed()
        track.let_go()
