"""`communication.json` of torch_npu, MindSpore and msprof: each collective, and its parts of transfer and of waiting.

It tells how long, not when within the collective: the waiting is taken to come first, and the transfer last. What is no
transit is waiting: its own figures for waiting and idling are means over the links, of which often one waits and the
others have nothing to do until it is done. Nothing in it tells of kernels, so nobody can say from it alone when a
device was free.

Source: msprof-analyze 26.2.0 `prof_common/constant.py`, torch_npu 2.13.0 `prof_view/_communication_parser.py`:
`{step: {"collective" or "p2p": {"<name>@<group>": {"Communication Time Info": {...}}}}}`; `Elapse Time(ms)` is transit,
waiting and idling together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

from ...errors import FormatError
from . import Importer
from ._json_stream import ns_of_ms, ns_of_us, read_into
from ._trace import CoveredTime, DeviceTrace, NamedColumn

_TIMES, _START = "Communication Time Info", "Start Timestamp(us)"
_ELAPSED, _TRANSIT = "Elapse Time(ms)", "Transit Time(ms)"
_TOTAL = "Total Op Info"


def _is_communication(path: Path, head: bytes) -> bool:
    return path.name == "communication.json" or (head.lstrip().startswith(b"{") and _TIMES.encode() in head)


def read(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace. FormatError: nothing in it could be read."""
    trace, column = DeviceTrace(str(path), IMPORTER.what), NamedColumn()
    communicating, transfer, waiting = CoveredTime(), CoveredTime(), CoveredTime()

    def take(_: str, name: str, fields: Any) -> None:
        times = _times_of(fields) if name != _TOTAL else None
        if times is None:
            return
        start, elapsed, transit = times
        trace.events += 1
        communicating.add(start, start + elapsed)
        waiting.add(start, start + elapsed - transit)
        transfer.add(start + elapsed - transit, start + elapsed)
        column.add(name.rpartition("@")[2], start, start + elapsed)

    read_into(trace, take, advance, {}, default=3)
    if not trace.events:
        raise FormatError("holds no collective with its times")
    trace.communicating, trace.transfer, trace.waiting = communicating.all(), transfer.all(), waiting.all()
    trace.operations = column.all()
    return [trace]


def _times_of(fields: Any) -> tuple[int, int, int] | None:
    """Begin, and lengths of all and of the transfer, ns; None for what is no collective."""
    times = fields.get(_TIMES) if isinstance(fields, dict) else None
    if not isinstance(times, dict):
        return None
    start = ns_of_us(times.get(_START))
    elapsed, transit = (ns_of_ms(times.get(key, 0)) for key in (_ELAPSED, _TRANSIT))
    if start is None or elapsed is None or transit is None or min(elapsed, transit) < 0:
        return None
    return start, elapsed, min(transit, elapsed)


IMPORTER = Importer("communication.json", _is_communication, read, preference=4)
