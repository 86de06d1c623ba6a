"""Ranges and marks drawn for Perfetto one by one: of lanes that do not nest, and what is shown beside the lanes."""

from __future__ import annotations

import numpy as np

from ..lines import Line
from ..vocabulary import Vocabulary
from . import _track_events as events
from ._chrome_events import RangeRow
from ._flows import Flows
from ._nesting import TRACK_BITS
from ._packets import TraceNames
from ._places import Places
from ._protobuf import block, number


class LaneEvents:
    """Makes packets of single events; as `_slices.Drawing` has them."""

    def __init__(self, names: TraceNames, places: Places, first_ns: int, flows: Flows, vocabulary: Vocabulary) -> None:
        self._names, self._places, self._first_ns = names, places, first_ns
        self._flows, self._vocabulary = flows, vocabulary

    def on_track(self, row: RangeRow) -> None:
        """A range is a begin and an end here."""

    def begin(self, row: RangeRow, line: Line) -> bytes:
        """The begin of a range on a line."""
        flows = b""
        if row.stage is not None and self._vocabulary.has_stage_of_its_own(row.name, row.domain):
            stage = np.array([self._vocabulary.stage_code(row.stage)])
            flows = b"".join(tail for _, tail in self._flows.tails(row.process, np.array([row.start_ns]), stage))
        return self._event(events.BEGIN, row, self._track(row, line), row.start_ns, flows)

    def end(self, row: RangeRow, line: Line) -> bytes:
        """Its end."""
        return self._end(row, self._track(row, line))

    def mark(self, row: RangeRow, line: Line) -> bytes:
        """An instant on a line."""
        return self._event(events.INSTANT, row, self._track(row, line), row.start_ns)

    def once_more(self, row: RangeRow, track: int) -> bytes:
        """A whole range on a track of its own."""
        return self._event(events.BEGIN, row, track, row.start_ns) + self._end(row, track)

    def _track(self, row: RangeRow, line: Line) -> int:
        if line.number:
            return self._places.of_line(row, line.number)
        return self._places.of_lane(row.process << TRACK_BITS | row.track)

    def _end(self, row: RangeRow, track: int) -> bytes:
        assert row.duration_ns is not None
        event = number(events.TYPE, events.END) + number(events.TRACK, track)
        return self._packet(row, row.start_ns + max(row.duration_ns, 0), event)

    def _event(self, kind: int, row: RangeRow, track: int, at_ns: int, flows: bytes = b"") -> bytes:
        name, category = self._names.name(row.name), self._names.category(row.domain)
        stage = 0 if row.stage is None else self._names.text(row.stage)
        self._names.tell(self._places.sequence(row.process), (name, category, stage))
        event = number(events.TYPE, kind) + number(events.TRACK, track)
        event += number(events.NAME, name) + number(events.CATEGORY, category) + flows
        event += b"" if row.step is None else events.annotation(events.STEP, events.INT, row.step)
        event += events.annotation(events.STAGE, events.INTERNED_TEXT, stage) if stage else b""
        event += events.annotation(events.ERROR, events.BOOL, 1) if row.error else b""
        event += b"" if row.busy_ns is None else events.annotation(events.BUSY, events.INT, row.busy_ns)
        event += b"" if row.attributes is None else events.attributes_tail(row.attributes)
        return self._packet(row, at_ns, event)

    def _packet(self, row: RangeRow, at_ns: int, event: bytes) -> bytes:
        content = number(events.TIMESTAMP, at_ns - self._first_ns) + block(events.TRACK_EVENT, event)
        return events.on_sequence(self._places.sequence(row.process), content, events.NEEDS_STATE)
