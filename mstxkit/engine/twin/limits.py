"""Storms and cost: calls that are added up instead of recorded, and what each site costs itself.

A coalesced call is on its track like any other, but no sink is told, no slot is taken and no record written. At its end
it goes into a window of its site, track, stage and step, which becomes one record after a second at most.
"""

from __future__ import annotations

from typing import Any

from ...store import records
from . import banks, clock, tracks
from .sites import Site, by_id, checked

_SECOND = 1_000_000_000  # in ticks, which are nanoseconds on both clocks
_WINDOWS_MAX = 4096


class SiteLimits:
    """What is recorded of a site, and how much of that the present second has had."""

    coalesce = is_throttled = False
    max_depth: int | None = None
    max_per_s: int | None = None
    second = in_second = 0

    def change(self, **changes: Any) -> SiteLimits | None:
        """Set these; None where nothing is limited then."""
        vars(self).update(changes)
        is_any = self.coalesce or self.is_throttled or self.max_depth is not None or self.max_per_s is not None
        return self if is_any else None

    def is_over(self, nest: int) -> bool:
        """Is a call that begins now, in this place among those inside each other, beyond them?"""
        if self.coalesce or self.is_throttled or self.max_depth is not None and nest > self.max_depth:
            return True
        if self.max_per_s is None:
            return False
        now = clock.now()
        if not self.second or now - self.second >= _SECOND:
            self.second, self.in_second = now, 0
        self.in_second += 1
        return self.in_second > self.max_per_s


class CoalescedCalls:
    """Coalesced calls of one site, track, stage and step that are not written yet: one record. Times in ticks."""

    kind, is_lost, failed, is_written = records.RANGE, False, False, False
    busy = calls = total = longest = start = end = depth = 0

    def __init__(self, opened: Any) -> None:
        self.owners, self.stage, self.w1 = opened.owners, opened.stage, opened.w1
        self.settled: dict[str, int] = {}

    def add(self, opened: Any) -> None:
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
        self.settled = {"coalesced": self.calls, "total_ns": self.total, "max_ns": self.longest}
        self.busy = max(self.total, 1)
        self.calls = self.total = self.longest = 0
        live.write(self)
        self.failed = False


def limit(site: Site, coalesce: bool = False, max_depth: int | None = None, max_per_s: int | None = None) -> None:
    """What is beyond these limits is coalesced from now on; without any, nothing is. Not for sites with a stage."""
    wanted: dict[str, Any] = {"max_depth": max_depth, "max_per_s": max_per_s}
    for name, value in wanted.items():
        if value is not None and not (isinstance(value, int) and 0 <= value < records.NO_STEP):
            raise ValueError(f"{name}={value!r}: None or an int from 0 is needed")
    _change_limits(site, coalesce=bool(coalesce), second=0, **wanted)


def throttle(site: Site, on: bool, /) -> None:
    """Coalesce every call of the site, whatever its limits say; or no more."""
    _change_limits(site, is_throttled=bool(on))


def _change_limits(site: Site, **changes: Any) -> None:
    if checked(site).own_stage is None:
        site.limits = (site.limits or SiteLimits()).change(**changes)


def look(opened: Any) -> None:
    """A call of a limited site is about to begin: is it to be coalesced?"""
    site, limits = opened.site, opened.site.limits or SiteLimits()  # another thread may just have lifted them
    around = [other.nest for other in tracks.track_here().open if other.site is site]
    opened.nest = max(around[-1], 1) + 1 if around else 1
    opened.is_coalesced = limits.is_over(opened.nest)
    if opened.is_coalesced:
        site.coalesced += 1
        if opened.live is not None:
            banks.count(banks.COALESCED)


def ended(opened: Any) -> None:
    """A coalesced call has ended: it goes into its window."""
    live, key = opened.live, (opened.home, opened.w1, opened.stage)
    with banks.lock:
        if len(live.windows) >= _WINDOWS_MAX:
            flush()
        window = live.windows.get(key)
        if window is None:
            window = live.windows[key] = CoalescedCalls(opened)
        opened.is_written = True
        window.add(opened)


def flush() -> None:
    """Write what is pending. A window into which nothing has come since is given up."""
    live = banks.live
    with banks.Turn():
        for key in tuple(live.windows) if live is not None else ():
            window = live.windows.get(key)
            if window is not None and window.calls:
                window.write(live)
            else:
                live.windows.pop(key, None)  # a signal's handler may have been faster


def site_costs() -> list[tuple[Site, int, int, int]]:
    """(site, calls, ns that they took of their threads, calls that were coalesced) of all sites with calls."""
    return [(site, site.calls, int(site.cost_ns), site.coalesced) for site in tuple(by_id) if site.calls]
