"""What Nsight Systems recorded, exported to SQLite: kernels, NCCL's apart, and ranges of NVTX; a trace a process.

By the documents only: no real export was read. Its own form, `.nsys-rep`, is refused with the command that exports it.

Source: Nsight Systems, "SQLite Export Schema Reference": times are ns after `utcEpochNs` of the session; ranges have
event types 59 and 60; a process is in bits 24 to 47 of `globalPid` and `globalTid`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from . import Importer
from ._database import Database, distinct_values, is_of_nsys, open_database
from ._lanes import COLLECTIVE
from ._trace import RANGES_AT_MOST, CoveredTime, DeviceTrace, are_usable, clean_text

_KERNELS, _RANGES, _SESSION = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "TARGET_INFO_SESSION_START_TIME"
_TEXTS, _REPORT = "StringIds", ".nsys-rep"


def read_traces(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace a process. FormatError: it is no such export."""
    if path.suffix == _REPORT:
        raise FormatError(f"is nsys' own form: nsys export --type sqlite -o {path.stem}.sqlite {path.name}")
    with open_database(path, advance) as base:
        if not base.column(_KERNELS, "start") and not base.column(_RANGES, "start"):
            raise FormatError("is no export of nsys: it has no kernels and no ranges of NVTX")
        began = [start for start, _ in base.pairs(_SESSION, "utcEpochNs", "utcEpochNs", 1) if type(start) is int]
        host = next((clean_text(value) for name, value in base.pairs("TARGET_INFO_SYSTEM_ENV", "name", "value")
                     if name == "Hostname"), "")  # fmt: skip
        names = [base.column(_KERNELS, *choice) for choice in (("start",), ("end",), ("shortName", "demangledName"))]
        who, (ranges, unknown) = base.column(_KERNELS, "globalPid"), _read_ranges(base)
        kernels = _by_process(base.all_numbers(_KERNELS, *names, who)) if all(names) and who else {}
        traces = []
        for pid in sorted({*kernels, *ranges}):
            trace = DeviceTrace(str(path), IMPORTER.what, host=host, pid=pid)
            _fill_trace(trace, base, kernels.get(pid), ranges.get(pid), sum(began[:1]))
            trace.notes += [] if began else ["it does not say when it began: its times are as of 1970"]
            traces.append(trace)
    if not traces:
        raise FormatError("holds no kernel and no range")
    traces[0].lose("ranges do not say what they are", count=unknown)
    return traces


def _by_process(rows: npt.NDArray[np.int64]) -> dict[int, npt.NDArray[np.int64]]:
    pids = (rows[:, 3] >> 24) & 0xFFFFFF
    return {int(pid): rows[pids == pid] for pid in set(pids.tolist())}


def _read_ranges(base: Database) -> tuple[dict[int, npt.NDArray[np.int64]], int]:
    """Begin, end, name and process of each range, by process; and how many rows do not say what they are."""
    needed = ("start", "end", "textId", "globalTid", "eventType")
    if not all(base.column(_RANGES, name) for name in needed):
        return {}, 0
    rows = base.all_numbers(_RANGES, *needed)
    return _by_process(rows[np.isin(rows[:, 4], (59, 60)), :4][:RANGES_AT_MOST]), int(np.count_nonzero(rows[:, 4] < 0))


def _fill_trace(
    trace: DeviceTrace, base: Database, kernels: npt.NDArray[np.int64] | None, ranges: npt.NDArray[np.int64] | None,
    began_ns: int,
) -> None:  # fmt: skip
    if kernels is not None:
        names = base.texts(distinct_values(kernels[:, 2]), _TEXTS)
        of_collectives = [id for id, name in names.items() if COLLECTIVE.search(name)]
        is_collective = np.isin(kernels[:, 2], of_collectives)
        has_time = (kernels[:, 0] >= 0) & (kernels[:, 1] > 0)  # no kernel is over when the session begins
        starts, ends = np.where(has_time, kernels[:, :2].T + began_ns, -1)
        computing = CoveredTime(starts[~is_collective], ends[~is_collective])
        communicating = CoveredTime(starts[is_collective], ends[is_collective])
        trace.computing, trace.communicating = computing.told(), communicating.told()
        trace.lose("kernels have no usable time and are left out", computing, communicating)
        trace.events += len(kernels)
    if ranges is not None:
        starts, ends = np.where(ranges[:, 0] >= 0, ranges[:, 0] + began_ns, -1), ranges[:, 1] + began_ns
        trace.ranges = base.called(ranges[:, 2], starts, ends, _TEXTS)
        trace.events += len(ranges)
        unusable = int(np.count_nonzero(~are_usable(starts, ends)))
        trace.lose("ranges of the host have no usable time", count=unusable)


IMPORTER = Importer("nsys export", is_of_nsys, read_traces)
