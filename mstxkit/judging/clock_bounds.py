"""How far the clocks of hosts are apart, drift and all, with a bound: from exchanges of time stamps.

An exchange says that the difference was between two numbers, whatever the ways there and back took. All straight lines
that agree with every exchange are kept, as a polygon of (difference, drift); at any time the difference lies between
the lowest and the highest of them. Quick exchanges make it narrow, slow ones do no harm.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from ..store.values import forget_oldest
from .evidence import Seconds, Whole

Polygon = list[tuple[float, float]]

# Wall clocks of two hosts, where nobody has exchanged anything: what NTP over a busy network may leave.
WALL_ERROR_NS = 50_000_000
SAME_HOST_ERROR_NS = 1_000
# Of so many hosts clocks are kept, the best of so many looks at the wall clock; of a batch so many exchanges are taken.
CLOCKS_AT_MOST, _BRACKETS, _ROWS_AT_MOST = 8192, 64, 16
# Two looks at one clock are this far apart by themselves, at least.
_LEAST_ERROR_NS = 500.0
_DRIFT_AT_MOST = 1e-3
# How much the rate of a clock may change within a second, and at most: its temperature does that, and NTP.
_WANDER_PER_S, _WANDER_AT_MOST = 2e-9, 1e-6
_WINDOW_S, _SLOTS, _OF_A_SLOT = 600.0, 12, 3
_NS, _WHOLE_AT_MOST = 1e-9, 1 << 62


class ClockExchange(NamedTuple):
    """One exchange, ns: left here, arrived at the reference, left there, was back here; each on the clock of there."""

    sent_ns: int
    reached_ns: int
    answered_ns: int
    back_ns: int

    @property
    def way_ns(self) -> int:
        """What both ways took together."""
        return (self.back_ns - self.sent_ns) - (self.answered_ns - self.reached_ns)


class PeerClock:
    """One host's clocks: the wall clock as it was asked of late, CLOCK_MONOTONIC against the reference's."""

    def __init__(self) -> None:
        self._wall, self._looks = (0, 0), _BRACKETS
        self._kept: list[ClockExchange] = []
        self._polygon: Polygon = []
        self._origin = ClockExchange(0, 0, 0, 0)

    @property
    def is_known(self) -> bool:
        """Was there any exchange?"""
        return bool(self._polygon)

    def look(self, half_ns: int, offset_ns: int) -> None:
        """Its wall clock was asked. `half_ns`: half the bracket in which both clocks were asked, over 0. `offset_ns`:
        CLOCK_REALTIME less CLOCK_MONOTONIC.
        """
        self._looks += 1
        is_set = abs(offset_ns - self._wall[1]) > WALL_ERROR_NS + half_ns  # or its host was asleep
        if half_ns <= self._wall[0] or self._looks > _BRACKETS or is_set:
            self._wall, self._looks = (half_ns, offset_ns), 0

    def by_wall(self) -> tuple[int, float] | None:
        """What makes its wall clock of its CLOCK_MONOTONIC, as it was asked within the least time, and the error of
        that, ns; None where it has never said so.
        """
        half_ns, offset_ns = self._wall
        return (offset_ns, float(WALL_ERROR_NS + half_ns)) if half_ns else None

    def add(self, exchanged: ClockExchange) -> None:
        """Take one exchange more; what is none is left out. *Cost*: about a millisecond."""
        are_whole = all(type(value) is int and abs(value) < _WHOLE_AT_MOST for value in exchanged)
        if not are_whole or exchanged.way_ns < 0 or exchanged.answered_ns < exchanged.reached_ns:
            return
        self._kept = _pick_tightest([*self._kept, exchanged])
        self._polygon = self._fitted()
        while not self._polygon and len(self._kept) > 1:
            # They contradict those before: the host was asleep, or its clock was set.
            self._kept = self._kept[len(self._kept) // 2 :]
            self._polygon = self._fitted()

    def _fitted(self) -> Polygon:
        self._origin = newest = self._kept[-1]
        now_s = newest.back_ns * _NS
        widest = 4 * max(each.way_ns for each in self._kept) * _NS + 1.0 + _DRIFT_AT_MOST * _WINDOW_S
        polygon: Polygon = [
            (-widest, -_DRIFT_AT_MOST), (widest, -_DRIFT_AT_MOST), (widest, _DRIFT_AT_MOST), (-widest, _DRIFT_AT_MOST)
        ]  # fmt: skip
        for each in self._kept:
            slack = _bound_wander(now_s - each.back_ns * _NS) + _LEAST_ERROR_NS * _NS
            at_sent, at_back = (each.sent_ns - newest.sent_ns) * _NS, (each.back_ns - newest.sent_ns) * _NS
            # difference + drift * time is at most what the way there says, and at least what the way back says.
            polygon = _clip_polygon(polygon, 1.0, at_sent, self._relative(each.reached_ns, each.sent_ns) + slack)
            polygon = _clip_polygon(polygon, -1.0, -at_back, slack - self._relative(each.answered_ns, each.back_ns))
        return polygon

    def _relative(self, there_ns: int, here_ns: int) -> float:
        """A difference less that of the origin, so that floats hold it; seconds."""
        return ((there_ns - here_ns) - (self._origin.reached_ns - self._origin.sent_ns)) * _NS

    def to_reference(self, here_ns: Whole) -> tuple[Whole, Seconds]:
        """Times of this host on the reference's CLOCK_MONOTONIC, and the bound of the error of each; both in ns.
        `here_ns`: (N,) CLOCK_MONOTONIC of this host.
        """
        at_s = (here_ns - self._origin.sent_ns) * _NS
        corners = np.array(self._polygon)
        lines = corners[:, :1] + corners[:, 1:] * at_s[None, :]
        low, high = lines.min(axis=0), lines.max(axis=0)
        beyond = np.maximum(0.0, at_s - (self._origin.back_ns - self._origin.sent_ns) * _NS)
        error = (high - low) / 2 / _NS + _bound_wander(beyond) / _NS
        base = here_ns + (self._origin.reached_ns - self._origin.sent_ns)
        return base + np.round((low + high) / 2 / _NS).astype(np.int64), error


def _bound_wander(age_s: Any) -> Any:
    """How far a straight line may be off after so many seconds; seconds."""
    age = np.abs(age_s)
    return np.minimum(_WANDER_PER_S * age / 2, _WANDER_AT_MOST) * age


def _pick_tightest(exchanges: Sequence[ClockExchange]) -> list[ClockExchange]:
    """The last one, and of each slot of time in the window the quickest few; in their order."""
    newest = exchanges[-1]
    slots: dict[int, list[ClockExchange]] = {}
    for each in exchanges[:-1]:
        age_s = (newest.back_ns - each.back_ns) * _NS
        if 0 <= age_s < _WINDOW_S:
            slots.setdefault(int(each.back_ns * _NS * _SLOTS / _WINDOW_S), []).append(each)
    quickest = [sorted(slot, key=lambda each: each.way_ns)[:_OF_A_SLOT] for slot in slots.values()]
    return [*sorted((each for slot in quickest for each in slot), key=lambda each: each.back_ns), newest]


def _clip_polygon(polygon: Polygon, by_first: float, by_second: float, at_most: float) -> Polygon:
    """The part of a convex polygon where by_first * x + by_second * y <= at_most."""
    kept: Polygon = []
    over = [by_first * x + by_second * y - at_most for x, y in polygon]
    for index, (corner, value) in enumerate(zip(polygon, over)):
        before, value_before = polygon[index - 1], over[index - 1]
        if (value <= 0) != (value_before <= 0):
            share = value_before / (value_before - value)
            kept.append((before[0] + share * (corner[0] - before[0]), before[1] + share * (corner[1] - before[1])))
        if value <= 0:
            kept.append(corner)
    return kept


class HostClocks:
    """Every host's clock on one aligned clock: the wall clock of the reference, which is whoever judges.

    Hosts that share a kernel, as containers do, share its clock: each is known by its boot id.

    Args:
        boot: Boot id of the reference's host: what runs there is exact.
        wall_offset_ns: Its CLOCK_REALTIME less its CLOCK_MONOTONIC.
        at_most: Of so many clocks is anything kept; those that were told of last.
    """

    def __init__(self, boot: str = "", wall_offset_ns: int = 0, at_most: int = CLOCKS_AT_MOST) -> None:
        self._boot, self._wall_offset_ns, self._at_most = boot, wall_offset_ns, at_most
        self._clocks: dict[str, PeerClock] = {}

    def take(self, boot: str, clock: tuple[int, int, int] | None, rows: object) -> None:
        """What one batch says of the clock of its host: CLOCK_MONOTONIC, CLOCK_REALTIME and half the bracket in which
        both were asked, ns; and its exchanges. What is none with this reference is left out, and what are more than a
        host makes. *Cost*: a millisecond for each exchange.
        """
        clock_of_host = self._clocks.pop(boot, None) or PeerClock()
        self._clocks[boot] = clock_of_host  # now the last one
        forget_oldest(self._clocks, self._at_most)
        if clock is not None:
            clock_of_host.look(clock[2] or 1, clock[1] - clock[0])
        for row in rows[:_ROWS_AT_MOST] if isinstance(rows, list) else []:
            if isinstance(row, list) and len(row) == 5 and row[0] == self._boot:
                clock_of_host.add(ClockExchange(*row[1:]))

    def aligned(self, boot: str, here_ns: Whole) -> tuple[Whole, Seconds]:
        """Times of a host on the aligned clock and the bound of the error of each, both in ns."""
        of_host, own = self._clocks.get(boot), self._clocks.get(self._boot)
        # Its agent knows its wall clock better, if there is one.
        reference_ns = ((own and own.by_wall()) or (self._wall_offset_ns, 0.0))[0]
        if boot and boot == self._boot:
            return here_ns + reference_ns, np.full(len(here_ns), float(SAME_HOST_ERROR_NS))
        of_wall = None if of_host is None else of_host.by_wall()
        offset_ns, error_ns = of_wall or (reference_ns, float("inf"))
        by_wall, wall_error = here_ns + offset_ns, np.full(len(here_ns), error_ns)
        if of_host is None or not of_host.is_known:
            return by_wall, wall_error
        times, error = of_host.to_reference(here_ns)
        # Over files an exchange may be vaguer than wall clocks are.
        is_vaguer = error > wall_error
        return np.where(is_vaguer, by_wall, times + reference_ns), np.where(is_vaguer, wall_error, error)
