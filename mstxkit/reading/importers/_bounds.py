"""Transfer and waiting of collectives whose tasks nobody recorded: of each, how long both took at least and at most.

What a file says of a collective as a whole bounds them; so does a comparison of ranks. Nobody leaves a collective in
which everybody's result needs everybody's data before the last one has come, and all leave it at about the same time.
So who is in it for longer than another one has waited at least for the difference, and no transfer took longer than the
shortest stay. Who stays the shortest waits for nobody to *come*; it may well wait inside, for its own host or others'.
Durations alone are compared; no clock is needed, and ranks that are not there only make the bounds wider.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from ...judging.device_lateness import needs_all
from ..intervals import Intervals, join_stretches, sum_by_place
from ._trace import BoundedCollectives, DeviceTrace, Times

__all__ = ["bound_inside", "compare_traces", "needs_all"]


def compare_traces(traces: Sequence[DeviceTrace]) -> None:
    """Set `bounds` of the traces whose files tell neither tasks nor bounds, as far as others were in their collectives.

    The k-th collective of a group in one rank is the k-th in the others. Where counts differ, a window was another one:
    that group is left out.
    """
    members: dict[str, list[tuple[DeviceTrace, Times, Times]]] = {}
    for trace in {id(trace): trace for trace in traces if trace.rank is not None}.values():
        for code, name in enumerate(trace.operations.names):
            members.setdefault(f"{trace.source}\0{name}", []).append((trace, *trace.operations.called(code)))
    shortest: dict[int, list[tuple[Times, Times, Times]]] = {}
    for same in members.values():
        ranks = {trace.rank for trace, _, _ in same}
        if 1 < len(ranks) == len(same) and len({len(starts) for _, starts, _ in same}) == 1:
            least = np.minimum.reduce([ends - starts for _, starts, ends in same])
            for trace, starts, ends in same:
                shortest.setdefault(id(trace), []).append((starts, ends, least))
    for trace in traces:
        if id(trace) in shortest and trace.transfer is None and trace.bounds is None:
            trace.bounds = _by_shortest(trace, shortest[id(trace)])
            trace.notes.append("transfer and waiting are bounded by comparing ranks: nothing in its file tells them")


def _by_shortest(trace: DeviceTrace, parts: list[tuple[Times, Times, Times]]) -> BoundedCollectives:
    """The collectives that were compared, and of the others that nothing is known."""
    starts, ends, least = (np.concatenate([part[at] for part in parts]) for at in range(3))
    whole = trace.communicating or Intervals(starts[:0], ends[:0])
    rest = whole.without(join_stretches(starts, ends)) if len(whole.starts) else whole
    starts, ends = np.concatenate((starts, rest.starts)), np.concatenate((ends, rest.ends))
    least = np.concatenate((least, rest.ends - rest.starts))
    length = ends - starts
    return BoundedCollectives.of(starts, ends, np.zeros_like(length), least, length - least, length)


def bound_inside(bounded: BoundedCollectives, apart: Intervals, starts: Times, ends: Times) -> list[Times]:
    """Transfer at least, at most, waiting at least, at most, ns, in each of these stretches, where nothing computes.

    A file says how long, and not when: what of a collective lies outside, or under a kernel, may have been all of its
    transfer or nothing of it. Collectives that overlap wait and move at once: at most what they do together, and at
    least what those do that overlap with none before them.
    """
    first = np.searchsorted(np.maximum.accumulate(bounded.ends), starts, side="right")
    counts = np.maximum(np.searchsorted(bounded.starts, ends, side="left") - first, 0)
    which = np.repeat(np.arange(len(starts)), counts)
    place = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    begins, stops = np.maximum(bounded.starts[place], starts[which]), np.minimum(bounded.ends[place], ends[which])
    there = np.maximum(apart.inside(begins, np.maximum(begins, stops)), 0)
    hidden, is_alone = (bounded.ends - bounded.starts)[place] - there, bounded.is_alone[place]
    at_most, columns = apart.inside(starts, ends), []
    for least, most in ((bounded.moved_least, bounded.moved_most), (bounded.waited_least, bounded.waited_most)):
        sure = np.maximum(least[place] - hidden, 0) * is_alone
        columns.append(sum_by_place(sure, which, len(starts)))
        columns.append(np.minimum(sum_by_place(np.minimum(most[place], there), which, len(starts)), at_most))
    return columns
