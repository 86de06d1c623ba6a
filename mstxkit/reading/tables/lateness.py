"""`Run.lateness()`: how much later than the first each rank entered what the ranks of a group do together;
`Run.links()`: what collectives take once all have entered. Who enters last waits for nobody: its time in one is what
that takes.

From rings, in the steps in which they were read, and from device ranges, of what was profiled and parsed. Else from
stage entries: of the stages in which the ranks of a role wait for each other. Whether they do is seen in the times:
they leave much closer together than they entered.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import numpy as np
import polars as pl

from ...judging import device_lateness
from ...judging.evidence import STAGE_ENTRY, Collectives, RoleStep
from ...judging.meeting import Late, late_in, left_together, taking_part
from ...store.values import group_by
from ..frames import LATENESS_SCHEMA, make_schema
from ..report.units import write_spans
from ..role_runs import RoleRun, shown_ns
from ..run_files import RunFiles
from . import device_entries
from .device_entries import ProfiledWindow

LINK_SCHEMA = make_schema("role stage group members steps took_ns others_ns more_ns")


class LatenessRow(NamedTuple):
    """A row of the table, and of which role it is."""

    step: int | None
    group: str
    rank: int
    stage: str | None
    late_ns: int
    error_ns: int
    source: str
    role: str | None


def table(files: RunFiles, steps: Sequence[RoleStep], ringed: Sequence[RoleStep]) -> pl.DataFrame:
    """The table, step by step, of those ranks that are read; and of which `role`, null of device ranges.
    `ringed`: those of its steps of which a ring tells.
    """
    by_device = [row for window in device_entries.find_windows(files.path, files.id) for row in of_device(window)]
    profiled = {(row.step, row.stage) for row in by_device}
    together, has_ring = left_together(steps), {(step.role, step.step) for step in ringed}
    entered = (_as_collectives(step, together) for step in steps if (step.role, step.step) not in has_ring)
    rows = [row for step in entered for row in rows_of(step) if (row.step, row.stage) not in profiled] + by_device
    rows += [row for step in ringed for row in rows_of(step)]
    table = pl.DataFrame(rows, schema=LATENESS_SCHEMA, orient="row").sort("step", maintain_order=True)
    return files.chosen.of_table(table)


def of_device(window: ProfiledWindow) -> list[LatenessRow]:
    """Those of a window; [] as long as it is not parsed. *Cost*: reads each database."""
    databases = {rank: file for rank, file in window.databases.items() if file is not None and window.is_parsed}
    read = {rank: device_lateness.read_collectives(file) for rank, file in databases.items()}
    entered = device_lateness.join_collectives(read) if read else None
    if entered is None:  # nothing can be compared
        return []
    late = late_in(entered, np.zeros(len(read)))
    late = late._replace(error_s=device_lateness.bounds_s(entered)[late.at])
    return list(_find_latest(window.step, list(read), (window.stage,), entered, late, None))


def rows_of(step: RoleStep) -> Iterator[LatenessRow]:
    """Those of a step, of which rings tell, or the entries into its stages."""
    entered = step.collectives
    assert entered is not None
    ranks, late = [peer.rank for peer in step.members], late_in(entered, step.error_s)
    return _find_latest(step.step, ranks, step.stages, entered, late, step.role)


def _find_latest(
    step: int | None, ranks: Sequence[int | None], stages: Sequence[str], entered: Collectives, late: Late,
    role: str | None,
) -> Iterator[LatenessRow]:  # fmt: skip
    """Of each group, rank and stage the entry that was latest."""
    keys = np.stack([entered.group, entered.member, entered.stage])[:, late.at]
    order = np.lexsort((-late.late_s, keys[2], keys[1], keys[0]))
    is_first = np.append(True, (np.diff(keys[:, order]) != 0).any(axis=0))[: len(order)]
    texts = {group: write_spans(entered.groups.get(group, ())) or str(group) for group in set(keys[0].tolist())}
    for at, (group, member, stage) in zip(order[is_first].tolist(), keys.T[order[is_first]].tolist()):
        if (rank := ranks[member]) is not None:
            yield LatenessRow(
                step, texts[group], rank, stages[stage] if stage >= 0 else None,
                round(late.late_s[at] * 1e9), round(late.error_s[at] * 1e9), entered.source, role,
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


def link_table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """`role, stage, group, members, steps, took_ns, others_ns, more_ns`: a step's mean, of the steps with rings.

    `others_ns`: the middle of the other groups of as many members; null where there are none.
    """
    rows = []
    for run in runs:
        took = group_by(run.links, lambda link: link[1:3])
        means = {key: float(np.mean([seconds for *_, seconds in links])) for key, links in took.items()}
        for (piece, members), mean_s in means.items():
            of_piece = {who: seconds for (at, who), seconds in means.items() if at == piece}
            others = [s for who, s in of_piece.items() if who != members and len(who) == len(members)]
            others_s = float(np.median(others)) if others else float("nan")
            ranks = write_spans(rank for member in members if (rank := run.members[member].rank) is not None)
            times = map(shown_ns, (mean_s, others_s, mean_s - others_s))
            steps = len(took[piece, members])
            rows.append((run.role, run.kinds[piece].stage, ranks, len(members), steps, *times))
    return pl.DataFrame(rows, schema=LINK_SCHEMA, orient="row").sort("more_ns", descending=True, nulls_last=True)
