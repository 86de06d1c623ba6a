"""`Run.lateness()`: how much later than the first each rank entered what the ranks of a group do together.

From stage entries: of the stages in which the ranks of a role wait for each other. Whether they do is seen in the
times: they leave much closer together than they entered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Iterator

import numpy as np

from ...judging.evidence import STAGE_ENTRY
from ..report.units import spans
from . import role_steps

if TYPE_CHECKING:
    import polars as pl

    from ...judging.evidence import RoleStep, Seconds
    from ..run import Run

# How far apart they leave, of how far apart they entered; 1 and more where nobody waits.
TOGETHER_AT_MOST = 0.5
# Of so many steps at least, in which entries lie farther apart than clocks err and a begin takes to be noted.
STEPS_NEEDED, APART_AT_LEAST_S = 4, 20e-6
_NS = 1e9


def table(run: Run) -> pl.DataFrame:
    """The table, step by step; of those ranks that are read."""
    import polars as pl

    from ..frames import LATENESS_SCHEMA

    steps = role_steps.of_run(run)
    together = synchronising(steps)
    rows = [row for step in steps for row in _rows(step, together)]
    return pl.DataFrame(rows, schema=LATENESS_SCHEMA, orient="row")


def synchronising(steps: Iterable[RoleStep]) -> frozenset[tuple[str, str]]:
    """(role, stage) of the stages in which the members of a role wait for each other, as far as steps show it."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for step in steps:
        for place, stage in enumerate(step.stages):
            ratio = _left_of_entered(step, place)
            if ratio is not None:
                ratios.setdefault((step.role, stage), []).append(ratio)
    enough = {key: seen for key, seen in ratios.items() if len(seen) >= STEPS_NEEDED}
    return frozenset(key for key, seen in enough.items() if np.median(seen) <= TOGETHER_AT_MOST)


def _left_of_entered(step: RoleStep, stage: int) -> float | None:
    """How far apart they left a stage, of how far apart they entered it; None where that cannot be told."""
    entered, left = step.entered_s[:, stage], step.left_s[:, stage]
    there = ~np.isnan(entered) & compared(step)
    if np.count_nonzero(there) < 2:
        return None
    if np.ptp(entered[there]) <= max(APART_AT_LEAST_S, 2 * step.error_s[there].max()):
        return None
    return float(left[there].std() / entered[there].std())


def compared(step: RoleStep) -> Any:
    """Which members are compared with each other: those that do not only wait for others."""
    return np.array([not peer.is_controller for peer in step.members], dtype=bool)


def late_s(step: RoleStep, stage: int) -> Seconds:
    """(M,) how much later than the first of them each member entered a stage; NaN: it did not."""
    entered = np.where(compared(step), step.entered_s[:, stage], np.nan)
    late: Seconds = entered - np.nanmin(entered) if not np.isnan(entered).all() else entered
    return late


def _rows(step: RoleStep, together: frozenset[tuple[str, str]]) -> Iterator[tuple[Any, ...]]:
    for place, stage in enumerate(step.stages):
        if (step.role, stage) not in together:
            continue
        late = late_s(step, place)
        there = [at for at in np.argsort(late, kind="stable") if not np.isnan(late[at])]
        group = spans(peer.rank for peer in (step.members[at] for at in sorted(there)) if peer.rank is not None)
        for at in sorted(there):
            rank, error = step.members[at].rank, step.error_s[at] + step.error_s[there[0]]
            if rank is not None:
                yield step.step, group, rank, stage, round(late[at] * _NS), round(error * _NS), STAGE_ENTRY
