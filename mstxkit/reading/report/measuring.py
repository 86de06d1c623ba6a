"""What a report measures: how long steps take, how long who is in which stage in a step, and which ranges are in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from ...errors import ReadError
from ..run import Run
from ..tables import range_sums, stages
from . import choice as choosing
from .choice import ReportChoice

TRAIN_STEP = "train_step"  # the stage that is a whole step
# What names a process here, from its row in the table of processes.
NAMES = ("rank", "host", "pid", "role", "part", "under", "label")


class Measured(NamedTuple):
    """Plain values for the summary; `first_step` and `last_step` are the run's, whatever was asked for.

    `waiting`: the rows of `Run.waits()` of the steps, ranks and stages that were asked for.
    """

    first_step: int | None
    last_step: int | None
    step_time: dict[str, Any] | None
    stages: list[dict[str, Any]]
    ranges: list[dict[str, Any]]
    waiting: pl.DataFrame
    coalesced: list[dict[str, Any]]


def measure_choice(run: Run, processes: pl.DataFrame, choice: ReportChoice) -> Measured:
    """Measure what was asked for; where no steps are named, means leave out warm-up.
    Raises ReadError: nothing in the run answers to the choice, or to a part of it.
    """
    wanted_rows = choice.rows() if choice.steps is not None else choice.rows() & run.roles.is_steady
    occurrences, sums = run.occurrences(), range_sums.of_ranges(run.files, wanted_rows)
    numbers: Any = sums.spans["step"]
    first, last = (None, None) if numbers.is_empty() else (int(numbers.min()), int(numbers.max()))
    choosing.check_choice(choice, processes["rank"].to_list(), first, last)
    names, ranks = processes.select(NAMES).to_dicts(), processes.select("rank").with_row_index("process")
    lasted = range_sums.measure_periods(sums.spans, processes["state"].to_list(), run.files.processes)
    spans, lasted = (rows.join(ranks, on="process").filter(wanted_rows) for rows in (sums.spans, lasted))
    wanted = occurrences.filter(wanted_rows)
    shares = range_sums.measure_shares(stages.by_step(wanted), lasted)
    by_process = stages.by_process(wanted).join(shares, on=["stage", "process"], how="left", maintain_order="left")
    by_process = by_process.with_columns(pl.col("stage").cast(pl.String))
    by_name = _by_name(sums.names, by_process, spans, lasted)
    waiting = run.waits().with_columns(pl.col("stage").cast(pl.String), rank=pl.lit(None, pl.Int64))  # no rank's
    by_process, by_name, waiting = _choose_rows(choice, by_process, by_name, waiting.filter(wanted_rows))
    totals = {row["stage"]: row for row in stages.sum_occurrences(wanted).iter_rows(named=True)}
    entries = _list_stages(by_process, totals, names)
    ranges = _in_order(by_name, [entry["stage"] for entry in entries])
    # The steps of processes that say what a whole one is: what others do in it is less. All where none says so.
    whole = occurrences.filter(pl.col("stage").cast(pl.String) == TRAIN_STEP).select("process", "step").unique()
    of_trainers = lasted.join(whole, on=["process", "step"], how="semi")
    step_time = _step_time((lasted if of_trainers.is_empty() else of_trainers), names)
    return Measured(first, last, step_time, entries, ranges, waiting, sums.coalesced.to_dicts())


def _by_name(names: pl.DataFrame, by_process: pl.DataFrame, spans: pl.DataFrame, lasted: pl.DataFrame) -> pl.DataFrame:
    """`stage, name, domain, processes, count, total_ns, mean_ns, max_ns, steps, step_count, step_ns, share_ratio`.

    All calls added up, also where they overlap. A step's figures are the means over the steps in which a process had
    a range in the stage, or over all of its steps outside of any. `share_ratio` is of the time in that stage, else of
    the step.
    """
    of_stage = by_process.select("process", "stage", stage_ns="total_ns")
    of_stage_steps = spans.group_by("process", "stage").agg(steps=pl.len())
    of_steps = spans.group_by("process").agg(own_steps=pl.col("step").n_unique())
    of_time = lasted.group_by("process").agg(lasted_ns=pl.col("period_ns").sum(), lasted=pl.len())
    rows = names.join(of_stage, on=["process", "stage"], how="left")
    rows = rows.join(of_stage_steps, on=["process", "stage"], how="left")
    rows = rows.join(of_steps, on="process", how="left").join(of_time, on="process", how="left")
    counted = pl.coalesce("steps", "own_steps").filter(pl.col("step_calls") > 0)
    summed = rows.group_by("stage", "name", "domain").agg(
        pl.col("max_ns").max(), pl.col("total_ns", "stage_ns", "lasted_ns", "lasted").sum(),
        count=pl.col("calls").sum(), processes=pl.len(), steps=counted.sum(),
        in_steps=pl.col("step_calls").sum(), in_steps_ns=pl.col("step_ns").sum(),
    )  # fmt: skip
    has_steps, of_step_ns = pl.col("steps") > 0, pl.col("lasted_ns") / pl.col("lasted")
    figures = summed.with_columns(
        mean_ns=pl.col("total_ns") / pl.col("count"),
        step_count=pl.when(has_steps).then(pl.col("in_steps") / pl.col("steps")),
        step_ns=pl.when(has_steps).then(pl.col("in_steps_ns") / pl.col("steps")),
    )
    of_stage_ratio = pl.when(pl.col("stage_ns") > 0).then(pl.col("total_ns") / pl.col("stage_ns"))
    of_step_ratio = pl.when(pl.col("lasted_ns") > 0).then(pl.col("step_ns") / of_step_ns)
    share = pl.when(pl.col("stage").is_not_null()).then(of_stage_ratio).otherwise(of_step_ratio)
    return figures.with_columns(share_ratio=share).drop("stage_ns", "lasted_ns", "lasted", "in_steps", "in_steps_ns")


def _choose_rows(
    choice: ReportChoice, by_process: pl.DataFrame, by_name: pl.DataFrame, waiting: pl.DataFrame
) -> tuple[pl.DataFrame, ...]:
    """The rows of the stages and names that were asked for. In some stages a controller only waits.
    Raises ReadError: there are none.
    """
    if choice.stages is not None:
        keys = pl.concat([rows["stage"] for rows in (by_process, by_name, waiting)]).drop_nulls().unique().to_list()
        is_wanted = pl.col("stage").is_in(list(choosing.names_of("stage", choice.stages, keys)))
        by_process, by_name, waiting = (rows.filter(is_wanted) for rows in (by_process, by_name, waiting))
    if choice.ranges is not None:
        wanted = choosing.names_of("range", choice.ranges, by_name["name"].unique())
        by_name = by_name.filter(pl.col("name").is_in(list(wanted)))
    if str(choice) and by_process.is_empty() and by_name.is_empty() and waiting.is_empty():
        raise ReadError(f"this run has nothing of {choice}, all at once")
    return by_process, by_name, waiting


def _list_stages(by_process: pl.DataFrame, totals: dict[str, Any], names: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_stage: dict[str, dict[str, Any]] = {}
    kept = (*NAMES, "steps", "step_ns")
    for row in by_process.iter_rows(named=True):
        stage = row.pop("stage")
        entry = by_stage.setdefault(stage, {**totals[stage], "total_ns": 0, "stepless": 0, "ranks": []})
        entry["ranks"].append({**row, **names[row["process"]]})
    for entry in by_stage.values():
        for key in ("total_ns", "stepless"):
            entry[key] = sum(row[key] for row in entry["ranks"])
        # The process in the middle by time a step, and the slowest one if there are others; the others' distance.
        rows = [row for row in entry["ranks"] if row["step_ns"] is not None]
        middle = rows[stages.find_middle(len(rows))]
        for row in rows:
            row["over_middle_ratio"] = row["step_ns"] / middle["step_ns"] - 1 if middle["step_ns"] else None
        slowest = {**{key: rows[0][key] for key in kept}, "middle_ns": middle["step_ns"]} if len(rows) > 1 else None
        entry.update(middle={key: middle[key] for key in (*kept, "share_ratio")}, slowest=slowest)
    return list(by_stage.values())


def _in_order(by_name: pl.DataFrame, keys: list[str]) -> list[dict[str, Any]]:
    """Stage by stage as in the table of stages, then what is in no stage; of each the longest a step first."""
    places = {key: place for place, key in enumerate(keys)}

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        stage, of_a_step = row["stage"], -1 if row["step_ns"] is None else row["step_ns"]
        return (stage is None, places.get(stage, len(keys)), stage or "", -of_a_step, -row["total_ns"], row["name"])

    return sorted(by_name.to_dicts(), key=place)


def _step_time(lasted: pl.DataFrame, names: list[dict[str, Any]]) -> dict[str, Any] | None:
    """How long a step takes in the process in the middle, the fastest and the slowest; None where none are counted."""
    rows = range_sums.by_process(lasted).to_dicts()
    if not rows:
        return None
    slowest, fastest, middle = rows[0], rows[-1], rows[stages.find_middle(len(rows))]
    named = {
        word: {**{key: names[row["process"]][key] for key in NAMES}, "step_ns": row["step_ns"], "steps": row["steps"]}
        for word, row in (("slowest", slowest), ("fastest", fastest))
    }
    return {"step_ns": middle["step_ns"], "steps": middle["steps"], "processes": len(rows), **named}
