"""Tracks: who is inside what. A thread, or a context of `contextvars` on a thread, holds the ranges that it has open.

Python cannot ask which context it runs in. But a ContextVar's token can be used in the context that made it, and in no
other, not even in one copied from it: whoever can use a track's token is the context to which the track belongs.
"""

from __future__ import annotations

import threading
import weakref
from contextvars import ContextVar, Token
from typing import Any, Callable

from ...store import livefile, records
from . import banks

_THREAD_NAME_BYTES = 64

_var: ContextVar[Track] = ContextVar("mstxkit.track")
# Innermost stage and step of `at_step`, as a context that is copied from this one inherits them.
ambient: ContextVar[tuple[Any, int | None]] = ContextVar("mstxkit.ambient", default=(None, None))
local = threading.local()
tracks: list[Track] = []

# Ranges whose end could not be done, as at the limit of recursion: whoever looks at tracks next does it.
unfinished: list[Opened] = []
finish_rest: Callable[[], object] = unfinished.clear

step = records.NO_STEP  # of this process, as records have it
first_said: list[int] | None = None


def first_step() -> list[int] | None:
    """The first step that was said since recording began, and when, in ticks; None: none was."""
    return first_said


class Opened:
    """A range between its begin and its end, or a mark, which ends as it begins."""

    added: Any = None  # attributes that came by `set`
    settled: dict[str, Any] = {}  # its attributes as its record has them
    is_lost = False  # is any of them not there?
    kind = records.RANGE
    ends: Any = None  # how to end it in sinks
    home: Any = None  # the track on which it began
    track: Any = None  # the one on which it is, if on any
    depth = 0  # ranges around it at its begin
    stage: Any = None  # that of its record
    owners: tuple[Any, ...] = ()  # what its record names by number
    inner: Any = None  # the stage that is current inside of it
    live: Any = None  # the live file into which it is recorded
    is_written = True  # there, or is nothing to be?
    nest = 0  # of a limited site: its place, from 1, among its calls inside each other
    is_inner = False  # of a stage: is it inside of itself on its track?
    before = 0  # when it was about to begin
    told_in: Any = None  # in which process a hook was told of it
    is_coalesced = is_body = failed = False
    start = end = busy = slot = w1 = 0

    def __init__(self, site: Any, made_with: Any) -> None:
        self.site, self.made_with = site, made_with

    def take_place(self, track: Track) -> None:
        """Work out what its record says. It is not on the track yet."""
        site, around = self.site, track.open
        stage = site.own_stage or (around[-1].inner if around else track.stage)
        self.home, self.depth = track, min(len(around), records.DEPTH_MAX)
        self.inner = self.stage = stage
        self.w1 = site.id | track.id << 16 | (step if track.at is None else track.at) << 32
        self.owners = (site, track) if stage is None else (site, track, stage)


class Track:
    """The open ranges of one context, from the outermost to the innermost; or those of a body that is suspended.

    The token leads back to the context, and would keep it and all its values until a garbage collection: only the
    context that has its thread's own track, and contexts with open ranges, have one.
    """

    def __init__(self, track_id: int) -> None:
        self.id = track_id
        self.life: Callable[[], ThreadLife | None] = lambda: None  # the thread's, while that lives
        self.os_id, self.is_own = 0, False
        self.token: Token[Track] | None = None
        self.open: list[Opened] = []
        self.stage: Any = None  # around all of them
        self.at: int | None = None  # the step of `at_step`
        self.parked: set[Track] = set()  # suspended bodies that began here: it stays theirs
        self.bank: Any = None
        self.entry = livefile.TRACK, track_id, b""

    def inner_stage(self) -> Any:
        """The stage that is current on it."""
        return self.open[-1].inner if self.open else self.stage

    def leave(self, opened: Opened) -> None:
        """Take a range off. What is inside of it stays, and is in the stage around it from now on."""
        if self.open and self.open[-1] is opened:
            del self.open[-1]
        elif opened in self.open:
            self.open.remove(opened)
            self.inherit()
        if opened.home is not self:
            opened.home.parked.discard(self)  # where it was parked
        self.let_go()

    def let_go(self) -> None:
        """A context that has no open range left lets go of its track, unless that is its thread's own."""
        if not self.open and not self.is_own:
            self.token = None

    def inherit(self) -> None:
        """Work out anew what is current inside of each."""
        stage = self.stage
        for opened in self.open:
            opened.inner = stage = opened.site.own_stage or stage

    def rename(self, life: ThreadLife) -> None:
        """Records on it name this thread from now on."""
        life.own = life.own or self
        self.life, self.os_id, self.is_own = weakref.ref(life), life.os_id, self is life.own
        self.token = self.bank = None
        self.entry = livefile.TRACK, self.id, livefile.track_payload(life.os_id, not self.is_own, life.name)


class ThreadLife:
    """A thread: it is among the thread's locals, and so ends with it."""

    def __init__(self) -> None:
        # `threading.current_thread` would make an object for a thread that it does not know.
        name = getattr(getattr(threading, "_active", {}).get(threading.get_ident()), "_name", None)
        raw = name.encode("utf-8", "backslashreplace") if isinstance(name, str) else b""
        self.name = raw[:_THREAD_NAME_BYTES].decode("utf-8", "ignore")
        self.os_id = threading.get_native_id() & 0xFFFFFFFF
        self.own: Track | None = None  # the first that it had


def life_here() -> ThreadLife:
    """The calling thread."""
    life: ThreadLife | None = getattr(local, "life", None)
    if life is None:
        local.life = life = ThreadLife()
    return life


def _idle_track(life: ThreadLife) -> Track:
    """The one with the lowest number on which nothing is open or parked: of its own, else of a thread that is gone."""
    with banks.lock:
        idle = [track for track in tracks if track.life() in (life, None) and not track.open and not track.parked]
        idle.sort(key=lambda track: track.life() is None)
        track = idle[0] if idle else Track(min(len(tracks), records.TRACK_MAX))
        if not idle:
            tracks.append(track)
        if track.life() is not life:
            track.rename(life)
    return track


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
        if track.life() is not life_here():
            return None
    track.token = _var.set(track)
    return track


def track_here(wanted: Track | None = None) -> Track:
    """The track of the calling context; where it has none, an idle one (`wanted`, if nothing is open on that)."""
    if unfinished:
        finish_rest()
    track = own_track()
    if track is not None:
        return track
    life = life_here()
    if wanted is None or wanted.life() is not life or wanted.open:
        wanted = _idle_track(life)
    wanted.stage, wanted.at = ambient.get()
    _var.set(wanted)
    # Going back to the same value is cheaper than to none: hence twice.
    wanted.token = _var.set(wanted)
    return wanted


def stage_here() -> Any:
    """The innermost stage of the calling context."""
    if unfinished:
        finish_rest()
    track = own_track()
    return ambient.get()[0] if track is None else track.inner_stage()


def stage_changed(track: Track) -> None:
    """A stage began or ended on this track: what is created in this context from here on inherits the current one."""
    if own_track() is track:
        ambient.set((track.inner_stage(), track.at))


def be_inside(stage: Any, at: int | None) -> None:
    """The calling context, and what is created in it, is inside of this stage and step of `at_step` from now on."""
    ambient.set((stage, at))
    track = own_track()
    if track is None:
        return
    track.at = at
    if track.open:
        track.open[-1].inner = stage
    else:
        track.stage = stage


def park(bottom: Opened, parked: Track) -> None:
    """Take a range, and all that is open inside of it, off its track, where it is on one."""
    track = bottom.track
    if track is None:
        return
    if track is not parked and bottom in track.open:
        at = track.open.index(bottom)
        bottom.home.parked.add(parked)
        parked.open, track.open = track.open[at:], track.open[:at]
    for opened in parked.open[::-1]:  # the outermost last: who is interrupted here does all of it again
        opened.track = parked
    stage_changed(track)
    track.let_go()


def unpark(bottom: Opened, parked: Track) -> None:
    """Put it all on the track of the thread that resumes."""
    if bottom in parked.open:
        track, moved = track_here(bottom.home), parked.open
        track.open, parked.open = track.open + moved, []
        for opened in moved:
            opened.track = track
        bottom.home.parked.discard(parked)
        track.inherit()
        stage_changed(track)
