"""`trace_view.json` of torch_npu and MindSpore, and `msprof_*.json`: the timeline as text.

What is said by its process "Overlap Analysis" counts, which msprof made of all tasks: Computing, and Communication.
Without it, tasks of "Ascend Hardware" compute, and what "HCCL" or "Communication" has on the lanes of its groups are
collectives. On the lanes of their planes are the tasks that move data, and those that wait.

Source: torch_npu 2.13.0 `prof_view/_trace_view_parser.py`, msprof 9ba1ac7be `json_constant.h` (`ts` is a text of
microseconds since 1970 with three digits more), mindspore 2.10.0 `ascend_timeline_viewer.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import numpy as np

from . import Importer
from ._json_stream import read_into
from ._lanes import EventNames, Lane, key_of, metadata_of, times_of
from ._trace import NAMES_AT_MOST, CoveredTime, DeviceTrace, NamedColumn

_NAME = re.compile(r"trace_view\.json(\.gz)?|msprof(_slice)?_\d+.*\.json")
_OVERLAP, _HARDWARE, _COLLECTIVES = "Overlap Analysis", "Ascend Hardware", ("HCCL", "Communication")
_COMPUTING, _COMMUNICATING = re.compile(r"^Computing$"), re.compile(r"^Communication$")
_NO_KERNEL = re.compile(r"wait|notify|event_|memcpy|memset|hcom|hccl|record|profiler|mstx|capture", re.IGNORECASE)
_OPERATION, _GROUP = re.compile(r"^hcom_|^hccl", re.IGNORECASE), re.compile(r"__(\d+)_")
_WAITS, _SIGNALS = re.compile(r"wait", re.IGNORECASE), re.compile(r"notify|record", re.IGNORECASE)
_MOVES = re.compile(r"memcpy|sdma|rdma|reduce_inline|send|write|read", re.IGNORECASE)
_RANGE, _COMMUNICATION_DOMAIN = "start/end", "communication"
_Place = tuple["str | int", "str | int"]


def _is_view(path: Path, head: bytes) -> bool:
    is_list = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and b'"ph"' in head
    return bool(_NAME.fullmatch(path.name)) or (path.suffix == ".json" and is_list)


def read(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace. FormatError: nothing in it could be read."""
    reading = _ViewReading(DeviceTrace(str(path), IMPORTER.what))
    read_into(reading.trace, reading.take, advance, {"traceEvents": 2})
    return [reading.finished()]


class _ViewReading:
    """Takes event after event, and sorts them once all process names are there."""

    def __init__(self, trace: DeviceTrace) -> None:
        self.trace = trace
        self._lanes: dict[_Place, Lane] = {}
        self._processes: dict[str | int, str] = {}
        self._threads: dict[_Place, str] = {}
        self._names, self._ranges = EventNames(), NamedColumn()

    def take(self, first: str, _: str, event: Any) -> None:
        if first not in ("", "traceEvents") or not isinstance(event, dict):
            return
        if event.get("ph") == "M":
            self._learn(event)
            return
        if event.get("ph") != "X":
            return
        times = times_of(event)
        if times is None:
            return
        self.trace.events += 1
        arguments = event.get("args")
        if isinstance(arguments, dict) and arguments.get("event_type") == _RANGE:
            if arguments.get("domain") != _COMMUNICATION_DOMAIN and isinstance(event.get("name"), str):
                self._ranges.add(event["name"], *times)
            return
        place = key_of(event.get("pid")), key_of(event.get("tid"))
        lane = self._lanes.get(place)
        if lane is None:
            if len(self._lanes) >= NAMES_AT_MOST:
                return
            lane = self._lanes[place] = Lane()
        lane.add(*times, self._names.code(event.get("name")))

    def _learn(self, event: dict[str, Any]) -> None:
        pid, tid = key_of(event.get("pid")), key_of(event.get("tid"))
        for what, name in metadata_of(event):
            if what == "process_name" and len(self._processes) < NAMES_AT_MOST:
                self._processes[pid] = name
            elif what == "thread_name" and len(self._threads) < NAMES_AT_MOST:
                self._threads[pid, tid] = name

    def finished(self) -> DeviceTrace:
        trace, has_overlap = self.trace, _OVERLAP in self._processes.values()
        trace.ranges = self._ranges.all()
        if has_overlap:
            trace.computing = self._of((_OVERLAP,), _COMPUTING).all()
            trace.communicating = self._of((_OVERLAP,), _COMMUNICATING).all()
        elif _HARDWARE in self._processes.values():
            trace.computing = self._of((_HARDWARE,), _NO_KERNEL, are_others=True).all()
            trace.communicating = self._of(_COLLECTIVES, _OPERATION).all()
        moving, waiting = self._of(_COLLECTIVES, _MOVES, _SIGNALS), self._of(_COLLECTIVES, _WAITS)
        if trace.communicating is not None and (moving.count or waiting.count):
            trace.transfer, trace.waiting = moving.all(), waiting.all()
        trace.operations = self._operations().all()
        return trace

    def _of(
        self, processes: tuple[str, ...], pattern: re.Pattern[str], but: re.Pattern[str] | None = None,
        are_others: bool = False,
    ) -> CoveredTime:  # fmt: skip
        """Events on the lanes of these processes whose names match, or do not."""
        chosen = self._names.matching(pattern) ^ are_others
        if but is not None:
            chosen &= ~self._names.matching(but)
        stretches = CoveredTime()
        for (pid, _), lane in self._lanes.items():
            if self._processes.get(pid) in processes:
                starts, ends, codes = lane.times()
                stretches.extend(starts[chosen[codes]], ends[chosen[codes]])
        return stretches

    def _operations(self) -> NamedColumn:
        """Single collectives; the group is part of their name (`hcom_allReduce__<group>_<number>_…`)."""
        groups = [_GROUP.search(name) if _OPERATION.search(name) else None for name in self._names.all()]
        is_of_group = np.array([group is not None for group in groups], dtype=bool)
        column = NamedColumn()
        for (pid, tid), lane in self._lanes.items():
            if self._processes.get(pid) in _COLLECTIVES and not self._threads.get((pid, tid), "").startswith("Plane"):
                starts, ends, codes = lane.times()
                mine = is_of_group[codes]
                for start, end, code in zip(starts[mine].tolist(), ends[mine].tolist(), codes[mine].tolist()):
                    group = groups[code]
                    column.add(group[1] if group else "", start, end)
        return column


IMPORTER = Importer("trace_view.json", _is_view, read, preference=2)
