"""`Run.lateness()`: how much later than the first each rank entered what the ranks of a group do together.

From rings, in the steps in which they were read, and from device ranges, of what was profiled and parsed. Else from
stage entries: of the stages in which the ranks of a role wait for each other. Whether they do is seen in the times:
they leave much closer together than they entered.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np
import polars as pl

from ...judging.evidence import DEVICE, STAGE_ENTRY, Collectives, RoleStep
from ...judging.lateness import late_in
from ...judging.meeting import left_together, taking_part
from ..frames import LATENESS_SCHEMA
from ..report.units import spans
from ..run_files import RunFiles
from . import device_entries


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
    entered = (_as_collectives(step, together) for step in steps if (step.role, step.step) not in has_ring)
    rows = [row for step in entered for row in rows_of(step) if (row[0], row[3]) not in profiled] + by_device
    rows += [row for step in ringed for row in rows_of(step)]
    table = pl.DataFrame(rows, schema=LATENESS_SCHEMA, orient="row").sort("step", maintain_order=True)
    return files.chosen.of_table(table)


def rows_of(step: RoleStep) -> Iterator[tuple[Any, ...]]:
    """Of each group, rank and stage the entry that was latest in this step."""
    entered = step.collectives
    assert entered is not None
    late = late_in(entered, step.error_s)
    keys = np.stack([entered.group, entered.member, entered.stage])[:, late.at]
    order = np.lexsort((-late.late_s, keys[2], keys[1], keys[0]))
    is_first = np.append(True, (np.diff(keys[:, order]) != 0).any(axis=0))[: len(order)]
    texts = {group: spans(entered.groups.get(group, ())) or str(group) for group in set(keys[0].tolist())}
    for at, (group, member, stage) in zip(order[is_first].tolist(), keys.T[order[is_first]].tolist()):
        if (rank := step.members[member].rank) is not None:
            yield (
                step.step, texts[group], rank, step.stages[stage] if stage >= 0 else None,
                round(late.late_s[at] * 1e9), round(late.error_s[at] * 1e9), entered.source, step.role,
            )  # fmt: skip


def _as_collectives(step: RoleStep, together: frozenset[tuple[str, str]]) -> RoleStep:
    """A step in which each stage that members leave together is one collective of all who enter it."""
    is_met = np.array([(step.role, stage) in together for stage in step.stages], bool)
    there = np.isfinite(step.entered_s) & is_met[None, :] & taking_part(step)[:, None]
    member, stage = np.nonzero(there)
    groups = {
        at: tuple(peer.rank for peer, is_there in zip(step.members, those) if is_there and peer.rank is not None)
        for at, those in enumerate(there.T)
    }
    entered_s, left_s, once = step.entered_s[there], step.left_s[there], np.zeros(len(member), np.int64)
    entries = Collectives(member, stage, once, entered_s, left_s, stage, groups, STAGE_ENTRY)
    return step._replace(collectives=entries)
