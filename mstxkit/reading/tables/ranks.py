"""`Run.ranks()`: what a step's time of each rank goes to: work of its own, and waiting for others."""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterator

import numpy as np
import polars as pl

from ...triggers.late_rank import middle_of
from ..role_runs import RoleRun, shown_ns
from . import bubbles

SCHEMA = {
    "role": pl.String, "rank": pl.Int32, "host": pl.String, "steps": pl.Int64, "work_ns": pl.Int64,
    "gap_ns": pl.Int64, "wait_ns": pl.Int64, "wait_ratio": pl.Float64, "excess_ratio": pl.Float64,
    "excess_stage": pl.String, "gated_steps": pl.Int64,
}  # fmt: skip


def table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """Means of a step, of each rank.

    Time in stages, between them, and waiting for others (which is in neither). `excess_ratio`: by how
    much it takes longer than the others for the same work in the stage in which that costs most (`excess_stage`), in
    the middle of all steps. `gated_steps`: in so many steps it came last to where the others waited most.
    """
    rows = [row for run in runs for row in _of_role(run)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _of_role(run: RoleRun) -> Iterator[tuple[Any, ...]]:
    gaps = np.array([run.is_gap(piece) for piece in range(len(run.kinds))])
    own, waits = np.nan_to_num(run.own_s), np.nan_to_num(run.wait_s)
    here = np.asarray(np.isfinite(run.own_s).any(axis=2))
    steps = np.maximum(1, here.sum(axis=0))
    work, gap, wait = (values.sum(axis=(0, 2)) / steps for values in (own[:, :, ~gaps], own[:, :, gaps], waits))
    with np.errstate(all="ignore"):
        off = middle_of(run.longer())
        costs = np.nan_to_num(np.where(gaps & run.is_free, 0.0, off)) * np.nan_to_num(middle_of(run.own_s))
    most, gated = costs.argmax(axis=1), Counter(bubbles.held_up(run).member.tolist())
    for member, peer in enumerate(run.members):
        piece, total = int(most[member]), work[member] + gap[member] + wait[member]
        yield (
            run.role, peer.rank, peer.host, int(here[:, member].sum()), shown_ns(work[member]), shown_ns(gap[member]),
            shown_ns(wait[member]), wait[member] / total if total > 0 else None,
            float(off[member, piece]) if np.isfinite(off[member, piece]) else None, run.stage(piece),
            gated[member],
        )  # fmt: skip
