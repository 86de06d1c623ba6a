"""What a file tells of one rank's device, whatever its format: when it computed, when it communicated, and by which
clock.

Times are whole ns of the clock of whoever recorded it, which is a wall clock or meant to be one. `_clock_fit` finds
out how far that is from the run's.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ..folder import Damage
from ..intervals import Intervals, join_stretches

Times = npt.NDArray[np.int64]
# Of more, what touches or overlaps is one from then on; of more still, the rest is left out.
_COMPACTED_FROM, STRETCHES_AT_MOST = 1 << 22, 1 << 26
# Names beyond these are not kept: only what a run has too is ever compared.
NAMES_AT_MOST, NAME_CHARACTERS = 1 << 16, 200
RANGES_AT_MOST = 1 << 20
EVENTS_AT_MOST = 50_000_000
_KINDS = ("computing", "communicating", "transfer", "waiting", "spans")
# Times beyond, and stretches longer than a day, are no times: half of them was lost.
LATEST_NS, LONGEST_NS = 1 << 62, 86_400_000_000_000

NOTHING = Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def are_usable(starts: Times, ends: Times) -> npt.NDArray[np.bool_]:
    """Which of these stretches can be: none begins before 1970, ends before it begins, or takes a day."""
    return np.asarray((starts >= 0) & (starts <= ends) & (ends < LATEST_NS) & (ends - starts < LONGEST_NS))


class CoveredTime:
    """Stretches of time of one kind, in any order, of which only what they cover together is kept. Of `count` that were
    added so many are `unusable`, by `are_usable` or without any time, and `left_out`, more than can be held.

    *Cost*: 16 bytes for each that touches no other one.
    """

    def __init__(self, starts: Times = NOTHING.starts, ends: Times = NOTHING.ends) -> None:
        self._parts = [NOTHING]
        self._kept, self._next = 0, _COMPACTED_FROM
        self.count = self.unusable = self.left_out = 0
        self.extend(starts, ends)

    def extend(self, starts: Times, ends: Times) -> None:
        """More of them; an empty one covers nothing."""
        self.count += len(starts)
        sane = are_usable(starts, ends) & (ends > 0)
        self.unusable += len(starts) - int(np.count_nonzero(sane))
        part = join_stretches(starts[sane], ends[sane])
        if self._kept + len(part.starts) > STRETCHES_AT_MOST:
            self.left_out += len(starts)
            return
        self._parts.append(part)
        self._kept += len(part.starts)
        if self._kept > self._next:
            self._parts = [self._join_parts()]
            self._kept = len(self._parts[0].starts)
            self._next = max(_COMPACTED_FROM, 2 * self._kept)

    def told(self) -> Intervals | None:
        """What they cover; None where there were some, and none of them has a usable time: then nothing is known."""
        return None if self.count and self.count == self.unusable + self.left_out else self._join_parts()

    def _join_parts(self) -> Intervals:
        return join_stretches(*(np.concatenate([part[at] for part in self._parts]) for at in (0, 1)))


class NamedStretches(NamedTuple):
    """Ranges or collectives, in the order in which they began: `names[codes[i]]` from `starts[i]` to `ends[i]`."""

    names: list[str]
    codes: npt.NDArray[Any]
    starts: Times
    ends: Times

    @classmethod
    def of(cls, names: Sequence[str | None], codes: npt.NDArray[Any], starts: Times, ends: Times) -> NamedStretches:
        """In any order; those without a name or a usable time, and those beyond the limit, are left out."""
        short = ["" if name is None else name[:NAME_CHARACTERS] for name in names]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(short))}
        has_name = np.array([name is not None for name in names], dtype=bool)[codes]
        kept = np.flatnonzero(has_name & are_usable(starts, ends))[:RANGES_AT_MOST]
        kept = kept[np.lexsort((ends[kept], starts[kept]))]
        of_rows = np.array([numbers[name] for name in short], dtype=np.int32)[codes[kept]]
        used, own_codes = np.unique(of_rows, return_inverse=True)
        every = list(numbers)
        return cls([every[number] for number in used.tolist()], own_codes, starts[kept], ends[kept])

    def called(self, code: int) -> tuple[Times, Times]:
        """Begins and ends of those of one name."""
        mine = self.codes == code
        return self.starts[mine], self.ends[mine]


NO_NAMES = NamedStretches.of([], NOTHING.starts, *NOTHING)


class BoundedCollectives(NamedTuple):
    """Collectives by begin, and of each how long data moved and others were waited for, at least and at most, ns.

    Waiting is time in which others are waited for and no data move. `is_alone`: it overlaps with none before it.
    """

    starts: Times
    ends: Times
    moved_least: Times
    moved_most: Times
    waited_least: Times
    waited_most: Times
    is_alone: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, starts: Times, *columns: Times) -> BoundedCollectives:
        """In any order."""
        order = np.argsort(starts, kind="stable")
        starts, ends, *rest = (column[order] for column in (starts, *columns))
        before = np.maximum.accumulate(np.concatenate((starts[:1], ends)))[: len(starts)]
        moved_least, moved_most, waited_least, waited_most = rest
        return cls(starts, ends, moved_least, moved_most, waited_least, waited_most, starts >= before)


@dataclass
class DeviceTrace:
    """What one file tells of one rank's device.

    Attributes:
        file: Where it lies, as a user would name it.
        source: `Importer.what`.
        rank: Whose device it is; None where the file does not say.
        host, pid: Who recorded it, as far as it says.
        computing: Kernels that compute; None where the format does not tell.
        communicating: Collectives and sends, waiting included; None where the format does not tell.
        transfer: The part of it in which data moved; None where the format does not tell.
        waiting: The part of it in which others were waited for; None where the format does not tell.
        bounds: What else bounds both; None where nothing does.
        spans: Somebody else's tracing: requests of an inference engine. None where there is none.
        operations: Single collectives by the name of their group: the k-th of a group is the k-th on all its ranks.
        lost: Why and how many of its rows are not used.
        ranges: Ranges of the host, by which the clocks are compared.
        window: Begin and end of the recording, ns; None: that of what it holds.
        events: So many rows or events were read.
        damage: What could not be read.
        notes: What a reader should know, a sentence each.
    """

    file: str
    source: str
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    computing: Intervals | None = None
    communicating: Intervals | None = None
    transfer: Intervals | None = None
    waiting: Intervals | None = None
    bounds: BoundedCollectives | None = None
    spans: Intervals | None = None
    operations: NamedStretches = field(default_factory=lambda: NO_NAMES)
    ranges: NamedStretches = field(default_factory=lambda: NO_NAMES)
    window: tuple[int, int] | None = None
    events: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)

    def lose(self, why: str, *stretches: CoveredTime, count: int = 0) -> None:
        """Count rows that are not used; `why` follows on their number."""
        self.lost[why] += count + sum(each.unusable for each in stretches)
        self.lost[f"{why.partition(' ')[0]} are more than can be held"] += sum(each.left_out for each in stretches)

    def leave_out_far(self) -> None:
        """Leave out what lies a day or more from ranges of the host, else from the middle of all: of another unit."""
        kinds = {name: getattr(self, name) for name in _KINDS}
        kinds = {name: kind for name, kind in kinds.items() if kind is not None and len(kind.starts)}
        edges = [int(time) for kind in kinds.values() for time in (kind.starts[0], kind.ends[-1])]
        if not edges or max(edges) - min(edges) < LONGEST_NS:
            return
        times, ranges = np.concatenate([kind.starts for kind in kinds.values()]), self.ranges.starts
        middle = int(np.median(ranges)) if len(ranges) else 0
        middle = middle if (np.abs(times - middle) < LONGEST_NS).any() else int(np.median(times))
        for name, kind in kinds.items():
            is_near = np.abs(kind.starts - middle) < LONGEST_NS
            self.lost[f"stretches of {name} lie days from the others and are left out"] += int((~is_near).sum())
            setattr(self, name, Intervals(kind.starts[is_near], kind.ends[is_near]) if is_near.any() else None)

    @property
    def extent(self) -> tuple[int, int] | None:
        """From when to when it tells anything; None where it holds nothing.

        A recording's own window is believed only where it holds what was recorded: files were seen in which it is two
        years off.
        """
        kinds = (self.computing, self.communicating, self.spans)
        held = [kind for kind in kinds if kind is not None and len(kind.starts)]
        if not held:
            return None
        begin, end = min(int(kind.starts[0]) for kind in held), max(int(kind.ends[-1]) for kind in held)
        if self.window is not None and self.window[0] <= begin and end <= self.window[1] <= self.window[0] + LONGEST_NS:
            return self.window
        return begin, end


def clean_text(value: Any) -> str:
    """A short text, fit for a file; "" for what is none."""
    return value[:NAME_CHARACTERS].encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else ""


@contextmanager
def with_damage(trace: DeviceTrace) -> Iterator[None]:
    """Read the file of a trace: once there are events, what cannot be read is damage of the trace.
    Raises FormatError: as the body, while there are none.
    """
    try:
        yield
    except FormatError as exc:
        if not trace.events:
            raise
        Damage.because(trace.file, exc).note_in(trace.damage)
