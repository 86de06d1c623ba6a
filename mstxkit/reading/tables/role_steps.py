"""A run's own stage rows as what the judge judges: a `RoleStep` for each step of those that do the same work.

So a run that nobody judged while it ran, an older one or one without summaries, can be judged afterwards, or from
outside while it goes on. Steps that are not over are left out.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl

from ...host import parts
from ...judging.clock_bounds import WALL_ERROR_NS
from ...judging.evidence import Peer, RoleStep, Work
from ...stages import canonical_key
from ...store.summaries import WORKERS
from ..role_runs import Seconds, Whole
from . import stages

# A member that is farther behind than so many steps is doing something else, and is not waited for.
_STEPS_BEHIND = 2
_NS = 1e9
_WORK = ("tokens", "responses", "longest_response")
_FIGURES = ("start_ns", "end_ns", "total_ns", "count", *_WORK)
_OF = ("process", "step", "stage")


def of_run(stage_rows: pl.DataFrame, processes: pl.DataFrame, has_beside: bool = False) -> list[RoleStep]:
    """Every step of every role that is over, attempt by attempt, in the order in which they ended.

    `has_beside`: with those of processes that work beside others of their role. *Cost*: a table of stages, and about a
    millisecond a step.
    """
    names = stage_rows["stage"].cast(pl.String)
    keys = {name: canonical_key(name) for name in names.unique().drop_nulls().to_list()}
    rows = stage_rows.with_columns(stage=names.replace_strict(keys, default=None, return_dtype=pl.String))
    entries = processes.to_dicts()
    peers = _list_peers(entries, rows)
    # Of each process, which do the same work: attempt of the job, role, and what those beside a rank's own are.
    group_of = [(entry["attempt"] or 0, entry["role"] or "", name_kind(entry)) for entry in entries]
    controllers = [place for place, peer in enumerate(peers) if peer.is_controller]
    waiting = rows.filter(pl.col("waits_for").is_not_null() & ~pl.col("process").is_in(controllers))
    waits_for = {
        (group_of[process], stage): str(whom)
        for process, stage, whom in waiting.select("process", "stage", "waits_for").unique().iter_rows()
    }
    every = rows.filter(pl.col("waits_for").is_null() | ~pl.col("process").is_in(controllers))
    every = every.with_columns(waits_for=pl.lit(None, rows["waits_for"].dtype))
    work = stages.pick_outermost(every).filter(pl.col("step").is_not_null())
    if work.is_empty():
        return []
    groups = list(dict.fromkeys(group_of))
    numbers = pl.Series([groups.index(group) for group in group_of], dtype=pl.Int64)
    figures = _sum_figures(work.with_columns(pl.col("start_ns") - origin_ns(stage_rows)), every).sort("start_ns")
    figures = figures.with_columns(of=numbers.gather(figures["process"]))
    # Of each group its processes, in order, and the first step in which each did anything, and its last one: (3, N).
    last = rows.group_by("process").agg(last=pl.col("step").max())
    did = figures.group_by("of", "process").agg(first=pl.col("step").min()).join(last, on="process").sort("process")
    lives = {part["of"][0]: part.drop("of").cast(pl.Int64).to_numpy().T for part in did.partition_by("of")}
    over = _find_over(figures, lives, [entry["state"] for entry in entries])
    own = {groups[of][:2] for of, _ in over if not groups[of][2]}
    left_out = {of for of, _ in over if groups[of][2] and groups[of][:2] in own and not has_beside}
    parted = figures.partition_by("of", "step", maintain_order=True, as_dict=True)
    kept = [(of, part) for (of, step), part in parted.items() if (of, step) in over and of not in left_out]
    kept.sort(key=lambda each: (groups[each[0]][0], each[1]["end_ns"].max()))
    error_s = np.array([(entry["clock_error_ns"] or 0) / _NS for entry in entries])
    steps = []
    for of, part in kept:
        group, step = groups[of], _role_step(part, groups[of][1], peers, error_s, lives[of])
        whom = {key: waits_for[group, key] for key in step.stages if (group, key) in waits_for}
        steps.append(step._replace(waits_for=whom))
    return steps


def origin_ns(stage_rows: pl.DataFrame) -> int:
    """The instant from which the seconds of its steps count; ns on the run's wall clock."""
    return int(stage_rows["start_ns"].min() or 0)  # type: ignore[arg-type]


def _list_peers(entries: list[dict[str, Any]], rows: pl.DataFrame) -> list[Peer]:
    """The processes of a run, by their rows in `processes()`, as the judge calls them."""
    works = set(rows.filter(rows["waits_for"].is_null())["process"].to_list())
    drivers = set(rows["process"].to_list()) - works
    drivers.update(rows.filter(rows["waits_for"] == WORKERS)["process"].to_list())
    drivers.update(place for place, entry in enumerate(entries) if entry["under"] == parts.RAY_DRIVER)
    peers = []
    for at, entry in enumerate(entries):
        host, name, part, place = (entry[key] or "" for key in ("host", "process", "part", "place"))
        peers.append(Peer(entry["rank"], host, name or str(at), part, at in drivers, place))
    return peers


def name_kind(entry: dict[str, Any]) -> str:
    """What a process beside a rank's own is, without its number; "" of a rank's own."""
    is_beside = entry["under"] in parts.BESIDE
    return re.sub(r"\d+", "", f"{entry['under']} {entry['part'] or ''}").strip() if is_beside else ""


def _sum_figures(work: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """`process, step, stage` and the figures of each, in ns and pieces of work; null where nobody says so.

    The outermost ranges of a stage say how much it did; where none does, those inside of them, as an engine's steps.
    """
    figures = stages.by_step(work).select(*_OF, "count", "total_ns", "start_ns", "end_ns")
    for rows in (work, every.filter(pl.col("duration_ns").is_not_null())):
        sums = rows.group_by(*_OF).agg(
            longest_response=pl.col("longest_response").max(), tokens=stages.sum_column(pl.col("tokens")),
            responses=stages.sum_column(pl.coalesce("responses", "prompts")),
        )  # fmt: skip
        figures = figures.join(sums, on=_OF, how="left", maintain_order="left", suffix="_inside")
    return figures.with_columns(pl.coalesce(name, f"{name}_inside") for name in _WORK)


def _find_over(figures: pl.DataFrame, lives: dict[int, Whole], states: list[str]) -> set[tuple[int, int]]:
    """Which steps of which groups are over: nobody may still add to them, and nobody was killed in them."""
    over = set()
    for group, steps in figures.group_by("of").agg(pl.col("step").unique()).iter_rows():
        last = dict(lives[group][[0, 2]].T.tolist())
        newest = max(last.values())
        going_on = (step for process, step in last.items() if states[process] in ("running", "lost"))
        bar = min((step for step in going_on if step >= newest - _STEPS_BEHIND), default=newest + 1)
        broken = {last[p] for p in last if states[p] not in ("ended", "running", "lost")}
        over |= {(group, step) for step in steps if step < bar and step not in broken}
    return over


def _role_step(part: pl.DataFrame, role: str, peers: list[Peer], error_s: Seconds, lives: Whole) -> RoleStep:
    """Of the rows of one group and step, by begin. Who did something before it and after it has not gone."""
    every, first, last = lives
    processes = every[(first <= part["step"][0]) & (last >= part["step"][0])]
    at = np.searchsorted(processes, part["process"].to_numpy())
    keys = tuple(dict.fromkeys(part["stage"].to_list()))
    places = {key: place for place, key in enumerate(keys)}
    stage_at = np.array([places[key] for key in part["stage"].to_list()], dtype=np.int64)
    tables = {name: np.full((len(processes), len(keys)), np.nan) for name in _FIGURES}
    for name, table in tables.items():
        table[at, stage_at] = part[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    members = tuple(peers[process] for process in processes)
    apart_s = WALL_ERROR_NS / _NS if len({peer.host for peer in members if not peer.is_controller}) > 1 else 0.0
    return RoleStep(
        role, int(part["step"][0]), members, keys,
        tables["start_ns"] / _NS, tables["end_ns"] / _NS, tables["total_ns"] / _NS, np.nan_to_num(tables["count"]),
        Work(tables["tokens"], tables["responses"], tables["longest_response"]), error_s[processes] + apart_s,
    )  # fmt: skip
