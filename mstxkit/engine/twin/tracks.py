"""Which ranges are open in which, for the Python twin: contexts, tracks, and positions on them.

Python cannot ask which context it runs in. But a ContextVar's token can be used in the context that made it, and in no
other, not even one copied from it: whoever can use a track's token is the context that the track belongs to.

A position (`Node`) is a place in the tree of ranges inside ranges. It has all that a range begun there writes, worked
out once. Positions are forgotten whenever what they were worked out from changes: `renew`.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar, Token
from typing import Any, Callable

from ...store import livefile, records
from . import banks, sites
from .banks import Live
from .sites import Site

# Deeper positions are not kept.
KEPT_DEPTH = 16
_THREAD_NAME_BYTES = 64

_var: ContextVar[Track] = ContextVar("mstxkit.track")
# Innermost stage and step of `at_step`, as a context that is copied from this one inherits them.
ambient: ContextVar[tuple[int, int | None]] = ContextVar("mstxkit.ambient", default=(0, None))
_local = threading.local()
_threads: list[Thread] = []
_by_id: list[Track] = []
epoch = object()  # another one after each `renew`
# The bank of positions whose calls are coalesced.
FOLDED: Any = object()
_NO_SLOT: Any = [0, 0]

# Do ranges begin in more contexts than one a thread? Until that is seen, the quick way does not ask for the token. It
# is seen at the first position that is new while an event loop runs, or in a context copied from one with ranges.
has_contexts = False
on_contexts: Callable[[], None] = lambda: None  # noqa: E731
on_threads: Callable[[], None] = lambda: None  # noqa: E731

# For the quick way, which calls them itself.
track_calls: Any = (_var.get, _var.reset, _var.set)

# The step of this process; None before the first.
step: int | None = None


class Node:
    """A position: a range that is open, or one that may be begun there again. Only one at a time is open at it."""

    __slots__ = (
        "bank", "base", "check", "children", "count_at", "depth", "epoch", "firsts", "fresh", "height", "home",
        "inner", "is_inside_itself", "is_kept", "key", "live", "mark_at", "nest", "parent", "seconds", "site", "slot",
        "stage", "start_at", "step", "tails", "take", "texts", "thirds", "track", "w1", "w2", "window", "words",
    )  # fmt: skip

    # Where its slot is, and what is in it.
    words: memoryview
    start_at: int
    mark_at: int
    key: int
    w1: int
    w2: int
    # What its records in `bank` are made of: see `quick.placed`.
    take: Callable[..., Any]
    firsts: memoryview
    seconds: memoryview
    thirds: memoryview
    base: int
    check: int
    count_at: int
    tails: list[int]
    # Of coalesced calls: see `limits.keep`.
    fresh: list[tuple[int, int]]

    def __init__(self, site: Any, parent: Node | None, track: Track) -> None:
        self.site: Site = site
        self.parent: Node = self if parent is None else parent
        # Where it is now, and where it began.
        self.track = self.home = track
        self.children: dict[Site, Node] = {}
        self.live: Live | None = None
        # Of a limited site: its place, from 1, among its calls inside each other, and where it is coalesced.
        self.nest = 0
        self.window: Any = None
        self.texts: list[tuple[int, int, bytes]] = []
        self.slot: int | None = None
        self.bank: Any = None
        self.is_kept = self.is_inside_itself = False
        self.epoch = epoch
        # Open ranges on the track while this one is the innermost; below it, while it is not there.
        self.height: int = 0 if parent is None else parent.height + 1
        self.depth = min(max(self.height - 1, 0), records.DEPTH_MAX)
        self.stage = self.inner = 0
        self.step = records.NO_STEP


class Track:
    """What holds the open ranges of one context. `node` is where that is now, `root` where nothing is open.

    The token leads back to the context, and would keep it and all its values until a garbage collection: only the
    context that has its thread's own track, and contexts with open ranges, have one.
    """

    __slots__ = ("at", "epoch", "id", "kept", "node", "parked", "root", "thread", "token")

    def __init__(self, track_id: int, thread: Thread | None) -> None:
        self.id, self.thread = track_id, thread
        # Another one where positions are forgotten or have moved: what was parked meanwhile holds stale ones.
        self.epoch = object()
        self.parked = 0
        self.token: Token[Track] | None = None
        self.at: int | None = None
        self.kept: list[Node] = []
        self.root = self.node = Node(None, None, self)

    @property
    def is_idle(self) -> bool:
        """Has it no open range, not even a parked one?"""
        return self.node is self.root and not self.parked

    @property
    def is_own(self) -> bool:
        """Is it the thread's own, the first of its tracks?"""
        return self.thread is not None and self.thread.tracks[0] is self

    @property
    def os_id(self) -> int:
        """Its thread, as the system numbers them."""
        return self.thread.os_id & 0xFFFFFFFF if self.thread else 0

    def payload(self) -> bytes:
        """Its text entry."""
        return livefile.track_payload(self.os_id, not self.is_own, self.thread.name if self.thread else "")

    def renew(self) -> None:
        """Forget all positions."""
        self.epoch = object()
        node = self.node
        node.children.clear()
        while node is not node.parent:
            node = node.parent
            node.children.clear()
        kept, self.kept = self.kept, []
        for node in kept:
            # In this order: one that is open at this moment is ended the general way, which gives its slot back.
            node.is_kept, node.bank = False, None
            if node.live is not None and node.slot is not None and not node.live.is_used(node.slot):
                node.live.free.append(node.slot)
                node.slot = None


class Thread:
    """A thread's tracks; taken over by a later thread once this one is gone."""

    __slots__ = ("is_dead", "name", "os_id", "tracks")

    def __init__(self) -> None:
        self.is_dead = False
        self.os_id = 0
        self.name = ""
        self.tracks: list[Track] = []

    def idle_track(self) -> Track:
        """The one with the lowest id that is idle, or a new one."""
        for track in self.tracks:
            if track.is_idle:
                return track
        with banks.lock:
            new = Track(min(len(_by_id), records.TRACK_MAX), self)
            _by_id.append(new)
        self.tracks.append(new)
        return new


class _ThreadEnd:
    """Lives in a thread's locals, and so ends with the thread."""

    __slots__ = ("thread",)

    def __init__(self, thread: Thread) -> None:
        self.thread = thread

    def __del__(self) -> None:
        self.thread.is_dead = True


def this_thread() -> Thread:
    """The tracks of the calling thread."""
    end: _ThreadEnd | None = getattr(_local, "end", None)
    if end is None:
        with banks.lock:
            gone = (t for t in _threads if t.is_dead and all(track.is_idle for track in t.tracks))
            thread = next(gone, None) or Thread()
            if not thread.is_dead:
                _threads.append(thread)
            thread.is_dead = False
            if len(_threads) > 1:
                on_threads()
        thread.os_id = threading.get_native_id()
        thread.name = _name_here()
        for track in thread.tracks:
            track.token = None
            track.renew()
        _local.end = end = _ThreadEnd(thread)
    return end.thread


def _name_here() -> str:
    """What Python calls this thread. `threading.current_thread` would make an object for one that it does not know."""
    name = getattr(getattr(threading, "_active", {}).get(threading.get_ident()), "_name", None)
    if not isinstance(name, str):
        return ""
    return name.encode("utf-8", "backslashreplace")[:_THREAD_NAME_BYTES].decode("utf-8", "ignore")


def leave_all() -> None:
    """In a forked child: it has no step of its parent's, and what that is inside of is not around it."""
    global step, ambient
    step, ambient = None, ContextVar("mstxkit.ambient", default=(0, None))
    renew()
    for track in _by_id:
        track.node, track.at = track.root, None
        track.root.inner = 0


def after_fork() -> None:
    """The thread has another id in a forked child."""
    end: _ThreadEnd | None = getattr(_local, "end", None)
    if end is not None:
        end.thread.os_id = threading.get_native_id()


def own_track() -> Track | None:
    """The track that belongs to the calling context, if one does."""
    track = _var.get(None)
    if track is None:
        return None
    try:
        _var.reset(track.token)  # type: ignore[arg-type]
    except (ValueError, RuntimeError, TypeError):
        _see_contexts()
        return None
    track.token = _var.set(track)
    return track


def _see_contexts() -> None:
    global has_contexts
    if not has_contexts:
        has_contexts = True
        on_contexts()


def _is_in_loop() -> bool:
    events = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None


def track_here(wanted: Track | None = None) -> Track:
    """The track of the calling context; where it has none, an idle one (`wanted`, if nothing is open on that)."""
    if not has_contexts and _is_in_loop():
        _see_contexts()
    track = own_track()
    if track is not None:
        return track
    thread = this_thread()
    if wanted is not None and wanted.thread is thread and wanted.node is wanted.root:
        track = wanted
    else:
        track = thread.idle_track()
    track.renew()
    track.root.inner, track.at = ambient.get()
    _var.set(track)
    # Going back to the same value is cheaper than to none: hence twice.
    track.token = _var.set(track)
    return track


def left(track: Track) -> None:
    """A range ended: a context that has none left lets go of its track, unless that is its thread's own."""
    if track.node is track.root and not track.is_own:
        track.token = None


def stage_here() -> int:
    """The innermost stage of the calling context."""
    track = own_track()
    return ambient.get()[0] if track is None else track.node.inner


def at_here() -> int | None:
    """The step of `at_step` in the calling context."""
    return ambient.get()[1]


def stage_changed(track: Track) -> None:
    """A stage began or ended on this track: what is created in this context from here on inherits the current one."""
    if own_track() is track:
        ambient.set((track.node.inner, track.at))


def set_at(at: int | None) -> None:
    """The step of the calling context, and of what is created in it."""
    ambient.set((stage_here(), at))
    track = own_track()
    if track is not None:
        track.at = at
        track.renew()


def set_stage(stage: int) -> None:
    """The stage of the calling context, and of what is created in it."""
    ambient.set((stage, at_here()))
    track = own_track()
    if track is not None:
        track.node.inner = stage
        track.renew()


def renew() -> None:
    """What positions were worked out from has changed: the step, the live file, or what is on."""
    global epoch
    epoch = object()
    for track in by_id():
        track.renew()


def by_id() -> tuple[Track, ...]:
    """All tracks, each at the place of its id."""
    return tuple(_by_id)


def step_on(track: Track) -> int:
    """The step of what begins on this track now, as a record has it."""
    here = track.at if track.at is not None else step
    return records.NO_STEP if here is None else here


def child(parent: Node, site: Site, live: Live | None) -> Node:
    """A new position inside `parent`, not kept there yet."""
    track = parent.track
    node = Node(site, parent, track)
    node.live = live
    node.stage = node.inner = site.own_stage or parent.inner
    node.step = step_on(track)
    node.w1 = site.id | track.id << 16 | node.step << 32
    node.w2 = node.stage | node.depth << 16 | track.os_id << 32
    if live is not None:
        take_slot(node, live)
    return node


def texts_of(site: Site, track: Track, stage: int) -> list[tuple[int, int, bytes]]:
    """The text entries that a record needs in its bank."""
    texts = [(livefile.SITE, site.id, site.payload), (livefile.TRACK, track.id, track.payload())]
    if stage:
        texts.insert(0, (livefile.STAGE, stage, sites.stage_of(stage).payload))
    if site.own_stage and site.own_stage != stage:
        texts.insert(0, (livefile.STAGE, site.own_stage, sites.stage_of(site.own_stage).payload))
    return texts


def take_slot(node: Node, live: Live) -> None:
    """Give the position a slot, where there is one; else count that."""
    kept = 0 if node.site.own_stage else live.stage_slots
    if len(live.free) <= kept:
        renew()  # kept positions give theirs back
    try:
        node.slot = live.free.popleft() if len(live.free) > kept else [].pop()  # an IndexError
    except IndexError:
        banks.count(live, banks.SLOTS_OVERFLOWED)
        return
    node.words, node.start_at, node.mark_at = live.words, node.slot, node.slot + 3
    node.key = node.w1 ^ node.w2 ^ live.nonce


def give_slot_back(node: Node) -> None:
    """The range that was open here has ended."""
    if not node.is_kept and node.slot is not None and node.live is not None:
        slot, node.slot = node.slot, None
        node.live.free.append(slot)


def keep(node: Node, live: Live) -> None:
    """Let ranges begin here again without working all out anew; half of all slots are for such positions at most."""
    track, parent = node.track, node.parent
    is_outermost_of_task = parent is track.root and not track.is_own
    if node.slot is None or node.depth >= KEPT_DEPTH or is_outermost_of_task:
        return
    if node.site.limits is not None:
        return  # each call has to be looked at
    if 2 * len(live.free) < live.layout.slot_count:
        renew()
        return
    if node.epoch is epoch:
        node.is_kept = True
        track.kept.append(node)
        parent.children[node.site] = node


def forget(node: Node) -> None:
    """A position is kept no more: the end of what is open there gives its slot back."""
    node.is_kept = False
    try:
        node.home.kept.remove(node)
    except ValueError:
        pass  # forgotten already


def keep_folded(node: Node) -> bool:
    """The same for a position whose calls are all coalesced. The quick way fills a slot, which is nobody's here."""
    track, parent = node.track, node.parent
    if node.depth >= KEPT_DEPTH or (parent is track.root and not track.is_own) or node.epoch is not epoch:
        return False
    node.words, node.start_at, node.mark_at, node.key = _NO_SLOT, 0, 1, 0
    node.bank, node.is_kept = FOLDED, True
    track.kept.append(node)
    parent.children[node.site] = node
    return True


def unlink(node: Node) -> None:
    """Take a position off its track. Those above it stay, one nearer to the ground."""
    track = node.track
    if track.node is node:
        track.node = node.parent
        return
    above = chain(track.node, node)[:-1]
    if not above:
        return  # it is not there
    track.epoch = object()
    above[-1].parent = node.parent
    node.parent.children.clear()
    for at in reversed(above):
        at.height -= 1
        at.children.clear()
        at.inner = at.site.own_stage or at.parent.inner


def chain(top: Node, bottom: Node) -> list[Node]:
    """The positions from `top` down to `bottom`; none where `bottom` is not below `top`."""
    nodes = [top]
    while nodes[-1] is not bottom:
        if nodes[-1].parent is nodes[-1]:
            return []
        nodes.append(nodes[-1].parent)
    return nodes
