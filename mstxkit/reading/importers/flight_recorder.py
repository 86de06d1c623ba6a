"""A dump of the flight recorder of torch or torch_npu in JSON: collectives as the host saw them begin and end.

Dumps that torch writes by itself at a timeout are pickles. A pickle can run anything, and is refused.

Source: torch 2.13.0 `csrc/distributed/c10d/FlightRecorderDetail.hpp` (`dump_json`; times are CLOCK_REALTIME, ns),
`torch/distributed/debug/_debug_handlers.py` (`/fr_trace_json`). No variable of the environment makes torch write JSON.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Mapping

from ...errors import FormatError
from ...store.values import small_number, table_of
from . import Importer, _bounds
from ._json_stream import open_file, read_into
from ._lanes import EventTable, divide_time, plain_ns
from ._trace import LATEST_NS, DeviceTrace, clean_text

# Protocols 2 to 5 begin with it; torch writes 2.
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
HOW_TO_JSON = (
    "is a pickle, which can run anything and is not read. Have the recorder write JSON, in each rank: "
    'open(f"fr_{rank}.json", "wb").write(torch._C._distributed_c10d._dump_fr_trace_json(True, False)) '
    "(NCCL: _dump_nccl_trace_json, torch_npu: _dump_hccl_trace_json), or take /fr_trace_json of "
    "torch.distributed.debug"
)
_RANK = re.compile(r"(?:^|[_.\-]|rank)(\d{1,9})(\.json(\.gz)?)?$")


def _is_dump(path: Path, head: bytes) -> bool:
    is_pickle = bool(_PICKLE.match(head)) and not path.name.endswith((".db", ".csv"))
    # A trace of torch.profiler has pg_config too.
    is_object = head.lstrip().startswith(b"{") and b'"traceEvents"' not in head and b'"deviceProperties"' not in head
    return is_pickle or (is_object and (b'"pg_config"' in head or b'"collective_seq_id"' in head))


def read_traces(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace; its rank is what the dump says, else the number at the end of its name.
    Raises FormatError: it is a pickle, or nothing in it could be read.
    """
    trace, table = DeviceTrace(str(path), IMPORTER.what), EventTable(plain_ns)
    with open_file(path) as file:
        if _PICKLE.match(file.read(2)):
            raise FormatError(HOW_TO_JSON)
    unfinished = 0

    def take(first: str, _: str, entries: list[Any]) -> None:
        nonlocal unfinished
        for entry in entries:
            if first == "rank":
                trace.rank = small_number(entry)
            elif first == "host_name":
                trace.host = clean_text(entry)
            elif first == "entries":
                trace.events += 1
                unfinished += not _take_entry(table_of(entry), table)
                table.fold()

    read_into(trace, take, advance, {"entries": 2})
    if trace.rank is None and (match := _RANK.search(path.name)):
        trace.rank = int(match[1])
    if unfinished:
        trace.notes.append(f"{unfinished} of {trace.events} collectives do not say when they were over")
    why_lost = "collectives have no usable time and are left out"
    divide_time(trace, table, table.all(), why_lost, communicating=0, operations=0)
    return [trace]


def _take_entry(entry: Mapping[str, Any], table: EventTable) -> bool:
    """Does it say from when to when it went on?"""
    created, began = _read_time(entry.get("time_created_ns")), _read_time(entry.get("time_discovered_started_ns"))
    over, length_ms = _read_time(entry.get("time_discovered_completed_ns")), entry.get("duration_ms")
    start = began or created
    if not start or not over or over < start:
        return False
    try:  # measured by events of the device, where they were switched on: closer than when a watchdog saw it
        length = int(float(length_ms) * 1e6) if isinstance(length_ms, (str, int)) else 0
    except (ValueError, OverflowError):
        length = 0
    start = max(start, over - length) if length > 0 else start
    group, is_for_all = entry.get("process_group"), _bounds.needs_all(clean_text(entry.get("profiling_name")))
    name = group[0] if isinstance(group, list) and group else entry.get("pg_id")
    table.add((0, 0, str(name)[:80] if is_for_all else None, start, over - start))
    return True


def _read_time(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < LATEST_NS else 0


IMPORTER = Importer("flight recorder", _is_dump, read_traces)
