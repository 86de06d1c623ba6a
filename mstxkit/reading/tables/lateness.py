"""`Run.lateness()`: how much later than the first each rank entered what the ranks of a group do together.

From rings, in the steps in which they were read, and from device ranges, of what was profiled and parsed. Else from
stage entries: of the stages in which the ranks of a role wait for each other. Whether they do is seen in the times:
they leave much closer together than they entered.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np
import polars as pl

from ...judging import lateness as judging_lateness
from ...judging.evidence import DEVICE, STAGE_ENTRY, RoleStep
from ...judging.lateness import COLUMNS as LATENESS
from ...judging.meeting import left_together, taking_part
from ..frames import LATENESS_SCHEMA
from ..report.units import spans
from ..role_runs import Seconds
from ..run_files import RunFiles
from . import device_entries

_NS = 1e9


def table(files: RunFiles, steps: Sequence[RoleStep], ringed: Sequence[RoleStep]) -> pl.DataFrame:
    """The table, step by step, of those ranks that are read; and of which `role`, null of device ranges.

    Args:
        files: Of a run.
        steps: Its steps, as `Roles.steps`.
        ringed: Those of which a ring tells.
    """
    windows = device_entries.windows(files.path, files.id)
    by_device: list[tuple[Any, ...]] = [
        (row.window.step, row.group, row.rank, row.window.stage, row.late_ns, row.error_ns, DEVICE, None)
        for row in device_entries.rows_of(windows)
    ]
    profiled = {(row[0], row[3]) for row in by_device}
    together, has_ring = left_together(steps), {(step.role, step.step) for step in ringed}
    rows = [row for step in steps if (step.role, step.step) not in has_ring for row in _rows(step, together)]
    rows = [row for row in rows if (row[0], row[3]) not in profiled] + by_device
    rows += [row for step in ringed for row in _of_ring(step)]
    table = pl.DataFrame(rows, schema=LATENESS_SCHEMA, orient="row").sort("step", maintain_order=True)
    return files.chosen.of_table(table)


def _of_ring(step: RoleStep) -> Iterator[tuple[Any, ...]]:
    assert step.collectives is not None
    groups, columns = step.collectives.groups, judging_lateness.table(step, step.collectives)
    numbers: set[Any] = set(columns["group"])
    texts = {number: spans(groups.get(number, ())) or str(number) for number in numbers}
    for row in zip(*(columns[name] for name in LATENESS)):
        yield row[0], texts[row[1]], *row[2:], step.role


def late_s(step: RoleStep, stage: int) -> Seconds:
    """(M,) how much later than the first of them each member entered a stage; NaN: it did not."""
    entered = np.where(taking_part(step), step.entered_s[:, stage], np.nan)
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
                late_ns, error_ns = round(late[at] * _NS), round(error * _NS)
                yield step.step, group, rank, stage, late_ns, error_ns, STAGE_ENTRY, step.role
