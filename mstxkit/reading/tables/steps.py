"""`Run.steps()`: how long each step of each role took, how much of it was waiting, and who held it up; `Run.ranks()`:
what a step's time of each rank goes to, work of its own and waiting for others.
"""

from __future__ import annotations

from collections import Counter
from typing import Iterable

import numpy as np
import polars as pl

from ...triggers.late_rank import middle_of
from ..frames import make_schema
from ..processes import Process
from ..role_runs import RoleRun, shown_ns
from . import bubbles

SCHEMA = make_schema("step role ranks start_ns end_ns duration_ns wait_ns wait_ratio gate_rank gate_stage gate_more_ns")
RANK_SCHEMA = make_schema(
    "role rank host steps work_ns gap_ns wait_ns wait_ratio excess_ratio excess_stage gated_steps"
)


def table(runs: tuple[RoleRun, ...], origin_ns: int = 0, processes: Iterable[Process] = ()) -> pl.DataFrame:
    """A row a step and role. `duration_ns`: since the step before ended for the last rank; of the first, since a
    process said it. `wait_ns`: what a rank waits for others in it, in collectives too where they tell, as the mean of
    the ranks, `wait_ratio` that over the step. The gate is whoever made the others wait most, in the stage in which it
    was late, by `gate_more_ns`.
    """
    said_s = {(of.name, first[0]): (first[1] - origin_ns) / 1e9 for of in processes if (first := of.first_step)}
    rows = []
    for run in runs:
        ended, lengths = run.spans_s()[1], run.lengths_s.copy()
        begun = (said_s.get((peer.process, int(run.steps[0])), np.inf) for peer in run.members)
        lengths[0] = max(lengths[0], ended[0] - min(begun))
        waits = np.nansum(run.wait_s, axis=2) + run.inside_wait_s.sum(axis=2)
        held = bubbles.held_up(run)
        gates = zip(held.member.tolist(), held.piece.tolist(), held.more_s.tolist())
        for at, (step, (gate, piece, more_s)) in enumerate(zip(run.steps.tolist(), gates)):
            there = np.isfinite(run.own_s[at]).any(axis=1)
            wait_s, length_s = float(waits[at, there].mean()), float(lengths[at])
            began, over = ((shown_ns(seconds) or 0) + origin_ns for seconds in (ended[at] - length_s, ended[at]))
            rows.append((
                step, run.role, int(there.sum()), began, over, shown_ns(length_s), shown_ns(wait_s),
                wait_s / length_s if length_s > 0 else None, None if gate < 0 else run.members[gate].rank,
                None if piece < 0 else run.stage(piece), shown_ns(more_s),
            ))  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("step", "role", maintain_order=True)


def rank_table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """Means of a step, of each rank.

    Time in stages, between them, and waiting for others (which is in neither). `excess_ratio`: by how
    much it takes longer than the others for the same work in the stage in which that costs most (`excess_stage`), in
    the middle of all steps. `gated_steps`: in so many steps it came last to where the others waited most.
    """
    rows = []
    for run in runs:
        gaps, inside = run.is_gap, run.inside_wait_s
        own, waits = np.nan_to_num(run.own_s) - inside, np.nan_to_num(run.wait_s) + inside
        here = np.asarray(np.isfinite(run.own_s).any(axis=2))
        steps = here.sum(axis=0)
        parts = (own[:, :, ~gaps], own[:, :, gaps], waits)
        work, gap, wait = (values.sum(axis=(0, 2)) / np.maximum(1, steps) for values in parts)
        with np.errstate(all="ignore"):
            off = middle_of(run.longer())
            costs = np.nan_to_num(np.where(gaps & run.is_free, 0.0, off)) * np.nan_to_num(middle_of(run.own_s))
        most, gated = costs.argmax(axis=1), Counter(bubbles.held_up(run).member.tolist())
        for member, peer in enumerate(run.members):
            piece, times = int(most[member]), (work[member], gap[member], wait[member])
            excess = float(off[member, piece])
            rows.append((
                run.role, peer.rank, peer.host, int(steps[member]), *map(shown_ns, times),
                wait[member] / sum(times) if sum(times) > 0 else None, excess if np.isfinite(excess) else None,
                run.stage(piece), gated[member],
            ))  # fmt: skip
    return pl.DataFrame(rows, schema=RANK_SCHEMA, orient="row")
