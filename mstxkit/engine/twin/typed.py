"""Ranges of the Python twin with attributes or a stage, the quick way: as `quick.py` does it for plain names.

They find their position and fill its slot as plain ones do. Those of each number of attributes have an enter and a
leave of their own, which `writers` makes, and a pool at their site. What cannot be written like that goes the general
way.

A range and its functions refer to each other, as a `with` keeps the leave only. So one that is thrown away while open,
a stage too, ends when the garbage collector finds it. To make it anew each time would cost a quarter more.
"""

from __future__ import annotations

import weakref
from collections import deque
from sys import getrefcount
from typing import Any, Callable

from ...host import names
from . import limits, quick, ranges, sinks, sites, tracks, writers
from .ranges import Open, Range
from .sites import Site

# What such a range takes beyond a plain one, in plain ones.
_DEARER = 1.0


class Pool:
    """Ranges of a site with so many attributes that nobody holds, and weak references to those that somebody may."""

    __slots__ = ("_lent", "_make", "give", "site", "take")

    def __init__(self, site: Site, count: int) -> None:
        self.site = site
        pool: deque[Range] = deque()
        self.give, self.take = pool.append, pool.pop
        self._lent: deque[Any] = deque(maxlen=sites.LENT_LIMIT)
        self._make = _maker_of(count, bool(site.own_stage))

    def lent(self) -> Range:
        """One that nobody else holds. Called where there is none to take."""
        return ranges.nobodys(self._lent) or self._made(self.give, ranges.NOBODY)

    def wrappers_range(self) -> Range:
        """One for a `with` of a wrapper, which does not keep it."""
        return self._made(self.site.wrappers_pool.append, None)

    def _made(self, give: Callable[[Range], None], nobody: int | None) -> Range:
        made = quick.Quick(self.site.name, self.site.stage, self.site.domain, site=self.site)
        made._attributes = {}
        functions = self._make(made, self.site, give, self._lent.append, weakref.ref(made), nobody)
        made.__enter__, made.__exit__, made._lift = functions  # type: ignore[method-assign]
        return made


_MAKER = """
def made(this, site, give, lend, reference, nobody):
 node = process = words = None
 start, total = 0, site.total
 track_now, restore, set_track = track_calls

 def enter():
  nonlocal node, start, words, process
  try:
   track = track_now()
   if quick.has_contexts:
    restore(track.token)
    track.token = set_track(track)
   child = track.node.children[site]
   if node is None:
    words = child.words
    start = quick.clock()
    words[child.start_at] = start
    words[child.mark_at] = start ^ child.key
    track.node = node = child
    {begun}
    return this
  except Exception:
   pass
  lift()
  return general.__enter__(this)

 def leave(kind=None, error=None, traceback=None):
  nonlocal node
  ended = node
  try:  # general, too, where it is not open
   bank, track = ended.bank, ended.track
   if kind is None and bank is quick.bank and track.node is ended:
    end = quick.clock()
    values = this._attributes
    {record}
    words[ended.mark_at] = 0
    track.node = ended.parent
    node = None
    {ended}
    if nobody is None or getrefcount(this) == nobody:
     this._attributes = nothing
     give(this)
    else:
     lend(reference)
    return
  except KeyError:
   if ended is node and defined(ended, this._attributes): return leave()
  except Exception:
   pass
  return leave_generally(kind, error, traceback)

 def leave_generally(kind, error, traceback):
  lift()
  general.__exit__(this, kind, error, traceback)
  if not this._entries:
   if nobody is None: give(this)
   else: lend(reference)

 def lift():
  nonlocal node
  if node is not None:
   opened = open_range(site, node, start, this._attributes)
   if process is not None:
    opened.process = process
   this._entries.append(opened)
   site.calls += 1
   node = None

 return enter, leave, lift
"""
_STAGE_BEGUN = """
process = sinks.process
total.begins(start, child.step)
tracks.ambient.set((child.inner, track.at))
"""
_STAGE_CHANGED = """
if quick.has_contexts: tracks.stage_changed(track)
elif track_now(None) is track: tracks.ambient.set((track.node.inner, track.at))
"""
# Without attributes, and with them.
_STAGE_ENDED = (
    "total.ends_last(end, start, ended)" + _STAGE_CHANGED,
    "total.ends(end, ended.step, start, 0, ended.is_inside_itself, values)" + _STAGE_CHANGED,
)
_makers: dict[tuple[int, bool], Callable[..., Any]] = {}


def _maker_of(count: int, is_stage: bool) -> Callable[..., Any]:
    """What makes enter, leave and lift of a range with so many attributes; itself made when first asked for: 1 ms."""
    maker = _makers.get((count, is_stage))
    if maker is None:
        scope = {
            "quick": quick, "tracks": tracks, "sinks": sinks, "defined": writers.defined, "general": Range,
            "open_range": Open, "getrefcount": getrefcount, "track_calls": tracks.track_calls, "nothing": {},
            "dearer_ns": _DEARER * limits.cost_of_quick(),
        }  # fmt: skip
        record = writers.record(count, False, "return leave_generally(None, None, None)")
        ended = "site.cost_ns += dearer_ns\n" * bool(count) + _STAGE_ENDED[bool(count)] * is_stage
        codes = {"begun": _STAGE_BEGUN * is_stage, "record": record, "ended": ended}
        maker = _makers[count, is_stage] = writers.made(_MAKER, codes, **scope)
    return maker


def first_range(name: Any, stage: str | None, options: dict[str, Any]) -> Range | None:
    """A range by name or a stage where none is to be taken; None for what is odd."""
    if type(name) is not str or len(options) > writers.LIMIT:
        return None
    try:
        site = sites.intern(name, stage)
    except Exception as exc:
        ranges.fault("range", exc)
        return None
    if site.name != name or site.stage != stage or site.domain != names.DEFAULT_DOMAIN:
        return None  # one of too many names
    pool = pool_of(site, len(options))
    (quick.typed_taking if stage is None else quick.stage_taking)[len(options)][name] = pool.take
    made = pool.lent()
    made._attributes = options
    return made


def pool_of(site: Site, count: int) -> Pool:
    """The pool of its ranges with so many attributes."""
    pool = site.typed.get(count)
    made: Pool = site.typed.setdefault(count, Pool(site, count)) if pool is None else pool
    return made


def wrappers_range(site: Site, attributes: dict[str, Any] | None) -> Range | None:
    """A range of a site for a wrapper that gives attributes, or of a stage; None for too many."""
    if not attributes:
        return pool_of(site, 0).wrappers_range()
    if len(attributes) > writers.LIMIT:
        return None
    pool = pool_of(site, len(attributes))
    try:
        taken = pool.take()
    except IndexError:
        taken = pool.lent()
    taken._attributes = attributes
    return taken
