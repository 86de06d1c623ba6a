"""Who came last by device ranges, in words: of the newest steps that were profiled, and which of them to parse."""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple

from ..tables import device_entries
from ..tables.device_entries import DeviceRow, ProfiledWindow

# The newest of them.
_SHOWN = 3


class ByDevice(NamedTuple):
    """What one profiled step says.

    Args:
        request: Of which request; "": light capture.
        is_parsed: False: `mstxkit profiles --analyse` has not parsed it for two ranks yet; nothing else is known then.
        group: Whose collective it was; "": nobody is to be blamed.
        rank: Who came last to it, by more than the bound; None: nobody did.
        late_ns, error_ns: By how much after the first, and the bound of that.
    """

    request: str
    stage: str
    step: int | None
    is_parsed: bool
    group: str = ""
    rank: int | None = None
    late_ns: int = 0
    error_ns: int = 0


def summarise(run: str | os.PathLike[str], run_id: str) -> list[ByDevice]:
    """Of the newest windows, the oldest first; [] where nothing was profiled. *Cost*: reads their databases."""
    windows = device_entries.windows(run, run_id)
    newest = [window for window in windows if window.is_parsed or window.is_of_npu][-_SHOWN:]  # a CPU has no devices
    rows = device_entries.rows_of([window for window in newest if window.is_parsed])
    return [_told(window, [row for row in rows if row.window == window]) for window in newest]


def _told(window: ProfiledWindow, rows: list[DeviceRow]) -> ByDevice:
    about = ByDevice(window.request, window.stage, window.step, window.is_parsed)
    late = [row for row in rows if row.late_ns > row.error_ns]
    if not late:
        return about
    last = max(late, key=lambda row: row.late_ns - row.error_ns)
    return about._replace(group=last.group, rank=last.rank, late_ns=last.late_ns, error_ns=last.error_ns)


def line(latest: Mapping[str, Any], run: str) -> str:
    """One of them, as `ByDevice._asdict` has it. Names in it come from files that anybody wrote: escape it."""
    of_step = "several steps" if latest["step"] is None else f"step {latest['step']}"
    where = f"by device ranges of {of_step} in {latest['stage']}"
    if not latest["is_parsed"]:
        return f"{where}: not known yet; `mstxkit profiles {run} --analyse` parses that profile"
    if latest["rank"] is None:
        return f"{where}: no rank came later than the others by more than the bound"
    late, error = latest["late_ns"] / 1e6, latest["error_ns"] / 1e6
    who = f"rank {latest['rank']} came last of ranks {latest['group']}"
    return f"{where}: {who}, {late:.1f} ms after the first (to {error:.1f} ms)"
