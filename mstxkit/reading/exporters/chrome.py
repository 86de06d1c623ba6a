"""Chrome trace event JSON, which Perfetto and chrome://tracing open: a process a rank, a thread a track.

Source: "Trace Event Format", Google: X complete, B begin, i instant, b/e nestable async, M metadata; `ts` and `dur`
in microseconds, here with three decimals. Viewers read them as doubles, so they count from the start of the run.

Slices of one thread must nest. Ranges that do not (suspended coroutines and generators, ranges ended out of order)
become async events, with what is inside of them. `id2.local` keeps them in their process: a plain `id` is one for all.
Perfetto (v52) tells async events apart by `cat` too: those that nest have the domain of the outermost as theirs.
"""

from __future__ import annotations

from typing import IO, Iterator

import polars as pl

from .. import labels
from ..report.escape import for_json
from ..rows import IS_MARK, Need
from ..run import Run
from ..suspended import Suspended
from . import Exporter
from ._chrome_events import Events, metadata, trace_tid
from ._slices import Slices, rows_backwards


def write(run: Run, file: IO[str]) -> int:
    """Write `run` to `file`; the number of events, without those that only name processes and threads.

    *Cost*: about seven microseconds an event. Memory does not grow with the run, but for 200 bytes for each generator
    that others ran beside.
    """
    processes = run.processes()
    base_ns = processes["start_ns"].min() or 0
    assert isinstance(base_ns, int)
    about = f'{{"run":{for_json(run.id)},"base_ns":"{base_ns}"}}'
    file.write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n')
    pids, count = trace_pids(processes), 0
    file.write(",\n".join((*_process_events(processes, pids), *_track_events(run.tracks(), pids))))
    for event in _events(run, pids, base_ns):
        file.write(",\n" + event)
        count += 1
    file.write("\n]}\n")
    return count


def trace_pids(processes: pl.DataFrame) -> list[int]:
    """One number a process: its own pid, or a free one where two hosts use the same."""
    pids: dict[int, None] = {}
    numbers = processes["pid"].to_list()
    free = max(numbers, default=0)
    for number in numbers:
        if number in pids:
            free += 1
            number = free
        pids[number] = None
    return list(pids)


def _events(run: Run, pids: list[int], base_ns: int) -> Iterator[str]:
    slices = Slices(Events(pids, base_ns), Suspended.of(run.batches()))
    for piece in run.files.coded(Need()):
        yield from slices.take(*(rows_backwards(piece, run.files.vocabulary, wanted) for wanted in (0, IS_MARK)))
    yield from slices.finish()


def _process_events(processes: pl.DataFrame, pids: list[int]) -> Iterator[str]:
    for order, (pid, process) in enumerate(zip(pids, processes.iter_rows(named=True))):
        where = f"{process['host']}:{process['pid']} {process['state']}"
        yield metadata("process_name", pid, name=process["label"])
        yield metadata("process_labels", pid, labels=where)
        yield metadata("process_sort_index", pid, sort_index=order)


def _track_events(tracks: pl.DataFrame, pids: list[int]) -> Iterator[str]:
    rows = tracks.to_dicts()
    names = labels.of_tracks(rows)
    for order, at in enumerate(labels.order_of_tracks(rows)):
        pid = pids[rows[at]["process"]]
        tid = trace_tid(pid, rows[at]["track"])
        yield metadata("thread_name", pid, tid, name=names[at])
        yield metadata("thread_sort_index", pid, tid, sort_index=order)


EXPORTER = Exporter(".json", write, readings=2)
