"""What a file tells of one rank's device, whatever its format: when it computed, when it communicated, and by which
clock.

Times are whole ns of the clock of whoever recorded it, which is a wall clock or meant to be one. `_clock_fit` finds
out how far that is from the run's.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ..folder import Damage
from ..intervals import Intervals, union

Times = npt.NDArray[np.int64]
# Of more, what touches or overlaps is one from then on; of more still, the rest is left out.
_COMPACTED_FROM, STRETCHES_AT_MOST = 1 << 22, 1 << 26
_BATCH = 1 << 16
# Names beyond these are not kept: only what a run has too is ever compared.
NAMES_AT_MOST, NAME_CHARACTERS = 1 << 16, 200
RANGES_AT_MOST = 1 << 20
EVENTS_AT_MOST = 50_000_000
# Times beyond, and stretches longer than a day, are no times: half of them was lost.
LATEST_NS, LONGEST_NS = 1 << 62, 86_400_000_000_000


class CoveredTime:
    """Stretches of time of one kind, in any order, of which only what they cover together is kept.

    *Cost*: 16 bytes for each that touches no other one.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._parts: list[Intervals] = []
        self._kept, self._next = 0, _COMPACTED_FROM
        self.count = 0
        self.left_out = 0

    def add(self, start_ns: int, end_ns: int) -> None:
        """One stretch; an empty one, or one that ends before it begins, covers nothing."""
        self._starts.append(start_ns)
        self._ends.append(end_ns)
        if len(self._starts) >= _BATCH:
            self._flush()

    def extend(self, starts: Times, ends: Times) -> None:
        """Many at once."""
        self.count += len(starts)
        length = ends - starts
        sane = (starts >= 0) & (starts < LATEST_NS) & (ends < LATEST_NS) & (length > 0) & (length < LONGEST_NS)
        part = union(starts[sane], ends[sane])
        if self._kept + len(part.starts) > STRETCHES_AT_MOST:
            self.left_out += len(starts)
            return
        self._parts.append(part)
        self._kept += len(part.starts)
        if self._kept > self._next:
            whole = self._together()
            self._parts, self._kept = [whole], len(whole.starts)
            self._next = max(_COMPACTED_FROM, 2 * self._kept)

    def all(self) -> Intervals:
        """What they cover."""
        self._flush()
        self._parts = [self._together()]
        return self._parts[0]

    def _flush(self) -> None:
        if self._starts:
            starts, ends = (_as_times(values) for values in (self._starts, self._ends))
            self._starts, self._ends = [], []
            self.extend(starts, ends)

    def _together(self) -> Intervals:
        if not self._parts:
            return NOTHING
        return union(*(np.concatenate([part[at] for part in self._parts]) for at in (0, 1)))


def _as_times(values: Iterable[int]) -> Times:
    return np.array([value if 0 <= value < LATEST_NS else -1 for value in values], dtype=np.int64)


NOTHING = Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class NamedStretches(NamedTuple):
    """Ranges or collectives, in the order in which they began: `names[codes[i]]` from `starts[i]` to `ends[i]`."""

    names: list[str]
    codes: npt.NDArray[np.int32]
    starts: Times
    ends: Times

    def of(self, code: int) -> tuple[Times, Times]:
        """Begins and ends of those of one name."""
        mine = self.codes == code
        return self.starts[mine], self.ends[mine]


class NamedColumn:
    """Collects `NamedStretches`; names are cut, and beyond the limits left out."""

    def __init__(self) -> None:
        self._codes_of: dict[str, int] = {}
        self._rows: list[tuple[int, int, int]] = []
        self.left_out = 0

    def add(self, name: str, start_ns: int, end_ns: int) -> None:
        """One; ends before begins, and times out of all reason, are left out."""
        is_sane = 0 <= start_ns <= end_ns < LATEST_NS and end_ns - start_ns < LONGEST_NS
        if len(self._rows) >= RANGES_AT_MOST or not is_sane:
            self.left_out += 1
            return
        name = name[:NAME_CHARACTERS]
        code = self._codes_of.get(name)
        if code is None:
            if len(self._codes_of) >= NAMES_AT_MOST:
                self.left_out += 1
                return
            code = self._codes_of[name] = len(self._codes_of)
        self._rows.append((code, start_ns, end_ns))

    def all(self) -> NamedStretches:
        """All of them, by begin."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 3)
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1]))]
        return NamedStretches(list(self._codes_of), rows[:, 0].astype(np.int32), rows[:, 1], rows[:, 2])


NO_NAMES = NamedColumn().all()


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
        spans: Somebody else's tracing: requests of an inference engine. None where there is none.
        operations: Single collectives by the name of their group: the k-th of a group is the k-th on all its ranks.
        group_sizes: So many ranks are in each group, as far as the file says.
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
    spans: Intervals | None = None
    operations: NamedStretches = field(default_factory=lambda: NO_NAMES)
    group_sizes: dict[str, int] = field(default_factory=dict)
    ranges: NamedStretches = field(default_factory=lambda: NO_NAMES)
    window: tuple[int, int] | None = None
    events: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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


def text(value: Any) -> str:
    """A short text, fit for a file; "" for what is none."""
    return value[:NAME_CHARACTERS].encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else ""


@contextmanager
def with_damage(trace: DeviceTrace) -> Iterator[None]:
    """Read the file of a trace: once there are events, what cannot be read is damage of the trace.

    Raises:
        FormatError: as the body, while there are none.
    """
    try:
        yield
    except FormatError as exc:
        if not trace.events:
            raise
        Damage.because(trace.file, exc).note_in(trace.damage)
