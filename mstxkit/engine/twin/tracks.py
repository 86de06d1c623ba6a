"""Tracks: who is inside what. A thread, or a context of `contextvars` on a thread, holds the ranges that it has open.

Python cannot ask which context it runs in. But a ContextVar's token can be used in the context that made it, and in no
other, not even in one copied from it: whoever can use a track's token is the context to which the track belongs.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar, Token
from typing import Any, Callable

from ...store import livefile, records
from . import banks

_THREAD_NAME_BYTES, _DEPTH_MAX = 64, records.DEPTH_MAX

_var: ContextVar[Track] = ContextVar("mstxkit.track")
# Innermost stage and step of `at_step`, as a context that is copied from this one inherits them.
ambient: ContextVar[tuple[Any, int | None]] = ContextVar("mstxkit.ambient", default=(None, None))
_local = threading.local()
_threads: list[Thread] = []
_tracks: list[Track] = []

# Ranges whose end could not be done, as at the limit of recursion: whoever looks at tracks next does it.
unfinished: list[Opened] = []
finish_rest: Callable[[], None] = unfinished.clear

# The step of this process, as records have it.
step = records.NO_STEP


class Opened:
    """A range between its begin and its end, or a mark, which ends as it begins."""

    # added, made_with   attributes that came by `set`, and those that it was made with
    # ends               how to end it in tools
    # home, track        the track on which it began; the one on which it is, if on any
    # depth, height      ranges around it at its begin; ranges that are open while it is the innermost
    # stage, inner       the stage of its record; the one that is current inside of it
    # live, is_written   the live file into which it is recorded, and whether it is, or nothing is to be
    # nest               of a limited site: its place, from 1, among its calls inside each other
    # is_inner           of a stage: is it inside of itself on its track?
    # before, told_in    when it was about to begin, where that is timed; in which process a hook was told of it
    __slots__ = (
        "added", "before", "busy", "depth", "end", "ends", "height", "home", "inner", "is_body", "is_coalesced",
        "is_inner", "is_written", "live", "made_with", "nest", "parent", "site", "slot", "stage", "start", "told_in",
        "track", "w1",
    )  # fmt: skip

    def __init__(self, site: Any, made_with: Any) -> None:
        self.site, self.made_with = site, made_with
        nothing: Any = None
        self.live = self.track = self.told_in = self.added = self.ends = self.inner = nothing
        self.busy = self.height = self.slot = self.nest = self.before = self.start = self.end = 0
        self.is_inner = self.is_coalesced = self.is_body = False
        self.is_written = True

    def take_place(self, track: Track) -> None:
        """Work out what its record says. It is not on the track yet."""
        site, parent = self.site, track.top
        now = track.at
        if now is None:
            now = step
        stage = site.own_stage
        if stage is None:
            stage = parent.inner
        depth = parent.height
        self.home, self.parent, self.inner, self.stage = track, parent, stage, stage
        self.height, self.depth = depth + 1, depth if depth < _DEPTH_MAX else _DEPTH_MAX
        self.w1 = site.id | track.id << 16 | now << 32

    def owners(self) -> tuple[Any, ...]:
        """What its record names by number."""
        return (self.site, self.home) if self.stage is None else (self.site, self.home, self.stage)


class Track:
    """The open ranges of one context: a chain from `top`, the innermost, by `parent`, down to the ground.

    The token leads back to the context, and would keep it and all its values until a garbage collection: only the
    context that has its thread's own track, and contexts with open ranges, have one.
    """

    __slots__ = ("at", "bank", "entry", "ground", "id", "parked", "thread", "token", "top")

    def __init__(self, track_id: int, thread: Thread | None) -> None:
        self.id, self.thread = track_id, thread
        self.token: Token[Track] | None = None
        self.at: int | None = None  # the step of `at_step`
        self.top = self.ground = ground = Opened(None, None)
        ground.parent = ground
        self.parked: set[Track] = set()  # suspended coroutines and generators that began here: it stays theirs
        self.bank: Any = None
        self.entry = livefile.TRACK, track_id, b""

    @property
    def is_idle(self) -> bool:
        """Has it no open range, not even a parked one?"""
        return self.top is self.ground and not self.parked

    @property
    def is_own(self) -> bool:
        """Is it the thread's own, the first of its tracks?"""
        return self.thread is not None and self.thread.tracks[0] is self

    def rename(self, thread: Thread) -> None:
        """Records name this thread from now on."""
        self.token = self.bank = None
        self.entry = livefile.TRACK, self.id, livefile.track_payload(thread.os_id, not self.is_own, thread.name)


class Thread:
    """A thread's tracks; taken over by a later thread once this one is gone."""

    def __init__(self) -> None:
        self.is_dead = False
        self.os_id = 0
        self.name = ""
        self.tracks: list[Track] = []

    def idle_track(self) -> Track:
        """The one with the lowest number that is idle, or a new one."""
        for track in self.tracks:
            if track.is_idle:
                return track
        with banks.lock:
            track = Track(min(len(_tracks), records.TRACK_MAX), self)
            _tracks.append(track)
            self.tracks.append(track)
        track.rename(self)
        return track


class _ThreadEnd:
    """Lives in a thread's locals, and so ends with the thread."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread

    def __del__(self) -> None:
        self.thread.is_dead = True


def this_thread() -> Thread:
    """The tracks of the calling thread."""
    end: _ThreadEnd | None = getattr(_local, "end", None)
    if end is None:
        with banks.lock:
            gone = (thread for thread in _threads if thread.is_dead and all(track.is_idle for track in thread.tracks))
            thread = next(gone, None) or Thread()
            if not thread.is_dead:
                _threads.append(thread)
            thread.is_dead = False
            _local.end = end = _ThreadEnd(thread)
        # `threading.current_thread` would make an object for a thread that it does not know.
        name = getattr(getattr(threading, "_active", {}).get(threading.get_ident()), "_name", None)
        raw = name.encode("utf-8", "backslashreplace") if isinstance(name, str) else b""
        thread.name = raw[:_THREAD_NAME_BYTES].decode("utf-8", "ignore")
        thread.os_id = threading.get_native_id() & 0xFFFFFFFF
        for track in thread.tracks:
            track.rename(thread)
    return end.thread


def after_fork() -> None:
    """A forked child has no step of its parent's, and what that is inside of is not around it. Its thread has another
    id.
    """
    global step, ambient
    step, ambient = records.NO_STEP, ContextVar("mstxkit.ambient", default=(None, None))
    for track in tuple(_tracks):
        track.top, track.at = track.ground, None
        track.ground.inner = None
        track.parked.clear()
    if getattr(_local, "end", None) is not None:
        thread = this_thread()
        thread.os_id = threading.get_native_id() & 0xFFFFFFFF
        for track in thread.tracks:
            track.rename(thread)


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
        if track.thread is not this_thread():
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
    thread = this_thread()
    if wanted is None or wanted.thread is not thread or wanted.top is not wanted.ground:
        wanted = thread.idle_track()
    wanted.ground.inner, wanted.at = ambient.get()
    _var.set(wanted)
    # Going back to the same value is cheaper than to none: hence twice.
    wanted.token = _var.set(wanted)
    return wanted


def let_go(track: Track) -> None:
    """A context that has no open range left lets go of its track, unless that is its thread's own."""
    if track.top is track.ground and not track.is_own:
        track.token = None


def stage_here() -> Any:
    """The innermost stage of the calling context."""
    if unfinished:
        finish_rest()
    track = own_track()
    return ambient.get()[0] if track is None else track.top.inner


def stage_changed(track: Track) -> None:
    """A stage began or ended on this track: what is created in this context from here on inherits the current one."""
    if own_track() is track:
        ambient.set((track.top.inner, track.at))


def set_at(at: int | None) -> None:
    """The step of the calling context, and of what is created in it."""
    ambient.set((stage_here(), at))
    track = own_track()
    if track is not None:
        track.at = at


def set_stage(stage: Any) -> None:
    """The stage of the calling context, and of what is created in it."""
    ambient.set((stage, ambient.get()[1]))
    track = own_track()
    if track is not None:
        track.top.inner = stage


def unlink(opened: Any) -> None:
    """Take a range off its track. Those above it stay, one nearer to the ground."""
    track = opened.track
    if track.top is opened:
        track.top = opened.parent
        return
    above = chain(track.top, opened)[:-1]
    if above:
        above[-1].parent = opened.parent
        _place(above, track)


def chain(top: Any, bottom: Any) -> list[Any]:
    """The open ranges from `top` down to `bottom`; none where `bottom` is not below `top`."""
    links = [top]
    while links[-1] is not bottom:
        if links[-1].parent is links[-1]:
            return []
        links.append(links[-1].parent)
    return links


def _place(moved: list[Any], track: Track) -> None:
    """What is below these has changed."""
    for opened in reversed(moved):
        opened.track, opened.height = track, opened.parent.height + 1
        opened.inner = opened.site.own_stage or opened.parent.inner


def park(bottom: Any, parked: Track) -> None:
    """Take a range, and all that is open inside of it, off its track, where it is on one."""
    track = bottom.track
    moved = [] if track is None or track is parked else chain(track.top, bottom)
    if not moved:
        return
    bottom.home.parked.add(parked)
    parked.top, track.top = track.top, bottom.parent
    bottom.parent = parked.ground
    for opened in moved:
        opened.track = parked
    _tell_inheritors(moved, track)
    let_go(track)


def unpark(bottom: Any, parked: Track) -> None:
    """Put it all on the track of the thread that resumes."""
    moved = chain(parked.top, bottom) if bottom.track is parked else []
    if moved:
        track = track_here(bottom.home)
        bottom.parent = track.top
        _place(moved, track)
        track.top, parked.top = parked.top, parked.ground
        bottom.home.parked.discard(parked)
        _tell_inheritors(moved, track)


def _tell_inheritors(moved: list[Any], track: Track) -> None:
    """Where a stage was parked or put back, tasks created from here on inherit another one."""
    if [opened for opened in moved if opened.site.own_stage is not None]:
        stage_changed(track)
