"""Transfer apart from waiting where a file has whole collectives only: by comparing ranks.

A collective is over for all its ranks at about the same time, so who waits least in it, waits for nobody: what it takes
is taken to be the transfer, of all of them. Durations alone are compared; no clock is needed. All ranks of a group must
be there: else all may have waited for one that is not.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from ..intervals import Intervals, union
from ._trace import DeviceTrace, Times

_RANKS_AT_LEAST = 2


def compare(traces: Sequence[DeviceTrace], ranks_of_run: frozenset[int]) -> None:
    """Set `transfer` and `waiting` of the traces that do not tell them themselves, as far as all others are there.

    The k-th collective of a group in one rank is the k-th in the others. Where counts differ, a window was another one:
    that group is left out, and so are its collectives.

    Args:
        traces: With their ranks.
        ranks_of_run: Where all of them are there, so are all of any group whose size nobody tells.
    """
    all_there = ranks_of_run <= {trace.rank for trace in traces}
    members: dict[str, list[tuple[DeviceTrace, Times, Times]]] = {}
    for trace in {id(trace): trace for trace in traces if trace.rank is not None}.values():
        for code, name in enumerate(trace.operations.names):
            members.setdefault(f"{trace.source}\0{name}", []).append((trace, *trace.operations.of(code)))
    parts: dict[int, list[tuple[Times, Times, Times]]] = {}
    for key, same in members.items():
        ranks = {trace.rank for trace, _, _ in same}
        if len(ranks) < _RANKS_AT_LEAST or len(ranks) < len(same) or len({len(starts) for _, starts, _ in same}) > 1:
            continue
        if not _is_whole(key.partition("\0")[2], [trace for trace, _, _ in same], all_there):
            continue
        shortest = np.minimum.reduce([ends - starts for _, starts, ends in same])
        for trace, starts, ends in same:
            parts.setdefault(id(trace), []).append((starts, ends - shortest, ends))
    for trace in traces:
        if id(trace) in parts and trace.transfer is None:
            trace.waiting, trace.transfer = _apart(parts[id(trace)])
            trace.notes.append("transfer is told from waiting by comparing ranks")


def _is_whole(group: str, members: Sequence[DeviceTrace], all_there: bool) -> bool:
    """Are all ranks of a group there? Where not, it is noted, once."""
    size = max((trace.group_sizes.get(group, 0) for trace in members), default=0)
    if (size and len(members) >= size) or (not size and all_there):
        return True
    of = f" of {size}" if size else ""
    note = f"transfer is not told from waiting: {len(members)}{of} ranks of a group are there, and all are needed"
    for trace in members:
        if trace.transfer is None and note not in trace.notes:
            trace.notes.append(note)
    return False


def _apart(parts: list[tuple[Times, Times, Times]]) -> tuple[Intervals, Intervals]:
    starts, turns, ends = (np.concatenate([part[at] for part in parts]) for at in range(3))
    return union(starts, turns), union(turns, ends)
