"""Where no ring says who enters collectives late: a run's own ranges around them, inside of stages that all leave
together, or may.

A range is taken for a collective if those that are in it leave it much closer together than they entered it, again
and again: an all-reduce that somebody marked, or that a patch declares.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ...judging import meeting
from ...judging.evidence import STAGE_ENTRY, Collectives, RoleStep
from ...stages import canonical_key
from ..run_files import RunFiles
from . import role_steps

# Only the last steps are looked into, and of a name so many ranges a step: what is called more often is no collective
# that is worth a range.
STEPS_AT_MOST = 200
_CALLS_AT_MOST = 64
_CALL = ("at", "stage", "name", "nth")
_PLACE = ("role", "stage", "name")


def add_entries(files: RunFiles, steps: list[RoleStep]) -> list[RoleStep]:
    """The steps, the last ones with what ranges tell of the inside of their stages.

    `files`: opened without filters. *Cost*: the ranges of these steps and stages are read once more.
    """
    together = meeting.left_together(steps, or_in_doubt=True)
    last = steps[-STEPS_AT_MOST:]
    if not together or max((len(step.members) for step in last), default=0) < 2:
        return steps
    ranges = _read_ranges(files, last, {stage for _, stage in together})
    calls = _find_collective(ranges, last)
    if calls.is_empty():
        return steps
    by_step = {part["at"][0]: part for part in calls.partition_by("at")}
    origin_ns = role_steps.origin_ns(files.stage_rows)
    return [
        *steps[: len(steps) - len(last)],
        *(_add_collectives(step, by_step.get(at), origin_ns) for at, step in enumerate(last)),
    ]


def _read_ranges(files: RunFiles, steps: list[RoleStep], keys: set[str]) -> pl.DataFrame:
    """`at` (which step of these), `member, role, stage, name, nth, start_ns, end_ns` of the ranges inside of stages."""
    every = files.stage_rows["stage"].cast(pl.String).unique().drop_nulls().to_list()
    named = {name: canonical_key(name) for name in every if canonical_key(name) in keys}
    part = files.part(steps={step.step for step in steps}, stages=sorted(named))
    texts = pl.col("stage", "name").cast(pl.String)
    columns = (pl.col("process").cast(pl.UInt32), "step", texts, "start_ns", "duration_ns", "depth")
    is_inside = ~pl.col("is_stage") & pl.col("duration_ns").is_not_null()
    rows = pl.concat([ranges.filter(is_inside).select(*columns) for ranges, _ in part.batches()])
    processes = {process.name: process.index for process in part.processes}
    who = [
        (at, processes[peer.process], step.step, member, step.role)
        for at, step in enumerate(steps)
        for member, peer in enumerate(step.members)
        if peer.process in processes and not peer.is_controller
    ]
    kinds = {"at": pl.Int64, "process": pl.UInt32, "step": pl.Int64, "member": pl.Int64, "role": pl.String}
    members = pl.DataFrame(who, schema=kinds, orient="row")
    rows = rows.join(members, on=["process", "step"], how="inner").sort("start_ns")
    return rows.with_columns(
        stage=pl.col("stage").replace_strict(named, default=None),
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        nth=pl.int_range(pl.len()).over("at", "member", "stage", "name"),
    )


def _find_collective(ranges: pl.DataFrame, steps: list[RoleStep]) -> pl.DataFrame:
    """Those that all members of a step leave together, of every name the innermost ones."""
    sizes = pl.Series([int(meeting.taking_part(step).sum()) for step in steps], dtype=pl.Int64)
    rows = ranges.filter(pl.len().over("at", "member", "stage", "name") <= _CALLS_AT_MOST)
    is_whole = (pl.len().over(*_CALL) == pl.lit(sizes).gather(pl.col("at"))) & (pl.len().over(*_CALL) > 1)
    rows = rows.filter(is_whole)
    apart = rows.group_by(*_CALL, "role").agg(
        ratio=pl.col("end_ns").std() / pl.col("start_ns").std(),
        apart_s=(pl.col("start_ns").max() - pl.col("start_ns").min()) / 1e9,
    )
    error_s = 2 * max((float(step.error_s.max()) for step in steps), default=0.0)
    clear = apart.filter(pl.col("apart_s") > max(error_s, meeting.APART_AT_LEAST_S))
    places = clear.group_by(*_PLACE).agg(pl.len(), pl.col("ratio").median())
    kept = places.filter((pl.col("len") >= meeting.STEPS_NEEDED) & (pl.col("ratio") <= meeting.TOGETHER_AT_MOST))
    rows = rows.join(kept.select(_PLACE), on=_PLACE, how="semi")
    # Without those around others of the rows, which are looked at in one member's first step.
    first = rows.filter((pl.col("at") == pl.col("at").min().over(_PLACE)) & (pl.col("member") == 0))
    pairs = first.join(first.select("role", "stage", "at", "start_ns", "end_ns", "depth"), on=["role", "stage", "at"])
    is_around = (pl.col("depth") < pl.col("depth_right")) & (pl.col("start_ns") <= pl.col("start_ns_right"))
    enclosing = pairs.filter(is_around & (pl.col("end_ns") >= pl.col("end_ns_right"))).select(_PLACE).unique()
    return rows.join(enclosing, on=_PLACE, how="anti")


def _add_collectives(step: RoleStep, calls: pl.DataFrame | None, origin_ns: int) -> RoleStep:
    """A step with its collectives; a name in a stage is a group of its own."""
    if calls is None:
        return step
    numbers: dict[tuple[str, str], int] = {}
    group = [numbers.setdefault(key, len(numbers)) for key in zip(calls["stage"].to_list(), calls["name"].to_list())]
    stages = [step.stages.index(stage) for stage in calls["stage"].to_list()]
    there = zip(step.members, meeting.taking_part(step))
    ranks = tuple(peer.rank for peer, is_there in there if peer.rank is not None and is_there)
    entered, left = ((calls[name].to_numpy() - origin_ns) / 1e9 for name in ("start_ns", "end_ns"))
    return step._replace(collectives=Collectives(
        calls["member"].to_numpy(), np.array(group, np.int64), calls["nth"].to_numpy().astype(np.int64), entered, left,
        np.array(stages, np.int64), dict.fromkeys(numbers.values(), ranks), STAGE_ENTRY,
    ))  # fmt: skip
