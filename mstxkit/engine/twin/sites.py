"""Call sites, interned once, for the life of the process; what is recorded of their calls, and what those cost.

Calls beyond a site's limits are coalesced: on their track like others, but no sink is told, no slot is taken and no
record written. At its end such a call goes into a window of its site, track, stage and step, which becomes one record
after a second at most.
"""

from __future__ import annotations

from typing import Any, Callable

from ... import faults
from ...host import names
from ...store import livefile, records
from . import banks, interruptions
from .stages import StageTotal, intern_stage
from .tracks import Opened

_SECOND = 1_000_000_000  # in ticks, which are nanoseconds on both clocks
_WINDOWS_MAX = 4096
_CATCH_ALL = records.CATCH_ALL, None, names.DEFAULT_DOMAIN

describe: Callable[[object, object, object], Any] = names.describe_site
# What a pickled site is a call of, and so what it arrives as in another process.
unpickle: Callable[[str, Any, Any], Any] | None = None
mark: Callable[..., None] = lambda message, **attributes: None  # noqa: E731

interned: dict[tuple[str, str | None, str], Site] = {}  # by texts, in the order of their ids from 1


class Site:
    """A call site, interned: one per (name, domain, stage) and process. Pickles as a call of the hook `unpickle`."""

    id, name, stage, domain = 0, "", None, ""  # the last three as given
    calls = coalesced = 0
    cost_ns = 0.0
    # What is recorded of its calls, and how much of that the present second has had.
    is_limited = coalesces = is_throttled = False  # `is_limited`: was it ever?
    max_depth: int | None = None
    max_per_s: int | None = None
    second = in_second = 0

    def __init__(self, site_id: int, texts: tuple[Any, Any, Any], described: Any, own_stage: StageTotal | None) -> None:
        name_bytes, domain_bytes, _, self.message, self.message_domain = described
        self.id, self.own_stage = site_id, own_stage
        self.name, self.stage, self.domain = texts
        self.is_watched = own_stage is not None  # see `listeners`
        stage_id = 0 if own_stage is None else own_stage.id
        self.entry = livefile.SITE, site_id, livefile.site_payload(name_bytes, domain_bytes, stage_id)
        if isinstance(self.name, str):
            banks.count_cut(self.name, name_bytes)

    def __reduce__(self) -> tuple[Any, tuple[Any, Any, Any]]:
        if unpickle is None:
            raise TypeError("a Site pickles as a call of the site hook, and none is set")
        return unpickle, (self.name, self.stage, self.domain)

    def __repr__(self) -> str:
        return f"Site({self.name!r}, stage={self.stage!r}, domain={self.domain!r})"


def intern(name: Any, stage: Any = None, domain: Any = names.DEFAULT_DOMAIN) -> Site:
    """The site of this name, stage and domain. Never raises for bad values: what is no str is named by its type."""
    domain = names.DEFAULT_DOMAIN if domain is None else domain
    texts = names.as_text(name), None if stage is None else names.as_text(stage), names.as_text(domain)
    if texts in interned:
        return interned[texts]
    with banks.lock:
        described = interruptions.ask("engine.intern", describe, name, stage, domain)
        if described is None:
            return interned[_CATCH_ALL]
        key = described[2]
        own_stage = None if key is None else intern_stage(key)
        if texts not in interned:  # who described it, or was told of too many stages, may have named things, too
            is_as_its_stage = own_stage is not None and described[:2] == (key.encode(), b"default")
            if len(interned) >= records.SITE_LIMIT and not is_as_its_stage:
                banks.count("names_capped")
                if not faults.counts.get("names"):
                    names.tell_of_too_many(mark, records.CATCH_ALL)
                return interned[_CATCH_ALL] if own_stage is None else intern(key, key)
            interned[texts] = Site(len(interned) + 1, (name, stage, domain), described, own_stage)
        return interned[texts]


def checked(value: Any) -> Site:
    """The same, if it is a site. Raises TypeError: it is none."""
    if type(value) is not Site:
        raise TypeError("a Site was expected")
    return value


def watch_site(site: Site, /) -> None:
    """Watch it from now on, as a site with a stage is from the beginning."""
    checked(site).is_watched = True


def add_cost(site: Site, ns: float, /) -> None:
    """Something else was done for calls of this site, and took so long."""
    checked(site).cost_ns += ns


def site_costs() -> list[tuple[Site, int, int, int]]:
    """(site, calls, ns that they took of their threads, calls that were coalesced) of all sites with calls."""
    return [(site, site.calls, int(site.cost_ns), site.coalesced) for site in tuple(interned.values()) if site.calls]


def limit(site: Site, coalesce: bool = False, max_depth: int | None = None, max_per_s: int | None = None) -> None:
    """What is beyond these limits is coalesced from now on; without any, nothing is. Not for sites with a stage."""
    wanted: dict[str, Any] = {"max_depth": max_depth, "max_per_s": max_per_s}
    for name, value in wanted.items():
        if value is not None and not (isinstance(value, int) and 0 <= value < records.NO_STEP):
            raise ValueError(f"{name}={value!r}: None or an int from 0 is needed")
    _change_limits(site, coalesces=bool(coalesce), second=0, **wanted)


def throttle(site: Site, on: bool, /) -> None:
    """Coalesce every call of the site, whatever its limits say; or no more."""
    _change_limits(site, is_throttled=bool(on))


def _change_limits(site: Site, **changes: Any) -> None:
    if checked(site).own_stage is None:
        vars(site).update(changes, is_limited=True)


class CoalescedCalls(Opened):
    """Coalesced calls of one site, track, stage and step that are not written yet: one record. Times in ticks."""

    calls = total = longest = 0

    def __init__(self, first: Opened) -> None:
        self.site, self.home, self.stage, self.w1 = first.site, first.home, first.stage, first.w1

    def add(self, opened: Opened) -> None:
        """One more call. What ends over a second after the window's start begins another."""
        start, end, depth = opened.start, opened.end, opened.depth
        inside = 0 if opened.nest > 1 else opened.busy or end - start
        if self.calls and end - min(self.start, start) > _SECOND:
            self.write(opened.live)
        if not self.calls:
            self.start, self.end, self.depth = start, end, depth
        self.start, self.end, self.depth = min(self.start, start), max(self.end, end), min(self.depth, depth)
        self.failed = self.failed or opened.failed
        self.longest = max(self.longest, inside)
        self.total += inside
        self.calls += 1

    def write(self, live: banks.Live) -> None:
        """Make a record of it; it is empty then."""
        self.attributes = {"coalesced": self.calls, "total_ns": self.total, "max_ns": self.longest}
        self.busy = max(self.total, 1)
        self.calls = self.total = self.longest = 0
        live.write(self)
        self.failed = False


def look(opened: Opened, around: list[Opened]) -> None:
    """A call of a limited site is about to begin inside of these: is it beyond the limits, to be coalesced?"""
    site = opened.site
    nests = [other.nest for other in around if other.site is site]
    opened.nest = max(nests[-1], 1) + 1 if nests else 1
    is_deep = site.max_depth is not None and opened.nest > site.max_depth
    opened.is_coalesced = site.coalesces or site.is_throttled or is_deep
    if site.max_per_s is not None and not opened.is_coalesced:
        now = banks.now()
        if not site.second or now - site.second >= _SECOND:
            site.second, site.in_second = now, 0
        site.in_second += 1
        opened.is_coalesced = site.in_second > site.max_per_s
    if opened.is_coalesced:
        site.coalesced += 1
        if opened.live is not None:
            banks.count("coalesced")


def add_coalesced(opened: Opened) -> None:
    """A coalesced call has ended: it goes into its window."""
    with banks.lock:
        windows = opened.live.windows
        if len(windows) >= _WINDOWS_MAX:
            flush_coalesced()
        key = opened.home, opened.w1, opened.stage
        window = windows.get(key) or windows.setdefault(key, CoalescedCalls(opened))
        opened.is_written = True
        window.add(opened)


def flush_coalesced() -> None:
    """Write what is pending. A window into which nothing has come since is given up."""
    live = banks.live
    with banks.Turn():
        for key in tuple(live.windows) if live is not None else ():
            window = live.windows.get(key)
            if window is not None and window.calls:
                window.write(live)
            else:
                live.windows.pop(key, None)  # a signal's handler may have been faster
