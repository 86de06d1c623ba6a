"""The ranges and marks of a block of code as plain data, with a capture or without. Needs neither numpy nor polars."""

from __future__ import annotations

import mmap
import os
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Iterator, NamedTuple

from ..engine.choose import engine
from ..errors import CaptureError
from ..host import environment
from ..recorder import current
from ..store import livefile, records

# Address space, not memory: only what is written to takes any.
_LAYOUT = livefile.Layout(slot_count=16_384, bank_count=16, bank_bytes=4 << 20)
_TICKS_ARE_NS = (1, 4)
_STATES = (livefile.FREE, livefile.ACTIVE, livefile.FULL)

_private: memoryview | None = None


class CapturedRange(NamedTuple):
    """A range that has ended. Times are ns.

    Args:
        name: As it was marked.
        domain: Its mstx domain.
        stage: Key of the innermost enclosing stage; a stage's own range has its own. None outside of all.
        own_stage: Is this range an occurrence of that stage itself?
        step: The step in force at its begin, None before the first.
        track: Threads and tasks have tracks of their own.
        depth: Ranges around it on its track.
        error: The body raised or was cancelled.
        start_ns: CLOCK_MONOTONIC, or the fake clock.
        duration_ns: From its begin to its end.
        busy_ns: Time really spent inside a driven coroutine or generator; None for other ranges.
        attributes: By name, as they were given; what mstxkit does not take, by the name of its type.

    Example:
        >>> from mstxkit import mstx_range
        >>> from mstxkit.testing import captured
        >>> with captured() as seen, mstx_range("rerank", tokens=512):
        ...     pass
        >>> [(one.name, one.stage, one.attributes) for one in seen.ranges]
        [('rerank', None, {'tokens': 512})]
    """

    name: str
    domain: str
    stage: str | None
    own_stage: bool
    step: int | None
    track: int
    depth: int
    error: bool
    start_ns: int
    duration_ns: int
    busy_ns: int | None
    attributes: dict[str, Any]


class CapturedMark(NamedTuple):
    """An instant.

    Args:
        message: As it was marked.
        domain, stage, step, track, attributes: As in `CapturedRange`.
        time_ns: CLOCK_MONOTONIC, or the fake clock, in ns.

    Example:
        >>> from mstxkit import mark, stage
        >>> from mstxkit.testing import captured
        >>> with captured() as seen, stage("reward"):
        ...     mark("scored")
        >>> [(one.message, one.stage) for one in seen.marks]
        [('scored', 'reward')]
    """

    message: str
    domain: str
    stage: str | None
    step: int | None
    track: int
    time_ns: int
    attributes: dict[str, Any]


class OpenRange(NamedTuple):
    """A range that has not ended yet.

    Args:
        name, domain, stage, own_stage, step, track, depth, start_ns: As in `CapturedRange`.

    Example:
        >>> from mstxkit import stage
        >>> from mstxkit.testing import captured
        >>> with captured() as seen, stage("reward"):
        ...     [one.name for one in seen.open]
        ['reward']
    """

    name: str
    domain: str
    stage: str | None
    own_stage: bool
    step: int | None
    track: int
    depth: int
    start_ns: int


class Captured:
    """What a block has recorded: up to now while it runs, and all of it once it is over. `captured` makes it.

    Args:
        view: The live file that is written to.

    Example:
        >>> from mstxkit import mark, stage
        >>> from mstxkit.testing import captured
        >>> with captured() as seen:
        ...     with stage("reward"):
        ...         mark("scored")
        >>> len(seen.ranges), len(seen.marks), len(seen.open)
        (1, 1, 0)
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._header = livefile.read_header(view)
        banks = self._all_banks()
        # Where the next record will be written.
        self._seq, self._records = (banks[-1].seq, banks[-1].record_count) if banks else (0, 0)
        self._dropped = engine.counters()["dropped"]
        # One instant in ticks, and in ns.
        self._instant = (0, 0) if engine.clock_kind() in _TICKS_ARE_NS else (engine.now(), time.monotonic_ns())
        self._final: tuple[list[CapturedRange], list[CapturedMark], list[OpenRange]] | None = None

    @property
    def ranges(self) -> list[CapturedRange]:
        """The ranges that have ended, by their end."""
        return self._read_block()[0]

    @property
    def marks(self) -> list[CapturedMark]:
        """The marks, in order."""
        return self._read_block()[1]

    @property
    def open(self) -> list[OpenRange]:
        """The ranges that have begun and not ended, by their begin; after the block, those open at its end."""
        return self._read_block()[2]

    def close(self) -> None:
        """Keep what there is, which later ranges do not change."""
        self._final = self._read_block()

    def _read_block(self) -> tuple[list[CapturedRange], list[CapturedMark], list[OpenRange]]:
        if self._final is not None:
            return self._final
        engine.flush_coalesced()
        ranges: list[CapturedRange] = []
        marks: list[CapturedMark] = []
        banks = [bank for bank in self._all_banks() if bank.seq >= self._seq]
        lost = engine.counters()["dropped"] - self._dropped
        gone = banks[-1].seq - max(self._seq, 1) + 1 - len(banks) if banks else 0
        if lost or gone:
            raise CaptureError(
                f"captured() has lost ranges ({lost} dropped, {gone} banks overwritten while the block ran): "
                "use it on a smaller block, or read the run with mstxkit.open_run"
            )
        for bank in banks:
            first = self._records if bank.seq == self._seq else 0
            self._read_bank(bank, first, ranges, marks)
        return ranges, marks, self._read_open(banks)

    def _read_bank(
        self, bank: livefile.BankCopy, first: int, ranges: list[CapturedRange], marks: list[CapturedMark]
    ) -> None:
        texts, _ = livefile.read_texts(bank.text, bank.salt)
        attributes: dict[str, Any] = {}
        for index, (w0, w1, w2) in enumerate(records.WORDS.iter_unpack(bank.raw)):
            if index < first or not records.is_whole(w0, w1, w2, bank.salt, index):
                continue
            kind = records.kind_of(w2)
            if kind == records.ATTRIBUTE:
                key, value_type = w1 & 0xFFFFFFFF, w1 >> 32 & 0xFF
                if value_type != records.BUSY:
                    attributes[texts.texts.get(key, f"<{key}>")] = records.value_of(value_type, w0, texts.texts)
                elif ranges:
                    ranges[-1] = ranges[-1]._replace(busy_ns=self._as_ns(w0))
                continue
            attributes = {}
            record = records.unpack_record(w0, w1, w2)
            site, stage, end = texts.sites[record.site], texts.stages.get(record.stage), bank.origin + record.end
            where = (_read_step(record.step), record.track)
            if kind == records.MARK:
                marks.append(CapturedMark(site.name, site.domain, stage, *where, self._time_ns(end), attributes))
            else:
                times = (self._time_ns(end - record.duration), self._as_ns(record.duration), None)
                how = (bool(site.own_stage), *where, record.depth, record.error)
                ranges.append(CapturedRange(site.name, site.domain, stage, *how, *times, attributes))

    def _read_open(self, banks: list[livefile.BankCopy]) -> list[OpenRange]:
        """The last bank knows the sites of all open ranges."""
        if not banks:
            return []
        texts, _ = livefile.read_texts(banks[-1].text, banks[-1].salt)
        ranges = []
        for slot in sorted(livefile.read_slots(self._view, self._header)):
            if slot.site in texts.sites:
                site, stage = texts.sites[slot.site], texts.stages.get(slot.stage)
                at = (_read_step(slot.step), slot.track, slot.depth, self._time_ns(slot.start))
                ranges.append(OpenRange(site.name, site.domain, stage, bool(site.own_stage), *at))
        return ranges

    def _all_banks(self) -> list[livefile.BankCopy]:
        """Every bank ever used, oldest first: one that was sealed and freed keeps its content until the next use."""
        places = range(self._header.layout.bank_count)
        banks = (livefile.read_bank(self._view, self._header.layout, place, _STATES) for place in places)
        return sorted((bank for bank in banks if bank is not None), key=lambda bank: bank.seq)

    def _as_ns(self, ticks: int) -> int:
        return ticks if engine.clock_kind() in _TICKS_ARE_NS else round(ticks / engine.ticks_per_ns())

    def _time_ns(self, ticks: int) -> int:
        return self._instant[1] + self._as_ns(ticks - self._instant[0])


def _read_step(step: int) -> int | None:
    return None if step == records.NO_STEP else step


@contextmanager
def captured() -> Iterator[Captured]:
    """Record the block: what it yields has `ranges`, `marks` and `open`.

    While a capture runs, its recorder is read; else one in memory is started for the block. Blocks may be nested. About
    two million ranges fit.

    Raises:
        CaptureError: at the end, when ranges were lost because the block was too large; at the start, under
            MSTXKIT_OFF.

    Example:
        >>> from mstxkit import stage
        >>> from mstxkit.testing import captured
        >>> with captured() as seen:
        ...     with stage("reward", prompts=64):
        ...         pass
        >>> [(one.stage, one.attributes) for one in seen.ranges]
        [('reward', {'prompts': 64})]
    """
    if environment.is_off():
        raise CaptureError("captured() has nothing to show: MSTXKIT_OFF is set, so that nothing of mstxkit runs here")
    running = _private or current.live_view()
    with nullcontext(running) if running is not None else _private_recorder() as view:
        seen = Captured(view)
        try:
            yield seen
        except BaseException:
            with suppress(CaptureError):  # the body's own error comes first
                seen.close()
            raise
        seen.close()


@contextmanager
def _private_recorder() -> Iterator[memoryview]:
    global _private
    view = memoryview(mmap.mmap(-1, _LAYOUT.total_bytes))
    nonce = int.from_bytes(os.urandom(8), "little")
    livefile.lay_out(view, _LAYOUT, nonce, engine.NATIVE)
    engine.attach(view, nonce)
    engine.set_recording(True)
    _private = view
    try:
        yield view
    finally:
        _private = None
        engine.set_recording(False)
        engine.detach()
