"""`communication.json` of torch_npu, MindSpore and msprof: each collective, and bounds of its transfer and its waiting.

It tells how long, not when within the collective, and of one plane of links only: others may move data while that one
waits or idles. So waiting is at least "Wait Time(ms)", of which "Synchronization Time(ms)" is a part, but for what the
other planes can have moved meanwhile; "Idle Time(ms)" is neither. Transfer is at least "Transit Time(ms)". Times of
links add up over planes: no transfer is longer than all of them. Nothing in it tells of kernels, so nobody can say from
it alone when a device was free.

Source: msprof-analyze 26.2.0 `prof_common/constant.py`, torch_npu 2.13.0 `prof_view/_communication_parser.py`:
`{step: {"collective" or "p2p": {"<name>@<group>": {"Communication Time Info": {...}, "Communication Bandwidth Info":
{"<link>": {...}}}}}}`. `Elapse Time(ms)` is transit, waiting and idling together; link SDMA is HCCS, PCIE and SIO.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Mapping

import numpy as np

from ...errors import FormatError
from ...store.values import table_of
from . import Importer, _bounds
from ._json_stream import MS, US, read_into, whole_ns
from ._trace import LATEST_NS, LONGEST_NS, BoundedCollectives, CoveredTime, DeviceTrace, NamedStretches

_TIMES, _START, _LINKS = "Communication Time Info", "Start Timestamp(us)", "Communication Bandwidth Info"
_LENGTHS = [f"{what} Time(ms)" for what in ("Elapse", "Transit", "Wait", "Synchronization")]
_ELAPSED, _TRANSIT = _LENGTHS[:2]
_TOTAL = "Total Op Info"


def read_traces(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace. FormatError: nothing in it could be read."""
    trace = DeviceTrace(str(path), IMPORTER.what)
    rows: list[tuple[int, ...]] = []
    groups: list[str | None] = []

    def take(_: str, name: str, values: list[Any]) -> None:
        for fields in values if name != _TOTAL else ():
            trace.events += 1
            row = _collective_of(table_of(fields))
            if row is None:
                trace.lose("collectives have no usable time and are left out", count=1)
                continue
            rows.append(row)
            groups.append(name.rpartition("@")[2] if _bounds.needs_all(name) else None)

    read_into(trace, take, advance, {}, default=3)
    if not rows:
        raise FormatError("holds no collective with its times")
    starts, ends, *limits = np.array(rows, dtype=np.int64).T
    trace.communicating = CoveredTime(starts, ends).told()
    trace.operations = NamedStretches.of(groups, np.arange(len(groups)), starts, ends)
    trace.bounds = BoundedCollectives.of(starts, ends, *limits)
    return [trace]


def _collective_of(fields: Mapping[str, Any]) -> tuple[int, ...] | None:
    """A row of `BoundedCollectives`, ns; None where it has no usable time."""
    times = table_of(fields.get(_TIMES))
    start = whole_ns(times.get(_START), US)
    lengths = [whole_ns(times.get(key, None if key == _ELAPSED else 0), MS) for key in _LENGTHS]
    if start is None or any(length is None or not 0 <= length < LONGEST_NS for length in lengths):
        return None
    elapsed, transit, *waits = (min(length or 0, lengths[0] or 0) for length in lengths)
    moved = {link: whole_ns(table_of(of).get(_TRANSIT), MS) or 0 for link, of in table_of(fields.get(_LINKS)).items()}
    wait, on_host = max(waits), moved.pop("SDMA", 0)
    links = max(sum(moved.values()), on_host + moved.get("RDMA", 0))  # 0: none says how long it moved data
    moved_most = max(min(elapsed, links) if links else elapsed - wait, transit)
    waited_least = min(max(wait - (moved_most - transit), 0), elapsed - transit)
    if not 0 < start < LATEST_NS:
        return None
    return start, start + elapsed, transit, moved_most, waited_least, elapsed - transit


IMPORTER = Importer(
    "communication.json",
    lambda path, head: path.name == "communication.json" or (head.lstrip()[:1] == b"{" and _TIMES.encode() in head),
    read_traces, preference=4,
)  # fmt: skip
