"""`Run.links()`: what the collectives of each group take from when its last member has entered, stage by stage.

Who comes late is no matter here: who enters last waits for nobody, and its time in a collective is what that takes.
"""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import polars as pl

from ..report.units import spans
from ..role_runs import RoleRun, shown_ns

SCHEMA = {
    "role": pl.String, "stage": pl.String, "group": pl.String, "members": pl.Int32, "steps": pl.Int64,
    "took_ns": pl.Int64, "others_ns": pl.Int64, "more_ns": pl.Int64,
}  # fmt: skip


def table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """`role, stage, group, members, steps, took_ns, others_ns, more_ns`: a step's mean, of the steps with rings.

    `others_ns`: the middle of the other groups of as many members; null where there are none.
    """
    rows = [row for run in runs for row in _of_role(run)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("more_ns", descending=True, nulls_last=True)


def _of_role(run: RoleRun) -> Iterator[tuple[Any, ...]]:
    """Every group of a role in every stage, as far as rings tell when collectives were over."""
    took: dict[tuple[int, tuple[int, ...]], list[float]] = {}
    for _, piece, members, seconds in run.links:
        took.setdefault((piece, members), []).append(seconds)
    means = {key: float(np.mean(seconds)) for key, seconds in took.items()}
    for (piece, members), mean_s in means.items():
        others = [s for (at, who), s in means.items() if at == piece and who != members and len(who) == len(members)]
        others_s = float(np.median(others)) if others else float("nan")
        ranks = (run.members[member].rank for member in members)
        yield (
            run.role, run.kinds[piece].stage, spans(rank for rank in ranks if rank is not None), len(members),
            len(took[piece, members]), *map(shown_ns, (mean_s, others_s, mean_s - others_s)),
        )  # fmt: skip
