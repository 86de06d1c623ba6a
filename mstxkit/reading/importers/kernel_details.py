"""`kernel_details.csv` of torch_npu and MindSpore, `op_summary_*.csv` of msprof: one row a kernel, collectives too.

Source: torch_npu 2.13.0 `prof_view/_kernel_view_parser.py`, mindspore 2.10.0 `ascend_kernel_details_viewer.py`: columns
`Name`, `Accelerator Core`, `Start Time(us)` (since 1970, three digits more, with a tab behind it) and `Duration(us)`.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Callable, Iterator

from ...errors import FormatError
from . import Importer, _bounds
from ._lanes import COLLECTIVE, EventTable, divide_time
from ._trace import EVENTS_AT_MOST, DeviceTrace, with_damage

# Each of torch_npu's tables, then of msprof's.
_START, _LENGTH = ("start time(us)", "task start time(us)"), ("duration(us)", "task duration(us)")
_KERNEL, _CORE = ("name", "op name"), ("accelerator core", "task type")
_COLLECTIVE_CORE, _GROUP = re.compile(r"communication|hccl", re.IGNORECASE), re.compile(r"__(\d+)_")
_CHARACTERS_A_FIELD = 1 << 20
_REPORTED_EVERY = 10_000


def _is_details(path: Path, head: bytes) -> bool:
    names = [name.strip() for name in head.partition(b"\n")[0].decode("utf-8", "replace").lower().split(",")]
    is_one = any(name in names for name in _START) and any(name in names for name in _LENGTH)
    return path.name == "kernel_details.csv" or is_one


def read_traces(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace. FormatError: it has no such columns, or not one row that can be read."""
    trace, rows = DeviceTrace(str(path), IMPORTER.what), EventTable()
    with with_damage(trace):
        for name, core, start, length in _read_rows(path, advance):
            trace.events += 1
            is_collective = bool(_COLLECTIVE_CORE.search(core[:40]) or COLLECTIVE.search(name[:200]))
            group = _GROUP.search(name[:200]) if is_collective and _bounds.needs_all(name) else None
            rows.add((int(is_collective), 0, group and group[1], start, length))
            rows.fold()
            if trace.events >= EVENTS_AT_MOST:
                raise FormatError(f"has more than {EVENTS_AT_MOST} rows: the rest is left out")
    why_lost = "rows have no usable time and are left out"
    divide_time(trace, rows, rows.all(), why_lost, computing=0, communicating=1, operations=1)
    if rows.unusable == trace.events:
        raise FormatError(f"has {trace.events} rows, none of them with a usable time")
    return [trace]


def _read_rows(path: Path, advance: Callable[[float], None]) -> Iterator[tuple[str, str, str, str]]:
    csv.field_size_limit(_CHARACTERS_A_FIELD)
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = csv.reader(line.replace("\0", "") for line in file)  # csv of Python 3.9 and 3.10 takes no NUL
        try:
            header = [name.strip().lower() for name in next(lines, [])]
            choices = (_KERNEL, _CORE, _START, _LENGTH)
            places = [next((header.index(name) for name in names if name in header), -1) for names in choices]
            if min(places[2:]) < 0:
                raise FormatError("has no columns Start Time(us) and Duration(us)")
            for number, row in enumerate(lines):
                name, core, start, length = (row[at] if 0 <= at < len(row) else "" for at in places)
                yield name, core, start.strip(), length.strip()
                if number % _REPORTED_EVERY == _REPORTED_EVERY - 1:
                    advance(_REPORTED_EVERY * sum(map(len, row)))
        except csv.Error as exc:
            raise FormatError(f"line {lines.line_num}: {exc}: the rest is left out") from None


IMPORTER = Importer("kernel_details.csv", _is_details, read_traces, preference=3)
