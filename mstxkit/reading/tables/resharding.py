"""`Run.resharding()`: what a step pays between stages: for weights that change place, and for a controller's calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from ...stages import canonical_key
from ..frames import make_schema
from ..role_runs import RoleRun, shown_ns

WEIGHTS, DISPATCH = "weights", "dispatch"
STAGES = ("weight_sync", "sleep", "wake_up")
SCHEMA = make_schema("step role kind stage ranks cost_ns last_ns step_ratio")


def table(runs: tuple[RoleRun, ...], waits: pl.DataFrame) -> pl.DataFrame:
    """By step, of two kinds.

    - `weights`: stages in which weights change place or engines go to sleep and wake up: time of its own of the rank
      in the middle (`cost_ns`) and of the one that takes longest (`last_ns`), without waiting.
    - `dispatch`: what a controller waited for a stage while none of its workers was at it: before they began, between
      and after they ended; of `Run.waits()`.
    """
    lengths = {int(step): s for run in runs for step, s in zip(run.steps, run.lengths_s) if np.isfinite(s) and s > 0}
    rows: list[tuple[Any, ...]] = []
    for run in runs:
        lengths_s = run.lengths_s
        for stage, pieces in run.stages().items():
            for step, length, own in zip(run.steps.tolist(), lengths_s, run.own_of(pieces)):
                own = own[np.isfinite(own)]
                if len(own) and canonical_key(stage) in STAGES:
                    middle, last = float(np.median(own)), float(own.max())
                    ratio = last / length if length > 0 else None
                    rows.append((step, run.role, WEIGHTS, stage, len(own), shown_ns(middle), shown_ns(last), ratio))
    for wait in waits.iter_rows(named=True):
        cost_ns, step = wait["unaccounted_ns"], wait["step"]
        ratio = cost_ns / 1e9 / lengths[step] if step in lengths else None
        rows.append((step, wait["role"], DISPATCH, str(wait["stage"]), None, cost_ns, cost_ns, ratio))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("step", "role", "kind", "stage", nulls_last=True)
