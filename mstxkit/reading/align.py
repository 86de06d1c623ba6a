"""Clocks made one: a process's ticks to CLOCK_MONOTONIC, and that to one wall clock for the run.

Processes that share a kernel and a time namespace share CLOCK_MONOTONIC, so each such group gets a single offset to the
wall clock: a wall clock that is stepped while the run goes on neither shifts nor reorders ranges.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Iterable, Sequence

from ..store.livefile import Anchor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ticks = npt.NDArray[np.int64]

MONOTONIC = 1
# Beyond the last anchor the slope is taken over at least this much, so that the anchors' own error does not tilt it.
EXTRAPOLATE_OVER_NS = 1_000_000_000
# Below this the anchors' own error is larger than that of the nominal rate.
TOO_SHORT_NS = 10_000_000
_FAR = float(1 << 62)


class Clock:
    """Ticks of one process as CLOCK_MONOTONIC ns: linear between neighbouring anchors, and never falling.

    Args:
        anchors: Instants on both clocks, in any order; contradicting ones are left out.
        kind: Clock kind of the file format; 1 is CLOCK_MONOTONIC itself.
        ticks_per_ns: Nominal rate, used where anchors are too few or too close.
    """

    def __init__(self, anchors: Iterable[Anchor], kind: int, ticks_per_ns: float) -> None:
        import numpy as np

        self.anchors = keep_rising(anchors)
        self._is_identity = kind == MONOTONIC
        self._nominal = 1.0 / ticks_per_ns if 1e-6 < ticks_per_ns < 1e6 else 1.0
        self._ticks = np.array([a.ticks for a in self.anchors] or [0], dtype=np.int64)
        self._ns = np.array([a.monotonic_ns for a in self.anchors] or [0], dtype=np.int64)
        inner = [_slope_between(a, b) for a, b in zip(self.anchors, self.anchors[1:])]
        self._slopes = np.array([self._outer_slope(self.anchors), *inner, self._outer_slope(self.anchors[::-1])])

    def to_monotonic(self, ticks: Ticks) -> Ticks:
        """CLOCK_MONOTONIC ns of absolute ticks, element by element.

        *Cost*: about 5 ns an element where all lie between two anchors, about 40 ns else.
        """
        import numpy as np

        if self._is_identity or not len(ticks):
            return ticks
        # Segment 0 lies before the first anchor, segment k from anchor k-1 on.
        first, last = np.searchsorted(self._ticks, (ticks.min(), ticks.max()), side="right")
        segment = first if first == last else np.searchsorted(self._ticks, ticks, side="right")
        anchor = np.maximum(segment - 1, 0)
        passed = (ticks - self._ticks[anchor]) * self._slopes[segment]
        result: Ticks = self._ns[anchor] + np.rint(np.clip(passed, -_FAR, _FAR)).astype(np.int64)
        return result

    def _outer_slope(self, anchors: Sequence[Anchor]) -> float:
        """ns a tick before the first of these anchors (or after, if they come reversed)."""
        if len(anchors) < 2:
            return self._nominal
        first = anchors[0]
        far = (a for a in anchors if abs(a.monotonic_ns - first.monotonic_ns) >= EXTRAPOLATE_OVER_NS)
        other = next(far, anchors[-1])
        if abs(other.monotonic_ns - first.monotonic_ns) < TOO_SHORT_NS:
            return self._nominal
        return _slope_between(first, other)

    @property
    def error_ns(self) -> int | None:
        """Bound of the error of a tick's CLOCK_MONOTONIC between the first and the last anchor; None without anchors.

        The widest bracket in which an anchor was taken, and the farthest that an anchor lies from the line
        through its neighbours. It says nothing about other hosts.
        """
        if not self.anchors:
            return None
        bracket = 2 * max(a.error_ns for a in self.anchors)
        if self._is_identity:
            return bracket
        triples = zip(self.anchors, self.anchors[1:], self.anchors[2:])
        residuals = (
            abs(a.monotonic_ns + (b.ticks - a.ticks) * _slope_between(a, c) - b.monotonic_ns) for a, b, c in triples
        )
        return bracket + math.ceil(max(residuals, default=0.0))


def _slope_between(a: Anchor, b: Anchor) -> float:
    return (b.monotonic_ns - a.monotonic_ns) / (b.ticks - a.ticks)


def keep_rising(anchors: Iterable[Anchor]) -> list[Anchor]:
    """The anchors by ticks, without those whose ticks are taken or whose CLOCK_MONOTONIC falls."""
    kept: list[Anchor] = []
    for anchor in sorted(set(anchors)):
        if not kept or (anchor.ticks > kept[-1].ticks and anchor.monotonic_ns >= kept[-1].monotonic_ns):
            kept.append(anchor)
    return kept


def anchor_of(fields: Any) -> Anchor | None:
    """An anchor from its four JSON numbers; None for anything else."""
    is_anchor = isinstance(fields, (list, tuple)) and len(fields) == 4
    is_anchor = is_anchor and all(isinstance(field, int) and 0 <= field < 1 << 62 for field in fields)
    return Anchor(*fields) if is_anchor else None


def wall_offset(anchors: Iterable[Anchor]) -> int:
    """ns from CLOCK_MONOTONIC to the wall clock of processes that share it: the median of their anchors, or 0."""
    offsets = sorted(a.realtime_ns - a.monotonic_ns for a in anchors)
    return offsets[(len(offsets) - 1) // 2] if offsets else 0
