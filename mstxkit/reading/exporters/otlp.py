"""OTLP as JSON lines: each line a request that any collector's file receiver takes, each range a span, a mark one too.

A span's trace is the step of its role, as of the spans that a job sends while it runs; a range in no step has that of
its process. Its parent is the range around it, where that is of the same trace and the ranges of the track nest. A span
of a range that is open ends where it began, and says `mstxkit.open`.

Source: opentelemetry-proto 1.45.2; OTLP 1.x "JSON Protobuf Encoding"; the collector's `otlpjsonfilereceiver`.
"""

from __future__ import annotations

import json
from typing import IO, Any, Iterator

import numpy as np
import polars as pl

from ...store.records import NO_STEP
from .. import otlp_spans
from ..otlp_spans import JobSpan
from ..rows import IS_ERROR, IS_MARK, IS_OPEN, Need
from ..run import Run
from . import Exporter
from ._even import rows_of
from ._nesting import NONE, TRACK_BITS, Columns, Postorder, find_contradicting, next_shallower
from ._survey import columns_of

_SPANS_A_LINE = 500
# Columns of `Run.processes()` that say of whom spans are.
_OWN = ("rank", "role", "part", "process")


def write_spans(run: Run, file: IO[str]) -> int:
    """Write `run` to `file`; the number of spans. *Cost*: about 25 microseconds a span."""
    spans, count = _RunSpans(run), 0
    for piece in run.files.coded(Need()):
        for process, made in spans.take(piece):
            count += len(made)
            for first in range(0, len(made), _SPANS_A_LINE):
                request = otlp_spans.as_json(made[first : first + _SPANS_A_LINE], spans.resources[process])
                file.write(json.dumps(request) + "\n")
    return count


class _RunSpans:
    """Spans of a run's rows, backwards, each once its parent is known; `resources` of each process."""

    def __init__(self, run: Run) -> None:
        self._run, self._nesting = run, Postorder()
        self._processes = run.processes().to_dicts()
        of_run = otlp_spans.resource_of(run.path, run.id)
        named = {"host.name": "host", "process.pid": "pid", **{f"mstxkit.{name}": name for name in _OWN}}
        self.resources = [{**of_run, **{name: row[key] for name, key in named.items()}} for row in self._processes]

    def take(self, piece: pl.DataFrame) -> Iterator[tuple[int, list[JobSpan]]]:
        """Spans of a process at a time."""
        if not piece.height:
            return
        rows = {**rows_of(piece, columns_of(piece)), "attributes": piece["attributes"].to_numpy()}
        if rows["flags"][0] & IS_OPEN:
            yield from self._make_spans(rows, np.full(len(rows["lane"]), NONE), np.arange(len(rows["lane"])))
        taken = self._nesting.take(rows, int(piece["process"][0]))
        if taken is not None:
            around = next_shallower(taken.columns["lane"], taken.columns["depth"])
            around[np.isin(taken.columns["lane"], find_contradicting(taken))] = NONE
            yield from self._make_spans(taken.columns, around, np.flatnonzero(taken.is_new))

    def _make_spans(self, rows: Columns, around: Any, places: Any) -> Iterator[tuple[int, list[JobSpan]]]:
        by_process: dict[int, list[JobSpan]] = {}
        for place in places.tolist():
            parent, trace = int(around[place]), self._trace_of(rows, place)
            site = self._run.files.vocabulary.sites[int(rows["site"][place])]
            flags, start_ns = int(rows["flags"][place]), int(rows["start"][place])
            end_ns = start_ns if flags & IS_OPEN else int(rows["end"][place])
            has_parent = parent != NONE and self._trace_of(rows, parent) == trace
            own, above = self._id_of(rows, place), self._id_of(rows, parent) if has_parent else b""
            attributes = self._list_attributes(rows, place, site.domain, flags)
            span = JobSpan(site.name, trace, own, start_ns, end_ns, attributes, above)
            by_process.setdefault(int(rows["lane"][place]) >> TRACK_BITS, []).append(span)
        yield from by_process.items()

    def _trace_of(self, rows: Columns, place: int) -> bytes:
        process, step = self._processes[int(rows["lane"][place]) >> TRACK_BITS], int(rows["step"][place])
        if step == NO_STEP:
            return otlp_spans.trace_id(self._run.id, process["process"])
        return otlp_spans.trace_id(self._run.id, process["role"] or "", step)

    def _id_of(self, rows: Columns, place: int) -> bytes:
        lane, name = int(rows["lane"][place]), self._run.files.vocabulary.sites[int(rows["site"][place])].name
        process = self._processes[lane >> TRACK_BITS]["process"]
        about = (lane & (1 << TRACK_BITS) - 1, int(rows["depth"][place]), int(rows["start"][place]))
        return otlp_spans.span_id(self._run.id, process, *about, name)

    def _list_attributes(self, rows: Columns, place: int, domain: str, flags: int) -> dict[str, Any]:
        step, busy, text = int(rows["step"][place]), int(rows["busy"][place]), rows["attributes"][place]
        own = json.loads(text) if text else {}
        about = {
            "mstxkit.step": None if step == NO_STEP else step,
            "mstxkit.stage": self._run.files.vocabulary.stages[int(rows["stage"][place])],
            "mstxkit.domain": domain, "mstxkit.track": int(rows["lane"][place]) & (1 << TRACK_BITS) - 1,
            "mstxkit.busy_ns": None if busy < 0 else busy, "error": True if flags & IS_ERROR else None,
            "mstxkit.open": True if flags & IS_OPEN else None, "mstxkit.mark": True if flags & IS_MARK else None,
        }  # fmt: skip
        return {**about, **own}


EXPORTER = Exporter(".otlp.jsonl", write_spans)
