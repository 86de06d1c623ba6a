"""Perfetto's own trace format, protobuf: what https://ui.perfetto.dev opens, a tenth of the size of Chrome's JSON.

Each process is a process, called by its label; its threads are in it, tasks below their thread. A track holds ranges
that nest. What does not (coroutines and generators that others ran beside, ranges that ended out of order, coalesced
calls) has lines of its own in its process. From a controller's wait go flows to its workers. `tokens`, sizes of
buffers and versions of weights are counters too; ranges of one sample each are shown once more, one by one.

Times are ns from the first range on; the trace says when that was. Source of the format: `_track_events.py`.
"""

from __future__ import annotations

from itertools import chain
from typing import IO, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from ... import stages
from ..frames import NAMED
from ..lines import Line
from ..rows import IS_MARK, IS_OPEN, Need
from ..run import Run
from ..vocabulary import Vocabulary
from . import BYTES, Exporter, _places, _survey
from . import _track_events as events
from ._even import EvenLanes, rows_of, runs_of
from ._nesting import TRACK_BITS
from ._packets import CATEGORIES, NAMES, TEXTS, Packets, TraceNames, encode_snapshot
from ._places import Places
from ._protobuf import encode_block, encode_number
from ._slices import BEGIN, END, MARK, RangeRow, Slices, rows_backwards
from ._survey import Flows
from .chrome import trace_pids

# What a counter is called, its unit, and the attributes that it is made of.
COUNTERS = {
    "tokens": ("tokens", ("tokens",)),
    "buffer": ("items", ("buffer", "buffer_size", "queue", "queue_size")),
    "weight version": ("version", ("weight_version", "policy_version", "model_version", "param_version")),
}
# Attributes that say of which sample a range of generation is.
SAMPLES = ("sample", "sample_id", "sample_index", "request_id")
ATTRIBUTES = (*(name for _, names in COUNTERS.values() for name in names), *SAMPLES)
_GENERATE = "actor_generate"
_TYPES = {BEGIN: events.BEGIN, END: events.END, MARK: events.INSTANT}
_NEED = Need(names=(_survey.COALESCED, *ATTRIBUTES))


def write_trace(run: Run, file: IO[bytes]) -> int:
    """Write `run` to `file`; the number of its ranges and marks.

    *Cost*: reads the run twice, a third time where ranges do not nest; about 1.3 microseconds a range that nests, ten a
    range of a lane that has some that do not.
    """
    trace, count = _Trace(run, file), 0
    # Controllers first: of a wait and a worker that begin at one instant, a viewer begins the flow at the first.
    controllers = trace.controllers
    others = frozenset(range(len(run.files.processes))) - controllers
    for some in [controllers, others] if controllers else [None]:
        for piece in run.files.coded(_NEED, only=some):
            if piece.height:
                count += piece.height
                trace.draw(piece)
        trace.finish()
    trace.packets.flush()
    return count


class _Trace:
    def __init__(self, run: Run, file: IO[bytes]) -> None:
        self._survey = survey = _survey.of_run(run)
        self.controllers = survey.flows.controllers
        self._uneven = np.array(sorted(survey.uneven), dtype=np.int64)
        self._vocabulary, processes = run.files.vocabulary, run.processes()
        self.packets = Packets(file)
        self.packets.add(encode_snapshot(survey.first_ns))
        names = TraceNames(self.packets)
        self._places = Places(self.packets, processes, run.tracks(), trace_pids(processes))
        for process in range(processes.height):
            names.begin(self._places.sequence(process))
        self._even = EvenLanes(self.packets, names, self._places, run.files.vocabulary, survey.first_ns)
        self._one_by_one = LaneEvents(names, self._places, survey.first_ns, survey.flows, run.files.vocabulary)
        self._slices = Slices(self._one_by_one.draw, survey.suspended, has_whole=False)

    def draw(self, piece: pl.DataFrame) -> None:
        """The next rows, backwards."""
        columns = _survey.columns_of(piece)
        is_even = piece[NAMED + _survey.COALESCED].is_null().to_numpy()
        if len(self._uneven):
            is_even = is_even & ~np.isin(columns["lane"], self._uneven)
        made = chain(
            encode_counters(piece, self._places, self._survey.first_ns),
            encode_samples(piece, self._vocabulary, self._places, self._one_by_one),
        )
        first_process = int(piece["process"][0])
        if not is_even.all():
            uneven = (rows_backwards(piece.filter(~is_even), self._vocabulary, kind) for kind in (0, IS_MARK))
            made = chain(made, self._slices.take(*uneven))
            piece, columns = piece.filter(is_even), {name: values[is_even] for name, values in columns.items()}
        for packets in made:
            self.packets.add(packets)
        if piece.height:
            self._even.take({**rows_of(piece, columns), "tail": self._write_tails(piece)}, first_process)

    def finish(self) -> None:
        """What is left when there are no more of some processes."""
        for packets in self._slices.finish():
            self.packets.add(packets)
        self._even.finish()

    def _write_tails(self, piece: pl.DataFrame) -> npt.NDArray[np.int64]:
        """Attributes and flows."""
        texts, flows, tails = piece["attributes"], self._survey.flows, np.zeros(piece.height, dtype=np.int64)
        endings: dict[int, bytes] = {}
        for place, text in zip(np.flatnonzero(texts.is_not_null().to_numpy()).tolist(), texts.drop_nulls().to_list()):
            endings[place] = events.attributes_tail(text)
        if self.controllers:
            process, start, stage, site = (piece[name].to_numpy() for name in ("process", "start_ns", "stage", "site"))
            own = np.flatnonzero(np.array([site.is_stage for site in self._vocabulary.sites])[site])
            for first, last in runs_of(process[own]):
                places = own[first:last]
                for place, tail in flows.tails(int(process[places[0]]), start[places], stage[places]):
                    endings[int(places[place])] = endings.get(int(places[place]), b"") + tail
        for place, ending in endings.items():
            tails[place] = self._even.tail(ending)
        return tails


class LaneEvents:
    """Makes packets of single events, of lanes that do not nest and beside them; as `_slices.Slices` asks for them."""

    def __init__(self, names: TraceNames, places: Places, first_ns: int, flows: Flows, vocabulary: Vocabulary) -> None:
        self._names, self._places, self._first_ns = names, places, first_ns
        self._flows, self._vocabulary = flows, vocabulary

    def draw(self, what: str, row: RangeRow, line: Line) -> bytes:
        """An event of a lane, or of a line beside it."""
        flows = b""
        if what == BEGIN and row.stage is not None and self._vocabulary.has_stage_of_its_own(row.name, row.domain):
            stage = np.array([self._vocabulary.stage_code(row.stage)])
            flows = b"".join(tail for _, tail in self._flows.tails(row.process, np.array([row.start_ns]), stage))
        lane, places = row.process << TRACK_BITS | row.track, self._places
        track = places.of_line(row, line.number) if line.number else places.of_lane(lane)
        return self.draw_on(track, what, row, flows)

    def draw_on(self, track: int, what: str, row: RangeRow, flows: bytes = b"") -> bytes:
        """An event of this track."""
        at_ns, sequence = row.start_ns, self._places.sequence(row.process)
        event = encode_number(events.TYPE, _TYPES[what]) + encode_number(events.TRACK, track)
        if what == END:
            assert row.duration_ns is not None
            at_ns += max(row.duration_ns, 0)
        else:
            name, category = self._names.number(NAMES, row.name), self._names.number(CATEGORIES, row.domain)
            stage = 0 if row.stage is None else self._names.number(TEXTS, row.stage)
            self._names.tell(sequence, (name, category, stage))
            event += encode_number(events.NAME, name) + encode_number(events.CATEGORY, category) + flows
            event += b"" if row.step is None else events.encode_annotation(events.STEP, events.INT, row.step)
            event += events.encode_annotation(events.STAGE, events.INTERNED_TEXT, stage) if stage else b""
            event += events.encode_annotation(events.ERROR, events.BOOL, 1) if row.error else b""
            event += b"" if row.busy_ns is None else events.encode_annotation(events.BUSY, events.INT, row.busy_ns)
            event += b"" if row.attributes is None else events.attributes_tail(row.attributes)
        content = encode_number(events.TIMESTAMP, at_ns - self._first_ns) + encode_block(events.TRACK_EVENT, event)
        return events.on_sequence(sequence, content, events.NEEDS_STATE)


EXPORTER = Exporter(".pftrace", write_trace, form=BYTES, readings=2)


def encode_counters(piece: pl.DataFrame, places: Places, first_ns: int) -> Iterator[bytes]:
    """Values of counters, of compact rows: a range's when it ended."""
    for name, (unit, attributes) in COUNTERS.items():
        for attribute in (NAMED + attribute for attribute in attributes):
            if not piece[attribute].dtype.is_numeric():
                continue
            rows = piece.filter(pl.col(attribute).is_not_null() & (pl.col("flags") & IS_OPEN == 0))
            if not rows.height:
                continue
            process = rows["process"].to_numpy().astype(np.int64)
            different, place = np.unique(process, return_inverse=True)
            tracks = np.array([places.track_below(each, name, unit=unit) for each in different.tolist()])[place]
            at = rows["start_ns"].to_numpy() + np.maximum(rows["duration_ns"].to_numpy(), 0) - first_ns
            values = rows[attribute].cast(pl.Float64).to_numpy()
            yield events.encode_counters(values, at=at, track=tracks, sequence=process + places.sequence(0))


def encode_samples(piece: pl.DataFrame, vocabulary: Vocabulary, places: Places, lanes: LaneEvents) -> Iterator[bytes]:
    """Ranges of generation that say of which sample they are, called by it."""
    sample = pl.coalesce(pl.col(NAMED + name).cast(pl.String) for name in SAMPLES)
    codes = [code for code, key in enumerate(vocabulary.stages) if key and stages.canonical_key(key) == _GENERATE]
    is_generation = pl.col("stage").is_in(pl.Series(codes, dtype=pl.UInt32).implode())
    is_range = pl.col("flags") & (IS_OPEN | IS_MARK) == 0
    shown = piece.with_columns(shown=sample).filter(pl.col("shown").is_not_null() & is_generation & is_range)
    for row, name in zip(rows_backwards(shown, vocabulary, 0), shown["shown"].to_list()[::-1]):
        track = places.alone(row, "sample", places.track_below(row.process, _places.SAMPLES, 1 << 20))
        shown_row = row._replace(name=name)
        yield lanes.draw_on(track, BEGIN, shown_row) + lanes.draw_on(track, END, shown_row)
