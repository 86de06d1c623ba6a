"""Chrome trace event JSON, which Perfetto and chrome://tracing open: a process a rank, a thread a track.

Source: "Trace Event Format", Google: X complete, B begin, i instant, b/e nestable async, M metadata; `ts` and `dur`
in microseconds, here with three decimals. Viewers read them as doubles, so they count from the start of the run.

Slices of one thread must nest. Ranges that do not (suspended coroutines and generators, ranges ended out of order)
become async events, each on a line of its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Iterator

from .. import labels
from ..report.escape import for_json
from . import Exporter

if TYPE_CHECKING:
    from typing import IO

    import polars as pl

    from ..run import Run

# How many finished siblings of a track are kept to see whether a range overlaps one of them.
_SIBLINGS = 256


def write(run: Run, file: IO[str]) -> int:
    """Write `run` to `file`. *Cost*: about five microseconds a range, in memory of fixed size."""
    processes = run.processes()
    base_ns = processes["start_ns"].min() or 0
    assert isinstance(base_ns, int)
    about = f'{{"run":{for_json(run.id)},"base_ns":"{base_ns}"}}'
    file.write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n')
    count = 0
    for event in _all_events(run, processes, trace_pids(processes), base_ns):
        file.write(event if count == 0 else ",\n" + event)
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


def _all_events(run: Run, processes: pl.DataFrame, pids: list[int], base_ns: int) -> Iterator[str]:
    yield from _process_events(processes, pids)
    yield from _track_events(run.tracks(), pids)
    lanes = Lanes()
    for ranges, marks in run.batches():
        yield from _range_events(ranges, pids, base_ns, lanes)
        yield from _mark_events(marks, pids, base_ns)


class Lanes:
    """Tells which ranges of a track, in the order of their ends, nest with those before; `count`: those that do not."""

    def __init__(self) -> None:
        self._finished: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        self.count = 0

    def nests(self, process: int, track: int, start_ns: int, end_ns: int) -> bool:
        """Does this range hold, or lie apart from, each that ended before it? Remembers it if so."""
        siblings = self._finished.setdefault((process, track), deque(maxlen=_SIBLINGS))
        apart = len(siblings)
        while apart and siblings[apart - 1][0] >= start_ns:
            apart -= 1
        if apart and siblings[apart - 1][1] > start_ns:
            return False
        while len(siblings) > apart:
            siblings.pop()
        siblings.append((start_ns, end_ns))
        return True


def _process_events(processes: pl.DataFrame, pids: list[int]) -> Iterator[str]:
    for order, (pid, process) in enumerate(zip(pids, processes.iter_rows(named=True))):
        where = f"{process['host']}:{process['pid']} {process['state']}"
        yield _metadata("process_name", pid, f'"name":{for_json(process["label"])}')
        yield _metadata("process_labels", pid, f'"labels":{for_json(where)}')
        yield _metadata("process_sort_index", pid, f'"sort_index":{order}')


def _track_events(tracks: pl.DataFrame, pids: list[int]) -> Iterator[str]:
    rows = tracks.to_dicts()
    for track, label in zip(rows, labels.of_tracks(rows)):
        yield _metadata("thread_name", pids[track["process"]], f'"name":{for_json(label)}', track["track"])
        yield _metadata("thread_sort_index", pids[track["process"]], f'"sort_index":{track["track"]}', track["track"])


def _metadata(kind: str, pid: int, arguments: str, tid: int = 0) -> str:
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{{arguments}}}}}'


_RANGE_FIELDS = (
    "process", "track", "domain", "name", "start_ns", "duration_ns", "busy_ns", "step", "stage", "error", "attributes",
)  # fmt: skip


def _range_events(ranges: pl.DataFrame, pids: list[int], base_ns: int, lanes: Lanes) -> Iterator[str]:
    texts = _Texts()
    for row in zip(*(ranges[field].to_list() for field in _RANGE_FIELDS)):
        process, track, domain, name, start_ns, duration_ns, busy_ns, step, stage, error, attributes = row
        head = f'"name":{texts[name]},"cat":{texts[domain]},"pid":{pids[process]},"tid":{track}'
        args = _arguments(texts, step, stage, attributes, error, busy_ns)
        began = _microseconds(start_ns - base_ns)
        if duration_ns is None:
            yield f'{{"ph":"B",{head},"ts":{began},{args}}}'
        elif busy_ns is None and lanes.nests(process, track, start_ns, start_ns + duration_ns):
            yield f'{{"ph":"X",{head},"ts":{began},"dur":{_microseconds(duration_ns)},{args}}}'
        else:
            lanes.count += 1
            ended = _microseconds(start_ns + duration_ns - base_ns)
            yield f'{{"ph":"b","id":{lanes.count},{head},"ts":{began},{args}}}'
            yield f'{{"ph":"e","id":{lanes.count},{head},"ts":{ended}}}'


def _mark_events(marks: pl.DataFrame, pids: list[int], base_ns: int) -> Iterator[str]:
    texts = _Texts()
    fields = ("process", "track", "domain", "message", "time_ns", "step", "stage", "attributes")
    for process, track, domain, message, time_ns, step, stage, attributes in zip(*(marks[f].to_list() for f in fields)):
        head = f'"name":{texts[message]},"cat":{texts[domain]},"pid":{pids[process]},"tid":{track}'
        args = _arguments(texts, step, stage, attributes, False, None)
        yield f'{{"ph":"i","s":"t",{head},"ts":{_microseconds(time_ns - base_ns)},{args}}}'


class _Texts(dict[str, str]):
    """Texts as JSON, each encoded once."""

    def __missing__(self, text: str) -> str:
        return self.setdefault(text, for_json(text))


def _arguments(
    texts: _Texts, step: int | None, stage: str | None, attributes: str | None, error: bool, busy_ns: int | None
) -> str:
    parts = [] if step is None else [f'"step":{step}']
    parts += [] if stage is None else [f'"stage":{texts[stage]}']
    parts += ['"error":true'] if error else []
    parts += [] if busy_ns is None else [f'"busy_us":{_microseconds(busy_ns)}']
    parts += [] if attributes is None else [f'"attributes":{attributes}']
    return '"args":{' + ",".join(parts) + "}"


def _microseconds(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


EXPORTER = Exporter(".json", write)
