"""`trace_view.json` of torch_npu and MindSpore, and `msprof_*.json`: the timeline as text.

What is said by its process "Overlap Analysis" counts, which msprof made of all tasks: Computing, and Communication.
Without it, tasks of "Ascend Hardware" compute, and what "HCCL" or "Communication" has on the lanes of its groups are
collectives. On the lanes of their planes are the tasks that move data, and those that wait.

Source: torch_npu 2.13.0 `prof_view/_trace_view_parser.py`, msprof 9ba1ac7be `json_constant.h` (`ts` is a text of
microseconds since 1970 with three digits more), mindspore 2.10.0 `ascend_timeline_viewer.py`.
"""

from __future__ import annotations

import re
from operator import itemgetter
from pathlib import Path
from typing import Any, Callable

import numpy as np
import numpy.typing as npt

from ...store.values import table_of
from . import Importer, _bounds
from ._json_stream import read_into
from ._lanes import EventTable, LaneTimes, key_of
from ._trace import NAME_CHARACTERS, NAMES_AT_MOST, CoveredTime, DeviceTrace, NamedStretches

_NAME = re.compile(r"trace_view\.json(\.gz)?|msprof(_slice)?_\d+.*\.json")
_CPU = "CPU OP"  # MindSpore's, where it has no NPU
_OVERLAP, _HARDWARE, _COLLECTIVES = "Overlap Analysis", "Ascend Hardware", ("HCCL", "Communication")
_COMPUTING, _COMMUNICATING = re.compile(r"^Computing$"), re.compile(r"^Communication$")
_NO_KERNEL = re.compile(r"wait|notify|event_|memcpy|memset|hcom|hccl|record|profiler|mstx|capture", re.IGNORECASE)
_OPERATION, _GROUP = re.compile(r"^hcom_|^hccl", re.IGNORECASE), re.compile(r"__(\d+)_")
_WAITS, _SIGNALS = re.compile(r"wait", re.IGNORECASE), re.compile(r"notify|record", re.IGNORECASE)
_MOVES = re.compile(r"memcpy|sdma|rdma|reduce_inline|send|write|read", re.IGNORECASE)
_RANGE, _COMMUNICATION_DOMAIN = "start/end", "communication"
_Place = tuple["str | int", "str | int"]
_KEYS = ("pid", "tid", "name", "ts", "dur")
_FIELDS = itemgetter(*_KEYS)


def is_named_so(path: Path) -> bool:
    """Is it such a file by its name? Then its events may stand in an object too, as in other tools' traces."""
    return bool(_NAME.fullmatch(path.name))


def _fields_of(event: dict[str, Any]) -> Any:
    """As `_FIELDS`, of an event that has not all of them."""
    return tuple(map(event.get, _KEYS))


def read_traces(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace. FormatError: nothing in it could be read."""
    reading = _ViewReading(DeviceTrace(str(path), IMPORTER.what))
    read_into(reading.trace, reading.take, advance, {"traceEvents": 2})
    return [reading.finished()]


class _ViewReading:
    """Takes event after event, and sorts them once all process names are there."""

    def __init__(self, trace: DeviceTrace) -> None:
        self.trace = trace
        self._processes: dict[str | int, str] = {}
        self._threads: dict[_Place, str] = {}
        self._events, self._ranges = EventTable(), EventTable()

    def take(self, first: str, _: str, events: list[Any]) -> None:
        if first not in ("", "traceEvents"):
            return
        add, count = self._events.add, 0
        for event in events:
            kind = event.get("ph") if isinstance(event, dict) else None
            if kind == "X":
                count += 1
                arguments = event.get("args")
                if isinstance(arguments, dict) and arguments.get("event_type") == _RANGE:
                    if arguments.get("domain") != _COMMUNICATION_DOMAIN:
                        self._ranges.add(_fields_of(event))
                    continue
                try:
                    add(_FIELDS(event))
                except KeyError:
                    add(_fields_of(event))
            elif kind == "M":
                self._learn_name(event)
        self.trace.events += count
        self._events.fold()
        self._ranges.fold()

    def _learn_name(self, event: dict[str, Any]) -> None:
        pid, tid, name = key_of(event.get("pid")), key_of(event.get("tid")), table_of(event.get("args")).get("name")
        if not isinstance(name, str):
            return
        if event.get("name") == "process_name" and len(self._processes) < NAMES_AT_MOST:
            self._processes[pid] = name[:NAME_CHARACTERS]
        elif event.get("name") == "thread_name" and len(self._threads) < NAMES_AT_MOST:
            self._threads[pid, tid] = name[:NAME_CHARACTERS]

    def finished(self) -> DeviceTrace:
        trace, processes = self.trace, {*self._processes.values()}
        events, ranges = self._events.all(), self._ranges.all()
        trace.ranges = ranges.called(self._ranges.names.all())
        unusable = self._events.unusable + self._ranges.unusable
        trace.lose("events have no usable time and are left out", count=unusable)
        if _OVERLAP in processes:
            trace.computing = self._lanes_of(events, (_OVERLAP,), _COMPUTING).told()
            trace.communicating = self._lanes_of(events, (_OVERLAP,), _COMMUNICATING).told()
        elif _HARDWARE in processes:
            trace.computing = self._lanes_of(events, (_HARDWARE,), _NO_KERNEL, are_others=True).told()
            trace.communicating = self._lanes_of(events, _COLLECTIVES, _OPERATION).told()
        elif _CPU in processes:
            trace.computing = self._lanes_of(events, (_CPU,), _NO_KERNEL, are_others=True).told()
            trace.communicating = self._lanes_of(events, (_CPU,), _OPERATION).told()
            trace.notes.append("it has no kernels: operators on the CPU count as computing")
        moving = self._lanes_of(events, _COLLECTIVES, _MOVES, _SIGNALS)
        waiting = self._lanes_of(events, _COLLECTIVES, _WAITS)
        if trace.communicating is not None and (moving.count or waiting.count):
            trace.transfer, trace.waiting = moving.told(), waiting.told()
        trace.operations = self._read_operations(events)
        return trace

    def _lanes_on(self, processes: tuple[str, ...], but: str = "") -> npt.NDArray[np.bool_]:
        """For each lane: is it of one of these processes?"""
        chosen = [
            self._processes.get(place[0]) in processes and not (but and self._threads.get(place, "").startswith(but))
            for place in self._events.lanes.all()
        ]
        return np.array(chosen, dtype=bool)

    def _lanes_of(
        self, events: LaneTimes, processes: tuple[str, ...], pattern: re.Pattern[str],
        but: re.Pattern[str] | None = None, are_others: bool = False,
    ) -> CoveredTime:  # fmt: skip
        """LaneTimes on the lanes of these processes whose names match, or do not."""
        chosen = self._events.names.matching(pattern) ^ are_others
        if but is not None:
            chosen &= ~self._events.names.matching(but)
        mine = events.of(self._lanes_on(processes)[events.lanes] & chosen[events.names])
        return CoveredTime(mine.starts, mine.ends)

    def _read_operations(self, events: LaneTimes) -> NamedStretches:
        """Single collectives; the group is part of their name (`hcom_allReduce__<group>_<number>_…`)."""
        groups = [
            _GROUP.search(name) if name and _OPERATION.search(name) and _bounds.needs_all(name) else None
            for name in self._events.names.all()
        ]
        mine = events.of(self._lanes_on(_COLLECTIVES, but="Plane")[events.lanes])
        return mine.called([group and group[1] for group in groups])


IMPORTER = Importer(
    "trace_view.json",
    lambda path, head: is_named_so(path) or (path.suffix == ".json" and head.lstrip()[:1] == b"[" and b'"ph"' in head),
    read_traces, preference=2,
)  # fmt: skip
