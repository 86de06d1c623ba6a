"""Perfetto's own trace format, protobuf: what https://ui.perfetto.dev opens, a tenth of the size of Chrome's JSON.

Each process is a process, called by its label; its threads are in it, tasks below their thread. A track holds ranges
that nest. What does not (coroutines and generators that others ran beside, ranges that ended out of order, coalesced
calls) has lines of its own in its process. From a controller's wait go flows to its workers. `tokens`, sizes of
buffers and versions of weights are counters too; ranges of one sample each are shown once more, one by one.

Times are ns from the first range on; the trace says when that was. Source of the format: `_track_events.py`.
"""

from __future__ import annotations

from typing import IO, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from ..frames import NAMED
from ..rows import IS_MARK, IS_OPEN, Need
from ..run import Run
from . import BYTES, Exporter, _extras, _survey
from . import _track_events as events
from ._even import EvenLanes, rows_of, runs_of
from ._lanes import LaneEvents
from ._nesting import Columns
from ._packets import Packets, TraceNames, snapshot
from ._places import Places
from ._slices import Slices, rows_backwards
from .chrome import trace_pids

_NEED = Need(names=(_survey.COALESCED, *_extras.ATTRIBUTES))


def write(run: Run, file: IO[bytes]) -> int:
    """Write `run` to `file`; the number of its ranges and marks.

    *Cost*: reads the run twice, a third time where ranges do not nest; about 1.3 microseconds a range that nests, ten a
    range of a lane that has some that do not.
    """
    trace, count = _Trace(run, file), 0
    for some in trace.in_turn(run.processes().height):
        for piece in run.files.coded(_NEED, only=some):
            if piece.height:
                count += piece.height
                trace.draw(piece)
        trace.finish()
    trace.flush()
    return count


class _Trace:
    def __init__(self, run: Run, file: IO[bytes]) -> None:
        self._survey = survey = _survey.of_run(run)
        self._uneven = np.array(sorted(survey.uneven), dtype=np.int64)
        self._vocabulary, processes = run.files.vocabulary, run.processes()
        self._packets = Packets(file)
        self._packets.add(snapshot(survey.first_ns))
        names = TraceNames(self._packets)
        self._places = Places(self._packets, processes, run.tracks(), trace_pids(processes))
        for process in range(processes.height):
            names.begin(self._places.sequence(process))
        self._even = EvenLanes(self._packets, names, self._places, run.files.vocabulary, survey.first_ns)
        self._one_by_one = LaneEvents(names, self._places, survey.first_ns, survey.flows, run.files.vocabulary)
        self._slices = Slices(self._one_by_one, survey.suspended)

    def in_turn(self, processes: int) -> list[frozenset[int] | None]:
        """Controllers, then the others: of a wait and a worker that begin at one instant, a viewer takes the first in
        the file for where the flow begins.
        """
        controllers = self._survey.flows.controllers
        return [controllers, frozenset(range(processes)) - controllers] if controllers else [None]

    def draw(self, piece: pl.DataFrame) -> None:
        """The next rows, backwards."""
        columns = _survey.columns_of(piece)
        is_even = piece[NAMED + _survey.COALESCED].is_null().to_numpy()
        if len(self._uneven):
            is_even = is_even & ~np.isin(columns["lane"], self._uneven)
        for packets in _extras.counters(piece, self._places, self._survey.first_ns):
            self._packets.add(packets)
        for packets in _extras.samples(piece, self._vocabulary, self._places, self._one_by_one):
            self._packets.add(packets)
        first_process = int(piece["process"][0])
        if not is_even.all():
            uneven = (rows_backwards(piece.filter(~is_even), self._vocabulary, kind) for kind in (0, IS_MARK))
            for packets in self._slices.take(*uneven):
                self._packets.add(packets)
            piece, columns = piece.filter(is_even), {name: values[is_even] for name, values in columns.items()}
        if piece.height:
            self._draw_even(piece, columns, first_process)

    def finish(self) -> None:
        """What is left when there are no more of some processes."""
        for packets in self._slices.finish():
            self._packets.add(packets)
        self._even.finish()

    def flush(self) -> None:
        """Write the last packets."""
        self._packets.flush()

    def _draw_even(self, piece: pl.DataFrame, columns: Columns, first_process: int) -> None:
        rows = {**rows_of(piece, columns), "tail": self._tails(piece)}
        if piece["flags"][0] & IS_OPEN:
            self._even.wait(rows)
        else:
            self._even.take(rows, first_process)

    def _tails(self, piece: pl.DataFrame) -> npt.NDArray[np.int64]:
        """Attributes and flows."""
        texts, flows, tails = piece["attributes"], self._survey.flows, np.zeros(piece.height, dtype=np.int64)
        endings: dict[int, bytes] = {}
        for place, text in zip(np.flatnonzero(texts.is_not_null().to_numpy()).tolist(), texts.drop_nulls().to_list()):
            endings[place] = events.attributes_tail(text)
        for place, tail in self._flow_tails(piece) if flows.controllers else ():
            endings[place] = endings.get(place, b"") + tail
        for place, ending in endings.items():
            tails[place] = self._even.tail(ending)
        return tails

    def _flow_tails(self, piece: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
        """Where flows begin or end, with them."""
        process, start, stage, site = (piece[name].to_numpy() for name in ("process", "start_ns", "stage", "site"))
        own = np.flatnonzero(np.array([site.is_stage for site in self._vocabulary.sites])[site])
        for first, last in runs_of(process[own]):
            places = own[first:last]
            for place, tail in self._survey.flows.tails(int(process[places[0]]), start[places], stage[places]):
                yield int(places[place]), tail


EXPORTER = Exporter(".pftrace", write, form=BYTES, readings=2)
