"""Chrome trace event JSON, which Perfetto and chrome://tracing open: a process a rank, a thread a track.

Source: "Trace Event Format", Google: X complete, B begin, i instant, b/e nestable async, M metadata; `ts` and `dur`
in microseconds, here with three decimals. Viewers read them as doubles, so they count from the start of the run.

Slices of one thread must nest. Ranges that do not (suspended coroutines and generators, ranges ended out of order)
become async events, with what is inside of them. `id2.local` keeps them in their process: a plain `id` is one for all.
Perfetto (v52) tells async events apart by `cat` too: those that nest have the domain of the outermost as theirs.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, count
from typing import IO, Iterator

import polars as pl

from ...store.records import TRACK_MAX
from .. import labels
from ..lines import Line, Suspended
from ..report.escape import for_json
from ..rows import IS_MARK, Need
from ..run import Run
from . import Exporter
from ._slices import BEGIN, END, MARK, RangeRow, Slices, rows_backwards

# What is drawn on a line beside a track, as a phase of nestable async events.
_BESIDE = {BEGIN: "b", END: "e", MARK: "n"}


def write_trace(run: Run, file: IO[str]) -> int:
    """Write `run` to `file`; the number of events, without those that only name processes and threads.

    *Cost*: about seven microseconds an event. Memory does not grow with the run, but for 200 bytes for each generator
    that others ran beside.
    """
    processes = run.processes()
    base_ns = processes["start_ns"].min() or 0
    assert isinstance(base_ns, int)
    about = f'{{"run":{for_json(run.id)},"base_ns":"{base_ns}"}}'
    file.write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n')
    pids, events = trace_pids(processes), 0
    rows = enumerate(zip(pids, processes.iter_rows(named=True)))
    named = (
        name_process(pid, row["label"], f"{row['host']}:{row['pid']} {row['state']}", at) for at, (pid, row) in rows
    )
    file.write(",\n".join((*named, *_track_events(run.tracks(), pids))))
    slices = Slices(Events(pids, base_ns).draw, Suspended(run.batches()), has_whole=True)
    each = (
        slices.take(*(rows_backwards(piece, run.files.vocabulary, wanted) for wanted in (0, IS_MARK)))
        for piece in run.files.coded(Need())
    )
    for event in chain(chain.from_iterable(each), slices.finish()):
        file.write(",\n" + event)
        events += 1
    file.write("\n]}\n")
    return events


def trace_pids(processes: pl.DataFrame) -> list[int]:
    """One number a process: its own pid, or a free one where two hosts use the same."""
    pids, numbers = dict[int, None](), processes["pid"].to_list()
    free = count(max(numbers, default=0) + 1)
    for number in numbers:
        pids[next(free) if number in pids else number] = None
    return list(pids)


def _track_events(tracks: pl.DataFrame, pids: list[int]) -> Iterator[str]:
    rows = tracks.to_dicts()
    names = labels.of_tracks(rows)
    for order, at in enumerate(labels.order_of_tracks(rows)):
        pid = pids[rows[at]["process"]]
        tid = trace_tid(pid, rows[at]["track"])
        yield name_track("thread_name", pid, tid, name=names[at])
        yield name_track("thread_sort_index", pid, tid, sort_index=order)


class Events:
    """Makes events; times in ns, from the run's first instant `base_ns`; `pids`: by process."""

    def __init__(self, pids: list[int], base_ns: int) -> None:
        self._pids, self._base_ns = pids, base_ns
        self._texts = lru_cache(maxsize=None)(for_json)

    def draw(self, what: str, row: RangeRow, line: Line) -> str:
        """An event of a track, or of a line beside it, where the domain of the first range stands for all."""
        category, pid = line.domain if line.number else row.domain, self._pids[row.process]
        if what == END:
            assert row.duration_ns is not None
            at_ns, arguments = row.start_ns + row.duration_ns, ""
        else:
            at_ns, arguments = row.start_ns, f',"args":{{{",".join(self._list_arguments(row, category))}}}'
        names = f'"name":{self._texts(row.name)},"cat":{self._texts(category)}'
        where = f'"pid":{pid},"tid":{trace_tid(pid, row.track)},"ts":{write_microseconds(at_ns - self._base_ns)}'
        if line.number:
            return f'{{"ph":"{_BESIDE[what]}","id2":{{"local":{line.number}}},{names},{where}{arguments}}}'
        if what == MARK:
            return f'{{"ph":"i","s":"t",{names},{where}{arguments}}}'
        if row.duration_ns is None:
            return f'{{"ph":"B",{names},{where}{arguments}}}'
        return f'{{"ph":"X",{names},{where}{arguments},"dur":{write_microseconds(row.duration_ns)}}}'

    def _list_arguments(self, row: RangeRow, category: str) -> list[str]:
        texts = self._texts
        parts = [] if category == row.domain else [f'"domain":{texts(row.domain)}']
        parts += [] if row.step is None else [f'"step":{row.step}']
        parts += [] if row.stage is None else [f'"stage":{texts(row.stage)}']
        parts += ['"error":true'] if row.error else []
        parts += [] if row.busy_ns is None else [f'"busy_us":{write_microseconds(row.busy_ns)}']
        return parts if row.attributes is None else [*parts, f'"attributes":{row.attributes}']


def trace_tid(pid: int, track: int) -> int:
    """A track's number. The thread with its process's number would be the same as thread 0, the main one."""
    return track if track != pid else track + TRACK_MAX + 1


def name_process(pid: int, name: str, labels: str, order: int) -> str:
    """What a process is called, and its place in the order: three events."""
    named = name_track("process_name", pid, name=name), name_track("process_labels", pid, labels=labels)
    return ",\n".join((*named, name_track("process_sort_index", pid, sort_index=order)))


def name_track(kind: str, pid: int, tid: int = 0, **arguments: str | int) -> str:
    """A name, or a place in the order, of a process or of one of its tracks."""
    members = ",".join(f'"{key}":{for_json(of) if isinstance(of, str) else of}' for key, of in arguments.items())
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{{members}}}}}'


def write_microseconds(ns: int) -> str:
    """`ns` in microseconds, all digits."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


EXPORTER = Exporter(".json", write_trace, readings=2)
