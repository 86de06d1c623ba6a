"""Traces of torch.profiler (Kineto), plain or packed by gzip.

Kernels compute, but for those of collectives. A trace without any device is one of a CPU: there operators of torch's
own libraries compute. Copies and fills count as neither. What else ran on the host may be a range of the run's:
mstxkit's own are in such a trace, with its domain in front, and not to be told from an operator by their kind.

Source: torch 2.13.0, `libkineto/src/output_json.cpp` (`ts` in microseconds after `baseTimeNanoseconds`, which
2.4 to 2.7 write behind the events; before 2.4 since 1970; `distributedInfo`),
`torch/csrc/distributed/c10d/ParamCommsUtils.hpp` (names of arguments).
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable

import numpy as np

from ...store.values import small_number, table_of
from . import Importer, _bounds, trace_view
from ._json_stream import read_into
from ._lanes import COLLECTIVE, EventTable, divide_time
from ._trace import LATEST_NS, NAMES_AT_MOST, DeviceTrace, clean_text

_KERNEL, _OPERATOR, _ANNOTATION = "kernel", "cpu_op", "user_annotation"
# As of 2021 they begin with a capital; MTIA has one for all that its device does.
_MTIA, _NO_KERNEL = "mtia_ccp_events", re.compile(r"dma|event_")
_CATEGORIES = {
    "kernel": _KERNEL, "Kernel": _KERNEL, _MTIA: _KERNEL, "cpu_op": _OPERATOR, "Operator": _OPERATOR,
    "user_annotation": _ANNOTATION,
}  # fmt: skip
# What an event is; what communicates comes next to what computes.
_KERNELS, _ON_CPU, _RANGE, _NEITHER = 0, 2, 4, 5
_COLLECTIVES = (_KERNELS + 1, _ON_CPU + 1)
_NAMED = (*_COLLECTIVES, _RANGE)
_OPERATORS = re.compile(r"(aten|prims|quantized|mkldnn|onednn|fbgemm|torchvision)::")
_GROUP = "Process Group Name"
_STEP = "ProfilerStep#"


def _is_trace(path: Path, head: bytes) -> bool:
    is_object = head.lstrip().startswith(b"{") and not trace_view.is_named_so(path)
    is_kineto = is_object and (b'"traceEvents"' in head or b'"deviceProperties"' in head)
    return path.name.endswith((".pt.trace.json", ".pt.trace.json.gz")) or is_kineto


def read_traces(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace. FormatError: nothing in it could be read."""
    reading = _TraceReading(DeviceTrace(str(path), IMPORTER.what))
    read_into(reading.trace, reading.take, advance, {"traceEvents": 2, "distributedInfo": 2})
    return [reading.finished()]


class _TraceReading:
    """Takes event after event; all times are relative until the base is known, which may stand behind them."""

    def __init__(self, trace: DeviceTrace) -> None:
        self.trace, self._base_ns = trace, 0
        self._events = EventTable()
        self._kind_of = lru_cache(NAMES_AT_MOST)(_kind_of)

    def take(self, first: str, key: str, values: list[Any]) -> None:
        if first == "traceEvents":
            self._take_events(values)
            return
        for value in values:  # what stands beside the events
            if key == "baseTimeNanoseconds" and isinstance(value, int) and 0 <= value < LATEST_NS:
                self._base_ns = value
            elif key == "rank":
                self.trace.rank = small_number(value)
            elif key == "host_name":
                self.trace.host = clean_text(value)

    def _take_events(self, events: list[Any]) -> None:
        for event in events:
            if not isinstance(event, dict) or event.get("ph") != "X":
                continue
            category, name = event.get("cat"), event.get("name")
            if not isinstance(category, str) or category not in _CATEGORIES or not isinstance(name, str):
                continue
            kind = self._kind_of(category, name)
            if kind == _NEITHER:
                continue
            if kind == _RANGE and self.trace.pid is None:
                self.trace.pid = small_number(event.get("pid"))
            elif kind in _COLLECTIVES:
                name = (table_of(event.get("args")).get(_GROUP) or None) if _bounds.needs_all(name) else None
            self.trace.events += 1
            self._events.add((kind, 0, name if kind in _NAMED else None, event.get("ts"), event.get("dur")))
        self._events.fold()

    def finished(self) -> DeviceTrace:
        trace, events = self.trace, self._events.all(self._base_ns)
        kinds = self._events.kinds_of(events)
        where = _KERNELS if np.isin(kinds, (_KERNELS, _KERNELS + 1)).any() else _ON_CPU
        if where == _ON_CPU:
            trace.notes.append("it has no kernels: operators on the CPU count as computing")
        kind_of = {"computing": where, "communicating": where + 1, "operations": where + 1, "ranges": _RANGE}
        divide_time(trace, self._events, events, "events have no usable time and are left out", **kind_of)
        return trace


def _kind_of(category: str, name: str) -> int:
    is_collective, what = bool(COLLECTIVE.search(name[:200])), _CATEGORIES[category]
    if what == _KERNEL:
        return _NEITHER if category == _MTIA and _NO_KERNEL.match(name) else _KERNELS + is_collective
    if is_collective or (what == _OPERATOR and _OPERATORS.match(name)):
        return _ON_CPU + is_collective
    return _NEITHER if name.startswith(_STEP) else _RANGE


IMPORTER = Importer("torch trace", _is_trace, read_traces)
