"""Storms and cost on the Python twin: calls that are added up instead of recorded, and what each site costs itself.

A coalesced call is on its track like any other, but no sink is told, no slot is taken and no record written. At its end
it goes into a window of its site, track, stage and step, which becomes one record after a second at most.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

from ...store import records
from . import banks, sites, tracks
from .banks import Live
from .sites import Site
from .tracks import Node, Track

_SECOND = 1_000_000_000  # in ticks, which are nanoseconds on both clocks
_WINDOWS_MAX = 4096
# What a range the quick way takes: about as long as this many times `with` over a lock.
_QUICK_IN_WITHS = 6

# By (track, w1, stage).
_windows: dict[tuple[Track, int, int], CoalescedCalls] = {}
_quick_ns: float | None = None


class SiteLimits:
    """What is recorded of a site, and how much of that the present second has had."""

    __slots__ = ("coalesce", "in_second", "is_throttled", "max_depth", "max_per_s", "second")

    def __init__(self) -> None:
        self.coalesce = self.is_throttled = False
        self.max_depth: int | None = None
        self.max_per_s: int | None = None
        self.second, self.in_second = 0, 0

    @property
    def is_none(self) -> bool:
        """Is everything recorded?"""
        return not self.is_all and self.max_depth is None and self.max_per_s is None

    @property
    def is_all(self) -> bool:
        """Is nothing recorded?"""
        return self.coalesce or self.is_throttled

    def is_over(self, nest: int, now: int) -> bool:
        """Is a call that begins now, in place `nest` (from 1) of those inside each other, to be coalesced?"""
        if self.is_all or (self.max_depth is not None and nest > self.max_depth):
            return True
        if self.max_per_s is None:
            return False
        if not self.second or now - self.second >= _SECOND:
            self.second, self.in_second = now, 0
        self.in_second += 1
        return self.in_second > self.max_per_s


class CoalescedCalls:
    """Coalesced calls of one site, track, stage and step that are not written yet. Times in ticks."""

    __slots__ = (
        "calls", "depth", "end", "epoch", "failed", "fresh", "key", "live", "longest", "site", "start", "total",
    )  # fmt: skip

    def __init__(self, key: tuple[Track, int, int], node: Node, live: Live) -> None:
        self.key, self.site, self.live = key, node.site, live
        self.calls = self.total = self.longest = self.start = self.end = self.depth = 0
        self.failed = False
        # By depth, (start, end) of calls that are not added up yet. A list's steps are atomic: that takes no lock.
        self.fresh: dict[int, list[tuple[int, int]]] = {}
        self.epoch: object = None


def limit(site: Site, coalesce: bool = False, max_depth: int | None = None, max_per_s: int | None = None) -> None:
    """What is beyond these limits is coalesced from now on; without any, nothing is. Not for sites with a stage.

    Raises:
        TypeError: `site` is none.
        ValueError: a limit that is neither None nor an int from 0.
    """
    sites.checked(site)
    depth, per_s = _checked(max_depth, "max_depth"), _checked(max_per_s, "max_per_s")
    if not site.own_stage:
        limits = site.limits or SiteLimits()
        limits.coalesce, limits.max_depth, limits.max_per_s = bool(coalesce), depth, per_s
        limits.second = 0
        _set(site, limits)


def throttle(site: Site, on: bool, /) -> None:
    """Coalesce every call of the site, whatever its limits say; or no more.

    Raises:
        TypeError: `site` is none.
    """
    if not sites.checked(site).own_stage:
        limits = site.limits or SiteLimits()
        limits.is_throttled = bool(on)
        _set(site, limits)


def _checked(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < records.NO_STEP:
        raise ValueError(f"{name}={value!r}: None or an int from 0 is needed")
    return int(value)


def _set(site: Site, limits: SiteLimits) -> None:
    site.limits = None if limits.is_none else limits
    tracks.renew()  # positions of the quick way would not ask


def nest_on(track: Track, site: Site) -> int:
    """The place, from 1, of a call that begins on this track now among those of its site inside each other."""
    node = track.node
    while node is not node.parent:
        if node.site is site:
            return max(node.nest, 1) + 1
        node = node.parent
    return 1


def window_of(node: Node, live: Live) -> CoalescedCalls:
    """The window of a position's calls."""
    key = (node.home, node.w1, node.stage)
    with banks.lock:
        if len(_windows) >= _WINDOWS_MAX:
            flush()
        return _windows.setdefault(key, CoalescedCalls(key, node, live))


def keep(node: Node) -> None:
    """Let coalesced calls begin here again the quick way, which says their times to `window.fresh`."""
    window: CoalescedCalls = node.window
    if node.nest == 1 and tracks.keep_folded(node):
        window.epoch = node.epoch
        node.fresh = window.fresh.setdefault(node.depth, [])
        node.take = node.fresh.append


def ended(node: Node, start: int, end: int, busy: int, failed: bool) -> None:
    """A coalesced call has ended, the general way: it goes into its window."""
    window: CoalescedCalls = node.window
    with banks.lock:
        # It may have been idle, and given up, since the call began.
        window = node.window = _windows.setdefault(window.key, window)
        drain(window)
        _add(window, start, end, node.depth, 0 if node.nest > 1 else busy or end - start)
        window.failed = window.failed or failed
        window.live.count(banks.COALESCED)
        node.site.coalesced += 1


def drain(window: CoalescedCalls) -> None:
    """Add up what the quick way has counted."""
    with banks.lock:
        taken = sorted(
            (end, start, depth) for depth, fresh in tuple(window.fresh.items()) for start, end in _emptied(fresh)
        )
        if not taken:
            return
        (last, *_), (_, first, _) = taken[-1], taken[0]
        if last - min(window.start if window.calls else first, first) > _SECOND:
            for end, start, depth in taken:
                _add(window, start, end, depth, end - start)
        else:
            lasting = [end - start for end, start, _ in taken]
            depth = min(depth for _, _, depth in taken)
            _add(window, first, last, depth, sum(lasting), len(taken), max(lasting))
        window.live.count(banks.COALESCED, len(taken))
        window.site.coalesced += len(taken)
        window.site.quick += len(taken)


def _emptied(fresh: list[tuple[int, int]]) -> list[tuple[int, int]]:
    taken = fresh[:]
    del fresh[: len(taken)]
    return taken


def _add(
    window: CoalescedCalls, start: int, end: int, depth: int, inside: int, calls: int = 1, longest: int = 0
) -> None:
    """What ends over a second after a window's start begins another."""
    if window.calls and end - min(window.start, start) > _SECOND:
        _write(window)
    if not window.calls:
        window.start, window.end, window.depth = start, end, depth
    window.start, window.end, window.depth = min(window.start, start), max(window.end, end), min(window.depth, depth)
    window.calls += calls
    window.total += inside
    window.longest = max(window.longest, longest if calls > 1 else inside)


def _write(window: CoalescedCalls) -> None:
    home, w1, stage = window.key
    w2 = records.duration_bits(window.end - window.start) | window.depth << 40
    values = [("coalesced", window.calls), ("total_ns", window.total), ("max_ns", window.longest)]
    busy, w2 = max(window.total, 1), w2 | (records.ERROR if window.failed else 0)
    window.calls = window.total = window.longest = 0
    window.failed = False
    window.live.write(tracks.texts_of(window.site, home, stage), window.end, stage << 48, w1, w2, values, busy)


def flush() -> None:
    """Write what is pending. A window that has nothing, and into which nothing comes the quick way, is given up."""
    with banks.lock:
        for key, window in tuple(_windows.items()):
            drain(window)
            if window.calls:
                _write(window)
            elif window.epoch is not tracks.epoch:
                del _windows[key]


def forget() -> None:
    """Nothing is pending any more: the live file is let go of."""
    _windows.clear()


def oldest_pending(at: int) -> int:
    """The first end that is still to be written; `at` where there is none before."""
    windows = tuple(_windows.values())
    ends = [window.end for window in windows if window.calls]
    fresh = [fresh[0][1] for window in windows for fresh in tuple(window.fresh.values()) if fresh]
    return min([at, *ends, *fresh])


def count_quick(live: Live) -> None:
    """Count the ranges that the quick way has written since the last time: it does not count them itself."""
    for site_id, count in live.ranges_since().items():
        if 0 < site_id <= sites.count():
            sites.site_of(site_id).quick += count


def site_costs(live: Live | None) -> list[tuple[Site, int, int, int]]:
    """(site, calls, ns that they took of their threads, calls that were coalesced) of all sites with calls."""
    with banks.lock:
        for window in tuple(_windows.values()):
            drain(window)
        if live is not None:
            count_quick(live)
    quick_ns = cost_of_quick()
    return [
        (site, site.calls + site.quick, int(site.cost_ns + site.quick * quick_ns), site.coalesced)
        for site in sites.sites()
        if site.calls + site.quick > 0
    ]


def cost_of_quick() -> float:
    """Nanoseconds of a range the quick way, from those of something alike. To measure each would cost a tenth more."""
    global _quick_ns
    if _quick_ns is None:
        _quick_ns = _QUICK_IN_WITHS * min(_time_withs(100) for _ in range(5)) / 100
    return _quick_ns


def _time_withs(rounds: int, clock: Callable[[], int] = time.perf_counter_ns) -> int:
    held = threading.Lock()
    before = clock()
    for _ in range(rounds):
        with held:
            pass
    return clock() - before
