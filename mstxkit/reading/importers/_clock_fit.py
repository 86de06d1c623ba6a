"""How far a recording's clock is from the run's: by ranges that both have, of which many may be missing or others.

All differences between ranges of one name and about one length are laid out; the true one is where most of them meet.
A straight line through these is the offset with its drift, and what is farthest from it bounds its error.
"""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

import numpy as np
import numpy.typing as npt

from ._trace import NamedStretches, Times

RANGES, FEW_RANGES, WALL = "ranges", "few ranges", "wall clock"
# Nobody measured it: clocks of one host, or of hosts that keep time by NTP.
WALL_ERROR_NS = 10_000_000
_PAIRS_AT_MOST = 1_000_000
# Differences this close are one; lengths of one range differ by no more, or by that part.
_CLOSE_NS, _LENGTH_NS, _LENGTH_RATIO = 1_000_000, 200_000, 0.02
_ENOUGH, _ENOUGH_RATIO, _PEAKS = 3, 0.3, 32
# A line needs so many, over so long; no clock of a computer drifts more.
_LINE_NEEDS, _LINE_NEEDS_NS, _DRIFT_AT_MOST = 16, 2_000_000_000, 5e-4
_ROUNDS, _OUTLIER_MADS, _FLOOR_NS = 6, 6, 2_000
_Floats = npt.NDArray[np.float64]


class ClockFit(NamedTuple):
    """From the recording's clock to the run's: `time + offset_ns + drift * (time - origin_ns)`.

    Attributes:
        error_ns: No time is farther off; for `WALL` it is an assumption.
        matches: So many ranges agreed.
        how: RANGES; FEW_RANGES, one or two; WALL, none.
        note: What a reader should know; "" for nothing.
        rival_ns: So far from here the ranges fit as well; 0 for nowhere else.
    """

    offset_ns: int
    drift: float
    origin_ns: int
    error_ns: int
    matches: int
    how: str
    note: str = ""
    rival_ns: int = 0

    def to_theirs(self, times: Times) -> Times:
        """Times of the run on the recording's clock."""
        there = times - self.offset_ns
        drifted: Times = there - np.rint(self.drift * (there - self.origin_ns)).astype(np.int64)
        return drifted


def assume_wall(own_error_ns: int, note: str = "") -> ClockFit:
    """Both clocks are taken to be the wall clock."""
    return ClockFit(0, 0.0, 0, WALL_ERROR_NS + own_error_ns, 0, WALL, note)


class _Pairs(NamedTuple):
    """Ranges that may be the same. `theirs` numbers those of the recording, all names together."""

    theirs: npt.NDArray[np.int64]
    starts: Times  # theirs
    differences: Times  # ours - theirs, of begins
    more: Times  # by how much ours is longer


def fit_clocks(theirs: NamedStretches, ours: NamedStretches, own_error_ns: int) -> ClockFit | None:
    """The clocks' relation by their ranges, the recording's and the run's of the same process; None where these do not
    tell it. `own_error_ns`: bound of the run's own clock.
    """
    parts = list(_by_name(theirs, ours)) or [(np.zeros(0, dtype=np.int64),) * 4]
    pairs = _Pairs(*(np.concatenate([part[at] for part in parts]) for at in range(4)))
    if not len(pairs.starts):
        return None
    (middle, rival_ns), there = _find_peak(pairs), len(np.unique(pairs.theirs))
    matched = _are_near(pairs, middle)
    count = len(np.unique(pairs.theirs[matched]))
    if count < _ENOUGH:
        differences, more = pairs.differences[matched] + pairs.more[matched] // 2, pairs.more[matched]
        offset = int(np.median(differences))
        error = int(np.abs(differences - offset).max() + np.abs(more).max()) + _CLOSE_NS + own_error_ns
        note = f"its clock goes by {count} range{'s' * (count > 1)} alone"
        few = ClockFit(offset, 0.0, 0, error, count, FEW_RANGES, note)
        return few if count == there and not rival_ns else None
    line = _fit_line(pairs, float(middle), own_error_ns, rival_ns)
    return line if line.matches >= _ENOUGH_RATIO * there else None


def _by_name(theirs: NamedStretches, ours: NamedStretches) -> Iterator[tuple[Any, ...]]:
    """Rare names first: they tell most, and frequent ones may not fit any more."""
    codes = {name: code for code, name in enumerate(ours.names)}
    shared = [(code, codes[name]) for code, name in enumerate(theirs.names) if name in codes]
    sizes = {
        both: np.count_nonzero(theirs.codes == both[0]) * np.count_nonzero(ours.codes == both[1]) for both in shared
    }
    room = _PAIRS_AT_MOST
    for both in sorted(shared, key=lambda both: sizes[both]):
        mine = np.flatnonzero(theirs.codes == both[0])
        starts, ends = ours.called(both[1])
        if not len(mine) or not len(starts):
            continue
        most = max(1, room // len(starts))
        mine = mine[np.linspace(0, len(mine) - 1, min(len(mine), most)).astype(np.int64)]
        room -= len(mine) * len(starts)
        length, other = (theirs.ends - theirs.starts)[mine][:, None], (ends - starts)[None, :]
        is_alike = np.abs(other - length) <= np.maximum(_LENGTH_NS, _LENGTH_RATIO * np.maximum(length, other))
        row, column = np.nonzero(is_alike)
        begun = theirs.starts[mine[row]]
        yield (mine[row], begun, starts[column] - begun, (other - length)[row, column])
        if room <= 0:
            return


def _find_peak(pairs: _Pairs) -> tuple[int, int]:
    """The difference on which most ranges agree, of equal ones the closest to none; how far the next equal one is."""
    order = np.argsort(pairs.differences, kind="stable")
    ordered = pairs.differences[order]
    counts = np.searchsorted(ordered, ordered + _CLOSE_NS, side="right") - np.arange(len(ordered))
    rivals: list[tuple[int, int, int]] = []
    most = counts.max()
    while len(rivals) < _PEAKS and counts.max() * 2 >= most:
        at = int(np.argmax(counts))
        part = slice(at, at + counts[at])
        middle = int(np.median(ordered[part]))
        rivals.append((-len(np.unique(pairs.theirs[order[part]])), abs(middle), middle))
        around = np.searchsorted(ordered, (ordered[at] - 2 * _CLOSE_NS, ordered[at] + 2 * _CLOSE_NS))
        counts[around[0] : around[1]] = 0
    rivals.sort()
    best, *others = rivals
    return best[2], min((abs(other[2] - best[2]) for other in others if other[0] == best[0]), default=0)


def _are_near(pairs: _Pairs, expected: _Floats | float) -> npt.NDArray[np.bool_]:
    return np.asarray(np.abs(pairs.differences - expected) <= _CLOSE_NS)


def _fit_line(pairs: _Pairs, middle: float, own_error_ns: int, rival_ns: int) -> ClockFit:
    """A straight line through the differences near this one, outliers left out."""
    # The middles of both ranges: what recording a range costs is about the same at its begin and its end.
    values = pairs.differences + pairs.more / 2
    origin = int(np.median(pairs.starts[_are_near(pairs, middle)]))
    passed, drift, offset, chosen = (pairs.starts - origin).astype(np.float64), 0.0, middle, np.zeros(0, dtype=bool)
    for _ in range(_ROUNDS):
        chosen = _are_near(pairs, offset + drift * passed)
        x, y = passed[chosen], values[chosen]
        drift = _fit_slope(x, y)
        offset = float(np.median(y - drift * x))
        rest = np.abs(y - drift * x - offset)
        keep = rest <= _OUTLIER_MADS * np.median(rest) + _FLOOR_NS
        chosen[np.flatnonzero(chosen)[~keep]] = False
    rest = np.abs(values - drift * passed - offset)[chosen]
    error = int(np.ceil(rest.max() + np.median(np.abs(pairs.more[chosen])) / 2))
    matches = len(np.unique(pairs.theirs[chosen]))
    note = "its ranges fit the run at several places, one as well as the other: the nearest was taken" * bool(rival_ns)
    error += rival_ns if abs(offset) > WALL_ERROR_NS else 0  # two wall clocks may be so far apart: then it is this one
    return ClockFit(round(offset), drift, origin, error + own_error_ns, matches, RANGES, note, rival_ns)


def _fit_slope(x: _Floats, y: _Floats) -> float:
    """Drift: the median of the slopes between ranges that lie half of all apart; 0 where these are too few or close."""
    if len(x) < _LINE_NEEDS or np.ptp(x) < _LINE_NEEDS_NS:
        return 0.0
    order = np.argsort(x, kind="stable")
    half = len(x) // 2
    apart = x[order[half:]] - x[order[: len(x) - half]]
    rise = y[order[half:]] - y[order[: len(x) - half]]
    usable = apart > _LINE_NEEDS_NS / 4
    slope = float(np.median(rise[usable] / apart[usable])) if usable.any() else 0.0
    return slope if abs(slope) <= _DRIFT_AT_MOST else 0.0
