"""Ranges of the Python twin, the quick way: plain names, while only the recorder is on, or nothing is.

Recording, `take` hands out a range that nobody holds any more. Its `__enter__` and `__exit__` are functions of its own
that keep their state in cells; they find their position, write two words at begin and five at end, and whatever is not
as it was before goes the general way. Off, one object a name is shared, and its `__enter__` is a weak reference to it:
the cheapest thing that can be called and gives that object.
"""

from __future__ import annotations

import time
import weakref
from sys import getrefcount
from typing import Any, Callable

from ...host import names
from ...store import records
from . import limits, ranges, sites, tracks
from .banks import Live
from .ranges import NOBODY, Open, Range, nobodys
from .sites import Site
from .tracks import FOLDED, Node

_IDLE_LIMIT = 4096
_FRESH_LIMIT = 1024
_PRIME = records.CHECK_PRIME
_UNGIVEN: Any = object()

# Read as globals, which costs least.
is_quick = False
is_on_now = False
NO_BANK: Any = object()  # unlike None, which is the bank of a position that is not ready
bank: Any = NO_BANK
# Nobody else's record can come between taking a place and saying that it is written.
is_alone = True
# Has a track to be asked whether it is this context's? See `tracks.has_contexts`.
has_contexts = False
clock: Callable[[], int] = time.monotonic_ns

# How to take a range that nobody holds, by plain name.
taking: dict[str, Callable[[], Any]] = {}
# The same with so many attributes, by number of attributes, and for stages, by key. What `typed` does, and `bodies`.
TYPED_LIMIT = 8
typed_taking: list[dict[str, Callable[[], Any]]] = [{} for _ in range(TYPED_LIMIT + 1)]
stage_taking: list[dict[str, Callable[[], Any]]] = [{} for _ in range(TYPED_LIMIT + 1)]
first_typed: Callable[[Any, Any, dict[str, Any]], Any] = lambda name, stage, options: None  # noqa: E731
wrappers_typed: Callable[[Site, Any], Any] = lambda site, attributes: None  # noqa: E731
driven: Callable[[Site, Any, Any], Any] = lambda site, body, attributes: None  # noqa: E731
idle: dict[str, Any] = {}
_tails: dict[int, list[int]] = {}


class _ByInstance(type):
    """`type(cm).__enter__(cm)`, as contextlib.ExitStack calls it, for classes whose instances have their own."""

    @property
    def __enter__(cls) -> Callable[[Any], Any]:
        return _enter_of

    @property
    def __exit__(cls) -> Callable[..., Any]:
        return _exit_of


def _enter_of(cm: Any) -> Any:
    return cm.__enter__()


def _exit_of(cm: Any, *error: Any) -> Any:
    return cm.__exit__(*error)


class Quick(Range, metaclass=_ByInstance):
    """One with an enter and a leave of its own; `_lift` goes on the general way with what is open."""

    __slots__ = ("__enter__", "__exit__", "__weakref__", "_lift")

    _lift: Callable[[], None]

    def set(self, /, **attributes: object) -> None:
        """Add attributes to the innermost open entry before its end."""
        self._lift()
        super().set(**attributes)

    def _enter_moving(self) -> Range:
        self._lift()
        return super()._enter_moving()

    def __del__(self) -> None:
        self._lift()
        super().__del__()


def range_of(site: Site) -> Range:
    """A range of this site that nobody else holds. Called where its pool is empty."""
    return nobodys(site.lent) or _make(site)


def wrappers_range_of(site: Site) -> Range:
    """A range of this site for one `with` of a wrapper. Called where the wrappers' pool is empty."""
    made: Range = wrappers_typed(site, None) if site.own_stage else _make(site, True)
    return made


def _make(site: Site, is_wrappers: bool = False) -> Range:
    """A range with its own enter and leave.

    Args:
        is_wrappers: Nobody keeps it after its end: it goes back without a look at who holds it.
    """
    node: Any = None
    start = 0
    words: Any = None
    track_now, restore, set_track = tracks.track_calls
    put_back, lend = (site.wrappers_pool if is_wrappers else site.pool).append, site.lent.append

    def enter() -> Range:
        nonlocal node, start, words
        try:
            track = track_now()
            if has_contexts:
                restore(track.token)
                track.token = set_track(track)
            child = track.node.children[site]
            if node is None:
                words = child.words
                start = clock()
                words[child.start_at] = start
                words[child.mark_at] = start ^ child.key
                track.node = node = child
                return this
        except Exception:
            pass
        lift()
        return Range.__enter__(this)

    def leave(kind: Any = None, error: Any = None, traceback: Any = None) -> None:
        nonlocal node
        ended = node
        try:  # general, too, where it is not open
            if kind is None and ended.bank is bank and ended.track.node is ended:
                end = clock()
                take = ended.take  # called in two steps: to call an attribute that is no method is dear
                place = take()
                duration = end - start
                w0 = end - ended.base
                ended.firsts[place] = w0
                ended.seconds[place] = ended.w1
                ended.thirds[place] = ended.tails[(duration ^ place ^ w0 ^ ended.check) % 4093] + duration
                if is_alone or words[ended.count_at] <= place:
                    words[ended.count_at] = place + 1
                words[ended.mark_at] = 0
                ended.track.node = ended.parent
                node = None
                if is_wrappers or getrefcount(this) == NOBODY:
                    put_back(this)
                else:
                    lend(reference)
                return
            if kind is None and ended.bank is FOLDED and ended.track.node is ended:
                take = ended.take
                take((start, clock()))
                ended.track.node = ended.parent
                node = None
                if len(ended.fresh) >= _FRESH_LIMIT:
                    limits.drain(ended.window)
                if is_wrappers or getrefcount(this) == NOBODY:
                    put_back(this)
                else:
                    lend(reference)
                return
        except Exception:
            pass
        lift()
        Range.__exit__(this, kind, error, traceback)
        if not this._entries:
            if is_wrappers:
                put_back(this)
            else:
                lend(reference)

    def lift() -> None:
        nonlocal node
        if node is not None:
            this._entries.append(Open(site, node, start))
            site.calls += 1
            node = None

    this = Quick(site.name, site.stage, site.domain, site=site)
    reference = weakref.ref(this)
    this.__enter__, this.__exit__, this._lift = enter, leave, lift  # type: ignore[method-assign]
    return this


def placed(node: Node, live: Live) -> None:
    """A position of which the active bank knows all texts: its records can go there quickly."""
    active = live.bank
    if bank is not active or not active.knows(node.site.id, node.home.id, node.stage):
        return
    node.base = active.origin - (node.stage << 48)
    node.check = node.w1 ^ node.depth << 40 ^ active.salt
    node.take, node.count_at = active.take, active.count_at
    node.firsts, node.seconds, node.thirds = active.columns
    node.tails = _tails_of(node.depth)
    node.bank = active


def _tails_of(depth: int) -> list[int]:
    """By check value: the check bits and the depth, as they stand in `w2`."""
    tails = _tails.get(depth)
    if tails is None:
        _tails[depth] = tails = [(i + 1) << records.CHECK_SHIFT | depth << 40 for i in range(_PRIME)]
    return tails


def _nothing(kind: Any = None, error: Any = None, traceback: Any = None) -> None:
    """The end of what never began."""


class _Idle(Range, metaclass=_ByInstance):
    """What a plain name gives while all is off, one for all uses. Kept and entered later, it begins a range."""

    __slots__ = ("__enter__", "__exit__", "__weakref__", "_begun")

    def __init__(self, name: Any) -> None:
        super().__init__(name)
        self._begun: list[Range] = []
        self.switch(is_on_now)

    def switch(self, is_on: bool) -> None:
        """Take part in what is on or not."""
        if is_on:
            self.__enter__, self.__exit__ = self._enter, self._exit  # type: ignore[method-assign]
        else:
            self.__enter__ = weakref.ref(self)  # type: ignore[method-assign, assignment]
            if not self._begun:
                self.__exit__ = _nothing  # type: ignore[method-assign]

    def _enter(self) -> Range:
        begun = Range(self._name)
        begun.__enter__()
        self._begun.append(begun)
        return begun

    def _enter_moving(self) -> Range:
        begun = Range(self._name)
        begun._enter_moving()
        self._begun.append(begun)
        return begun

    def _exit(self, kind: Any = None, error: Any = None, traceback: Any = None) -> None:
        entered = self._of_this_context()
        if entered is not None:
            entered.__exit__(kind, error, traceback)

    def _of_this_context(self) -> Range | None:
        """The latest one begun in this context; where there is none, the latest of all."""
        track = tracks.own_track()
        for begun in reversed(self._begun):
            opened = begun._entries[-1] if begun._entries else None
            if opened is not None and opened.node is not None and opened.node.track is track:
                self._begun.remove(begun)
                return begun
        return self._begun.pop() if self._begun else None

    def set(self, /, **attributes: object) -> None:
        """Add attributes to the latest open entry before its end."""
        if self._begun:
            self._begun[-1].set(**attributes)

    def __del__(self) -> None:
        """Nothing of its own is open."""


def mstx_range(name: Any = _UNGIVEN, /, **options: Any) -> Any:
    """A range: `with`, `async with`, or as a decorator. It never raises, and never hides what the body raises.

    Called as `mstx_range(name, *, stage=None, domain="default", stream=None, **attributes)`.

    Args:
        name: What reports and traces call it. As a decorator it may be left out: the function's own.
        stage: Key of a stage, where the range is an occurrence of one.
        domain: mstx domain.
        stream: Device stream, for mstx: its ranges then also lie in the device's timeline.
        attributes: str, bool, int, float; more by `set` on the range, before it ends.

    Cost: less than two empty `with` statements while recording, less than one while nothing listens; an attribute adds
    to it. Times are kept in ns.

    Example:
        >>> from mstxkit import mstx_range
        >>> with mstx_range("rerank", tokens=512) as found:
        ...     found.set(kept=7)
    """
    if not options:
        if is_quick:
            try:
                return taking[name]()
            except Exception:
                return quick_range(name)
        if not is_on_now:
            try:
                return idle[name]
            except Exception:
                return idle_range(name)
    elif is_quick and "stage" not in options and "stream" not in options and "domain" not in options:
        try:
            taken = typed_taking[len(options)][name]()
        except Exception:
            taken = first_typed(name, None, options)
        if taken is not None:
            taken._attributes = options
            return taken
    return _with_options(name, options)


def _with_options(name: Any, options: dict[str, Any]) -> Range:
    if name is _UNGIVEN:
        name = _pop("name", options)
    stage, domain, stream = (options.pop(key, None) for key in ("stage", "domain", "stream"))
    made = Range(name, stage, names.DEFAULT_DOMAIN if domain is None else domain, stream, options)
    return made(name) if type(name) in names.FUNCTIONS else made  # `@mstx_range`, without a name


def stage(key: Any = _UNGIVEN, /, **options: Any) -> Range:
    """A range that is the stage `key`: reports total it by step and rank, and escalation looks it up.

    Called as `stage(key, *, domain="default", stream=None, **attributes)`.

    Args:
        key: Name of the stage, "actor_update" say; the range has the same name. As a decorator it may be left out.
        domain: mstx domain.
        stream: Device stream, for mstx.
        attributes: As those of `mstx_range`.

    Cost: that of `mstx_range`, and the sum that `stage_times` keeps. A range inside of it belongs to the stage, on
    the same thread and in the tasks that it creates; `mstxkit.autopatch` takes it along into thread pools.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward", prompts=64):
        ...     mstxkit.current_stage()
        'reward'
    """
    if is_quick and "stream" not in options and "domain" not in options:
        try:
            taken: Any = stage_taking[len(options)][key]()
        except Exception:
            taken = first_typed(key, key, options)
        if taken is not None:
            taken._attributes = options
            return taken  # type: ignore[no-any-return]
    return _stage_with_options(key, options)


def _stage_with_options(key: Any, options: dict[str, Any]) -> Range:
    if key is _UNGIVEN:
        key = _pop("key", options)
    domain, stream = options.pop("domain", None), options.pop("stream", None)
    made = Range(key, key, names.DEFAULT_DOMAIN if domain is None else domain, stream, options)
    return made(key) if type(key) in names.FUNCTIONS else made


def _pop(key: str, options: dict[str, Any]) -> Any:
    if key not in options:
        raise TypeError(f"a range needs a {key}")
    return options.pop(key)


def is_on(site: object) -> bool:
    """Is anything on? What a wrapper asks first."""
    return is_on_now


def timed(site: Site, stream: Any = None, attributes: dict[str, Any] | None = None) -> Range:
    """A range of a site, for one `with`: with neither stream nor attributes, not to be kept after its end."""
    if is_quick and stream is attributes:
        take = site.wrappers_take
        try:
            return take()  # type: ignore[no-any-return]
        except IndexError:
            return wrappers_range_of(site)
    if is_quick and stream is None and type(attributes) is dict and attributes:
        taken: Any = wrappers_typed(site, attributes)
        if taken is not None:
            return taken  # type: ignore[no-any-return]
    return general(site, stream, attributes)


def general(site: Site, stream: Any, attributes: Any) -> Range:
    """A range of a site, the general way. What is no dict is no attributes."""
    return Range(site.name, site.stage, site.domain, stream, attributes if type(attributes) is dict else None, site)


def idle_range(name: Any) -> Range:
    """What a plain name gives while all is off, the first time."""
    if type(name) is not str or len(idle) >= _IDLE_LIMIT:
        return _with_options(name, {})
    return idle.setdefault(name, _Idle(name))  # type: ignore[no-any-return]


def quick_range(name: Any) -> Range:
    """What a plain name gives while only the recorder is on, where there is none to take."""
    if type(name) is not str:
        return _with_options(name, {})
    try:
        site = sites.intern(name)
    except Exception as exc:
        ranges.fault("range", exc)
        return Range(name)
    if site.name != name or site.domain != names.DEFAULT_DOMAIN:
        return Range(name, site=site)  # one of too many names
    taking[name] = site.take
    return range_of(site)


def see_contexts() -> None:
    """From now on, a track is asked."""
    global has_contexts
    has_contexts = True


def see_threads() -> None:
    """From now on, somebody else's record can come in between."""
    global is_alone
    is_alone = False


def switch(is_on: bool) -> None:
    """Everything was switched on or off."""
    global is_on_now
    is_on_now = is_on
    for shared in tuple(idle.values()):
        shared.switch(is_on)
