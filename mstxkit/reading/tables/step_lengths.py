"""`Run.steps()`: how long each step of each role took, how much of it was waiting, and who held it up."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping

import numpy as np
import polars as pl

from ..processes import Process
from ..role_runs import RoleRun, shown_ns
from . import bubbles

SCHEMA = {
    "step": pl.Int64, "role": pl.String, "ranks": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64,
    "duration_ns": pl.Int64, "wait_ns": pl.Int64, "wait_ratio": pl.Float64, "gate_rank": pl.Int32,
    "gate_stage": pl.String, "gate_more_ns": pl.Int64,
}  # fmt: skip


def table(runs: tuple[RoleRun, ...], origin_ns: int = 0, processes: Iterable[Process] = ()) -> pl.DataFrame:
    """`step, role, ranks, start_ns, end_ns, duration_ns, wait_ns, wait_ratio, gate_rank, gate_stage, gate_more_ns`.

    `duration_ns`: since the step before ended for the last rank; of the first, since a process said it. `wait_ns`: what
    a rank waits for others in it, as the mean of the ranks, `wait_ratio` that over the step. The gate is whoever made
    the others wait most, in the stage in which it was late, by `gate_more_ns`.
    """
    said_s = {(of.name, first[0]): (first[1] - origin_ns) / 1e9 for of in processes if (first := of.first_step)}
    rows = [row for run in runs for row in _of_role(run, origin_ns, said_s)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("step", "role", maintain_order=True)


def _of_role(run: RoleRun, origin_ns: int, said_s: Mapping[tuple[str, int], float]) -> Iterator[tuple[Any, ...]]:
    ended, lengths = run.spans_s()[1], run.length_s().copy()
    begun = (said_s.get((peer.process, int(run.steps[0])), np.inf) for peer in run.members)
    lengths[0] = max(lengths[0], ended[0] - min(begun))
    waits = np.nansum(run.wait_s, axis=2)
    held = bubbles.held_up(run)
    gates = zip(held.member.tolist(), held.piece.tolist(), held.more_s.tolist())
    for at, (step, (gate, piece, more_s)) in enumerate(zip(run.steps.tolist(), gates)):
        there = np.isfinite(run.own_s[at]).any(axis=1)
        wait_s, length_s = float(waits[at, there].mean()), float(lengths[at])
        yield (
            step, run.role, int(there.sum()), (shown_ns(ended[at] - length_s) or 0) + origin_ns,
            (shown_ns(ended[at]) or 0) + origin_ns, shown_ns(length_s), shown_ns(wait_s),
            wait_s / length_s if length_s > 0 else None,
            None if gate < 0 else run.members[gate].rank, None if piece < 0 else run.stage(piece), shown_ns(more_s),
        )  # fmt: skip
