"""Transfer apart from waiting where a file has whole collectives only: by comparing ranks.

A collective is over for all its ranks at about the same time, so who waits least in it, waits for nobody: what it takes
is taken to be the transfer, of all of them. Durations alone are compared; no clock is needed.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from ..intervals import Intervals, union
from ._trace import Times, Trace

BY_TASKS, BY_RANKS = "tasks", "ranks"
_RANKS_AT_LEAST = 2


def compare(traces: Sequence[Trace]) -> None:
    """Set `transfer` and `waiting` of the traces that do not tell them themselves, as far as others are there.

    The k-th collective of a group in one rank is the k-th in the others. Where counts differ, a window was another one:
    that group is left out, and so are its collectives.
    """
    members: dict[str, list[tuple[Trace, Times, Times]]] = {}
    for trace in {id(trace): trace for trace in traces if trace.rank is not None}.values():
        for code, name in enumerate(trace.operations.names):
            members.setdefault(f"{trace.source}\0{name}", []).append((trace, *trace.operations.of(code)))
    parts: dict[int, list[tuple[Times, Times, Times]]] = {}
    for same in members.values():
        ranks = {trace.rank for trace, _, _ in same}
        if len(ranks) < _RANKS_AT_LEAST or len(ranks) < len(same) or len({len(starts) for _, starts, _ in same}) > 1:
            continue
        shortest = np.minimum.reduce([ends - starts for _, starts, ends in same])
        for trace, starts, ends in same:
            parts.setdefault(id(trace), []).append((starts, ends - shortest, ends))
    for trace in traces:
        if id(trace) in parts and trace.transfer is None:
            trace.waiting, trace.transfer = _apart(parts[id(trace)])
            trace.notes.append("transfer is told from waiting by comparing ranks")


def _apart(parts: list[tuple[Times, Times, Times]]) -> tuple[Intervals, Intervals]:
    starts, turns, ends = (np.concatenate([part[at] for part in parts]) for at in range(3))
    return union(starts, turns), union(turns, ends)
