"""Traces of torch.profiler (Kineto), plain or packed by gzip.

Kernels compute, but for those of collectives. A trace without any device is one of a CPU: there operators of torch's
own libraries compute. Copies and fills count as neither. What else ran on the host may be a range of the run's:
mstxkit's own are in such a trace, with its domain in front, and not to be told from an operator by their kind.

Source: torch 2.13.0, `libkineto/src/output_json.cpp` (`ts` in microseconds after `baseTimeNanoseconds`, since 2.4;
before that since 1970; `distributedInfo`), `torch/csrc/distributed/c10d/ParamCommsUtils.hpp` (names of arguments).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

from ...store.values import small_number, table_of
from . import Importer
from ._json_stream import read_into
from ._lanes import COLLECTIVE, times_of
from ._trace import LATEST_NS, NAME_CHARACTERS, NAMES_AT_MOST, CoveredTime, DeviceTrace, NamedColumn, text

_KERNEL, _OPERATOR, _ANNOTATION = "kernel", "cpu_op", "user_annotation"
_OPERATORS = re.compile(r"(aten|prims|quantized|mkldnn|onednn|fbgemm|torchvision)::")
_GROUP, _GROUP_SIZE = "Process Group Name", "Group size"
_STEP = "ProfilerStep#"


def _is_trace(path: Path, head: bytes) -> bool:
    is_object = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    is_kineto = is_object and (b'"traceEvents"' in head or b'"deviceProperties"' in head)
    return path.name.endswith((".pt.trace.json", ".pt.trace.json.gz")) or is_kineto


def read(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace. FormatError: nothing in it could be read."""
    reading = _TraceReading(DeviceTrace(str(path), IMPORTER.what))
    read_into(reading.trace, reading.take, advance, {"traceEvents": 2, "distributedInfo": 2})
    return [reading.finished()]


class _Busy:
    """What a device, or the CPU, was busy with."""

    def __init__(self) -> None:
        self.computing, self.communicating, self.operations = CoveredTime(), CoveredTime(), NamedColumn()


class _TraceReading:
    """Takes event after event."""

    def __init__(self, trace: DeviceTrace) -> None:
        self.trace, self._base_ns = trace, 0
        self._device, self._cpu, self._ranges = _Busy(), _Busy(), NamedColumn()
        self._is_collective: dict[str, bool] = {}

    def take(self, first: str, key: str, value: Any) -> None:
        if first == "traceEvents":
            self._take_event(value)
        else:
            self._learn(key, value)

    def _learn(self, key: str, value: Any) -> None:
        """What stands beside the events. The base of all times comes before them."""
        if key == "baseTimeNanoseconds" and isinstance(value, int) and 0 <= value < LATEST_NS:
            if self.trace.events:
                self.trace.notes.append("its base time comes after its events: those before it are as of 1970")
            self._base_ns = value
        elif key == "rank":
            self.trace.rank = small_number(value)
        elif key == "host_name":
            self.trace.host = text(value)

    def _take_event(self, event: Any) -> None:
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        kind, name = event.get("cat"), event.get("name")
        if kind not in (_KERNEL, _OPERATOR, _ANNOTATION) or not isinstance(name, str):
            return
        times = times_of(event, self._base_ns)
        if times is None:
            return
        self.trace.events += 1
        is_collective = self._of_collective(name)
        if kind == _KERNEL:
            self._note(self._device, event, is_collective, times)
        elif is_collective or (kind == _OPERATOR and _OPERATORS.match(name)):
            self._note(self._cpu, event, is_collective, times)
        elif not name.startswith(_STEP):
            self._ranges.add(name, *times)
            if self.trace.pid is None:
                self.trace.pid = small_number(event.get("pid"))

    def _of_collective(self, name: str) -> bool:
        is_one = self._is_collective.get(name)
        if is_one is None:
            is_one = bool(COLLECTIVE.search(name[:200]))
            if len(self._is_collective) < NAMES_AT_MOST:
                self._is_collective[name] = is_one
        return is_one

    def _note(self, busy: _Busy, event: Any, is_collective: bool, times: tuple[int, int]) -> None:
        (busy.communicating if is_collective else busy.computing).add(*times)
        arguments = table_of(event.get("args")) if is_collective else {}
        group = arguments.get(_GROUP)
        if isinstance(group, str) and group:
            busy.operations.add(group, *times)
            size = small_number(arguments.get(_GROUP_SIZE))
            if size and len(self.trace.group_sizes) < NAMES_AT_MOST:
                self.trace.group_sizes[group[:NAME_CHARACTERS]] = size

    def finished(self) -> DeviceTrace:
        trace, busy = self.trace, self._device
        if not busy.computing.all().starts.size and not busy.communicating.all().starts.size:
            busy = self._cpu
            trace.notes.append("it has no kernels: operators on the CPU count as computing")
        trace.computing, trace.communicating = busy.computing.all(), busy.communicating.all()
        trace.operations, trace.ranges = busy.operations.all(), self._ranges.all()
        return trace


IMPORTER = Importer("torch trace", _is_trace, read)
