"""What controllers wait for: no work of any rank. How much of it their workers were busy, and where the rest went.

An occurrence of a stage is a wait where its range has the attribute `waits_for`, as patches declare it (`waits` of
`patching/declare.py`) and users give it to their own ranges.
"""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import polars as pl

from .. import intervals
from ..intervals import Intervals, Times, sum_by_place
from ..run_files import RunFiles
from . import stages

_WHO = ("process", "stage")
_KEY = ("step", "stage", "process", "host", "pid", "role")
_FIGURES = (
    "waited_ns", "busy_ns", "unaccounted_ns", "before_ns", "between_ns", "after_ns", "slowest", "slowest_ns",
)  # fmt: skip
# So many names of ranges tell of the rest, by the sum of their time in it.
_NAMES = 20


def only_work(stage_rows: pl.DataFrame) -> pl.DataFrame:
    """The occurrences of stages in which work is done."""
    return stage_rows.filter(pl.col("waits_for").is_null())


def only_waits(stage_rows: pl.DataFrame) -> pl.DataFrame:
    """The outermost occurrences in which a controller waits."""
    return stages.pick_outermost(stage_rows.filter(pl.col("waits_for").is_not_null()))


def stage_table(stage_rows: pl.DataFrame) -> pl.DataFrame:
    """See `Run.stages`."""
    work = stages.pick_outermost(only_work(stage_rows), is_sorted=False)
    return stages.by_step(pl.concat([work, only_waits(stage_rows)])).drop("process")


def in_steps(waits: pl.DataFrame) -> pl.DataFrame:
    """Of waits those that count for a step: what is in none only where a controller waits for that stage in no step."""
    return waits.filter(pl.col("step").is_not_null() | pl.col("step").is_null().all().over(*_WHO))


def table(stage_rows: pl.DataFrame) -> pl.DataFrame:
    """One row for each step, stage and controller, by begin. `waited_ns`: the union of its waits. `busy_ns`: the part
    of it in which any worker was in that stage (in any stage, where no worker has that one while it is waited for: an
    evaluation, say), `slowest_ns` that of the worker which was so longest. `unaccounted_ns` is the rest: `before_ns` of
    it until the first worker began, `after_ns` after the last one ended, `between_ns` all other.
    """
    tables = [_make_figures(rows, working) for _, rows, working in _each_waiting(stage_rows)]
    empty = only_waits(stage_rows).head(0).select(
        *_KEY, count=pl.lit(0, pl.Int64), **{name: pl.lit(0, pl.Int64) for name in _FIGURES}, start_ns="start_ns"
    )  # fmt: skip
    return pl.concat([empty, *tables]).sort("start_ns", pl.col("stage").cast(pl.String)).drop("start_ns")


def _each_waiting(stage_rows: pl.DataFrame) -> Iterator[tuple[tuple[int, str], pl.DataFrame, pl.DataFrame]]:
    """Of each controller, its process, and stage its waits, and those occurrences of its workers that count, whenever
    they were; of that stage, or of all. With `end_ns`.
    """
    end_ns = pl.col("start_ns") + pl.col("duration_ns")
    waits = only_waits(stage_rows).with_columns(end_ns=end_ns)
    work = stages.pick_outermost(only_work(stage_rows)).with_columns(end_ns=end_ns) if waits.height else waits
    for rows in waits.partition_by(*_WHO, maintain_order=True):
        process, stage = rows["process"][0], rows["stage"][0]
        others = work.filter(pl.col("process") != process)
        working = others.filter(pl.col("stage").cast(pl.String) == stage)
        is_theirs = unite_rows(working).cut(unite_rows(rows)).total_ns > 0
        yield (process, stage), rows, working if is_theirs else others


def unite_rows(rows: pl.DataFrame) -> Intervals:
    """The time that any of these rows covers."""
    return intervals.join_stretches(rows["start_ns"], rows["end_ns"])


def _time_inside(stretches: Intervals, rows: pl.DataFrame) -> pl.Series:
    """How much of each row's time lies in these stretches."""
    return pl.Series(stretches.inside(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()), dtype=pl.Int64)


def _make_figures(waits: pl.DataFrame, working: pl.DataFrame) -> pl.DataFrame:
    """The rows of one controller and stage, with `start_ns`."""
    keys = waits.group_by(*_KEY, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("count"), first_ns=pl.col("start_ns").min(), starts="start_ns", ends="end_ns"
    )
    stretches = [intervals.join_stretches(*columns) for columns in zip(keys["starts"], keys["ends"])]
    row = np.repeat(np.arange(len(stretches)), [len(stretch.starts) for stretch in stretches])
    waited = Intervals(*(np.concatenate(columns) for columns in zip(*stretches)))
    workers = unite_rows(working)
    (begin, end), busy_ns = workers.reach(*waited), workers.inside(*waited)
    figures = {
        "waited_ns": waited.ends - waited.starts, "busy_ns": busy_ns,
        "before_ns": np.where(busy_ns > 0, begin - waited.starts, 0),
        "after_ns": np.where(busy_ns > 0, waited.ends - end, 0),
    }  # fmt: skip
    values: dict[str, Any] = {name: sum_by_place(each, row, len(stretches)) for name, each in figures.items()}
    values["unaccounted_ns"] = values["waited_ns"] - values["busy_ns"]
    values["between_ns"] = values["unaccounted_ns"] - values["before_ns"] - values["after_ns"]
    values["slowest"], values["slowest_ns"] = _find_slowest(waited, working, row, len(stretches))
    columns = [pl.Series(name, values[name], dtype=pl.Int64) for name in _FIGURES]
    return keys.select(*_KEY, "count").with_columns(*columns, start_ns=keys["first_ns"])


def _find_slowest(waited: Intervals, working: pl.DataFrame, row: Times, rows: int) -> tuple[list[int | None], Times]:
    """Who was at it longest in each row, and how long; None where nobody was."""
    slowest: list[int | None] = [None] * rows
    longest_ns = np.zeros(rows, dtype=np.int64)
    for own in working.partition_by("process", maintain_order=True):
        busy_ns = sum_by_place(unite_rows(own).inside(*waited), row, rows)
        for place in np.flatnonzero(busy_ns > longest_ns):
            slowest[place], longest_ns[place] = own["process"][0], busy_ns[place]
    return slowest, longest_ns


def measure_meanwhile(
    files: RunFiles, steps: tuple[int, int] | None = None
) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """What other ranges tell of the unaccounted time of each controller and stage: `name`, `ns`, `processes`, by time.

    Of workers the outermost ranges that are not of that stage; of the controller those that are inside of its wait.
    `ns` is the part of the unaccounted time in which any process was in a range of that name. *Cost*: nothing where
    nobody waits; else all ranges are read once more. `steps`: waits of these only, the first and the last.
    """
    rows = files.stage_rows
    if steps is not None:
        rows = rows.filter(pl.col("waits_for").is_null() | pl.col("step").is_between(*steps).fill_null(False))
    waits = list(_each_waiting(rows))
    if not waits:
        return {}
    is_controller = pl.col("process").is_in(list({process for (process, _), _, _ in waits}))
    # Is `waits_for` among the attributes? Cheap where not. In a text of a user's, the quotes have backslashes.
    waits_itself = pl.col("attributes").str.contains('"waits_for":', literal=True).fill_null(False)
    may_tell = ((pl.col("depth") == 0) | is_controller) & ~waits_itself
    columns = ("process", pl.col("stage", "name").cast(pl.String), "start_ns")
    end_ns = pl.col("start_ns") + pl.col("duration_ns")
    every = (ranges.filter(may_tell & pl.col("duration_ns").is_not_null()) for ranges, _ in files.batches())
    telling = pl.concat([ranges.select(*columns, end_ns=end_ns) for ranges in every])
    return {whose: _list_told(whose, unite_rows(in_steps(rows)), working, telling) for whose, rows, working in waits}


def _list_told(
    whose: tuple[int, str], waited: Intervals, working: pl.DataFrame, telling: pl.DataFrame
) -> list[dict[str, Any]]:
    rest = waited.without(unite_rows(working))
    own = telling.filter(pl.col("process") == whose[0])
    is_inside = _time_inside(waited, own) == own["end_ns"] - own["start_ns"]
    others = telling.filter((pl.col("process") != whose[0]) & pl.col("stage").ne_missing(whose[1]))
    rows = pl.concat([own.filter(is_inside), others])
    rows = rows.with_columns(ns=_time_inside(rest, rows)).filter(pl.col("ns") > 0)
    longest = rows.group_by("name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False]).head(_NAMES)
    rows = rows.filter(pl.col("name").is_in(longest["name"].implode()))
    parts = [
        {"name": part["name"][0], "ns": unite_rows(part).cut(rest).total_ns, "processes": part["process"].n_unique()}
        for part in rows.partition_by("name")
    ]
    return sorted(parts, key=lambda entry: (-entry["ns"], entry["name"]))
