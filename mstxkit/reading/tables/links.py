"""`Run.links()`: what the collectives of each group take from when its last member has entered, stage by stage.

Who comes late is no matter here: who enters last waits for nobody, and its time in a collective is what that takes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ..report.units import spans
from ..role_runs import RoleRun, shown_ns

SCHEMA = {
    "role": pl.String, "stage": pl.String, "group": pl.String, "members": pl.Int32, "steps": pl.Int64,
    "took_ns": pl.Int64, "others_ns": pl.Int64, "more_ns": pl.Int64,
}  # fmt: skip


class Link(NamedTuple):
    """A group's collectives in one stage: seconds a step, against those of the other groups of as many members.

    `others_s`: NaN where there are no others.
    """

    piece: int
    members: tuple[int, ...]
    steps: int
    took_s: float
    others_s: float

    @property
    def more_s(self) -> float:
        """Seconds a step that it takes longer."""
        return self.took_s - self.others_s


def table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """`role, stage, group, members, steps, took_ns, others_ns, more_ns`: a step's mean, of the steps with rings.

    `others_ns`: the middle of the other groups of as many members; null where there are none.
    """
    rows = [
        (
            run.role, run.kinds[link.piece].stage,
            spans(rank for rank in (run.members[member].rank for member in link.members) if rank is not None),
            len(link.members), link.steps, *map(shown_ns, (link.took_s, link.others_s, link.more_s)),
        )
        for run in runs for link in of_role(run)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("more_ns", descending=True, nulls_last=True)


def of_role(run: RoleRun) -> list[Link]:
    """Every group of a role in every stage, as far as rings tell when collectives were over."""
    took: dict[tuple[int, tuple[int, ...]], list[float]] = {}
    for _, piece, members, seconds in run.links:
        took.setdefault((piece, members), []).append(seconds)
    means = {key: float(np.mean(seconds)) for key, seconds in took.items()}
    links = []
    for (piece, members), mean_s in means.items():
        others = [
            other_s for (where, who), other_s in means.items()
            if where == piece and who != members and len(who) == len(members)
        ]  # fmt: skip
        others_s = float(np.median(others)) if others else float("nan")
        links.append(Link(piece, members, len(took[piece, members]), mean_s, others_s))
    return links
