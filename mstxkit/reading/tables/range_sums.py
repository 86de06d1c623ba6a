"""What a run's ranges add up to, taken batch by batch: how long steps take, names inside of stages, coalesced calls."""

from __future__ import annotations

import re
from typing import Iterable, NamedTuple

import polars as pl

from ..attributes import COALESCED
from ..processes import ENDED, Process
from ..run_files import RunFiles

# As the engines write it: these keys, in this order.
_COALESCED = rf'^{re.escape(COALESCED)}(\d+),"total_ns":(\d+),"max_ns":(\d+)'
# So many rows of sums may come together before they are added up.
_ROWS_KEPT = 1 << 18


class Sums(NamedTuple):
    """Of all ranges of a run that have ended.

    Args:
        spans: `process, step, stage, start_ns, end_ns`: from the first begin to the last end of the ranges of a step
            in a stage (null: in none).
        names: `process, stage, name, domain, calls, total_ns, max_ns, step_calls, step_ns`: of ranges that are no
            occurrences of a stage of their own; `step_…` of those that are in a step.
        coalesced: `name, calls, records`, by calls.
    """

    spans: pl.DataFrame
    names: pl.DataFrame
    coalesced: pl.DataFrame


def of_ranges(files: RunFiles, chosen: pl.Expr) -> Sums:
    """Add up the ranges of a run; `names` of the `chosen` rows only. *Cost*: memory for the sums and one batch."""
    spans = _Adding(["process", "step", "stage"], pl.col("start_ns").min(), pl.col("end_ns").max())
    sums_of_names = pl.col("calls", "total_ns", "step_calls", "step_ns").sum(), pl.col("max_ns").max()
    names = _Adding(["process", "stage", "name", "domain"], *sums_of_names)
    coalesced = _Adding(["name"], pl.col("calls", "records").sum())
    # A row that stands for many calls counts as these, and for the time inside of them.
    numbers = [pl.col("attributes").str.extract(_COALESCED, group).cast(pl.Int64, strict=False) for group in (1, 2, 3)]
    ns, max_ns = (number.fill_null(pl.col("duration_ns")) for number in numbers[1:])
    counted = {"is_coalesced": numbers[0].is_not_null(), "calls": numbers[0].fill_null(1), "ns": ns, "max_ns": max_ns}
    for ranges, _ in files.batches():
        rows = ranges.filter(pl.col("duration_ns").is_not_null()).with_columns(**counted)
        ends = rows.select("process", "step", "stage", "start_ns", end_ns=pl.col("start_ns") + pl.col("duration_ns"))
        spans.add(ends.filter(pl.col("step").is_not_null()))
        in_step = pl.col("step").is_not_null()
        names.add(rows.filter(~pl.col("is_stage") & chosen).select(
            "process", "stage", "name", "domain", "calls", "max_ns", total_ns="ns",
            step_calls=pl.col("calls") * in_step, step_ns=pl.col("ns") * in_step,
        ))  # fmt: skip
        coalesced.add(rows.filter(pl.col("is_coalesced")).select("name", "calls", records=pl.lit(1, pl.Int64)))
    by_calls = coalesced.result().sort("calls", "name", descending=[True, False])
    return Sums(spans.result(), names.result(), by_calls)


class _Adding:
    """Rows of a table that are added up whenever there are many."""

    def __init__(self, by: list[str], *sums: pl.Expr) -> None:
        self._by, self._sums = by, sums
        self._parts: list[pl.DataFrame] = []

    def add(self, rows: pl.DataFrame) -> None:
        self._parts.append(self._added_up(rows))
        if len(self._parts) > 1 and sum(part.height for part in self._parts) > _ROWS_KEPT:
            self._parts = [self.result()]

    def result(self) -> pl.DataFrame:
        return self._added_up(pl.concat(self._parts))

    def _added_up(self, rows: pl.DataFrame) -> pl.DataFrame:
        summed = rows.group_by(self._by).agg(*self._sums)
        return summed.with_columns(pl.col(pl.Categorical).cast(pl.String))  # of each batch they are others


def measure_periods(spans: pl.DataFrame, states: list[str], processes: Iterable[Process] = ()) -> pl.DataFrame:
    """`process, step, period_ns`: how long each step took each process, by process and step.

    Until its next step began, where that has the next number; else until the last of its ranges ended. A last step
    that may not be over, since its process has not ended, is left out unless it is the only one.

    Args:
        spans: as `of_ranges` gives them; those of a step count together.
        states: of the processes, in the order of `Run.processes()`.
        processes: which say when their first step began.
    """
    keys = {name: spans.schema[name] for name in ("process", "step", "start_ns")}
    firsts = [(process.index, *first) for process in processes if (first := process.first_step)]
    whole = spans.group_by("process", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    whole = whole.join(pl.DataFrame(firsts, keys, orient="row"), on=["process", "step"], how="left", suffix="_said")
    whole = whole.with_columns(start_ns=pl.min_horizontal("start_ns", "start_ns_said"))
    after = {name: pl.col(name).shift(-1).over("process") for name in ("step", "start_ns")}
    until_next = pl.when(after["step"] == pl.col("step") + 1).then(after["start_ns"] - pl.col("start_ns"))
    own_ns = pl.col("end_ns") - pl.col("start_ns")
    not_ended = [process for process, state in enumerate(states) if state != ENDED]
    is_unfinished = pl.col("process").is_in(not_ended) & after["step"].is_null() & (pl.len().over("process") > 1)
    rows = whole.sort("process", "step").with_columns(
        period_ns=pl.when(until_next > 0).then(until_next).otherwise(own_ns), is_unfinished=is_unfinished
    )
    return rows.filter(~pl.col("is_unfinished")).select("process", "step", "period_ns")


def by_process(periods: pl.DataFrame) -> pl.DataFrame:
    """`process, steps, step_ns`: the mean of each process's steps, the slowest process first.

    Processes with fewer than half as many steps as others are left out: they are no measure of a step.
    """
    means = periods.group_by("process").agg(steps=pl.len().cast(pl.Int64), step_ns=pl.col("period_ns").mean())
    often = means.filter(pl.col("steps") * 2 >= pl.col("steps").max())
    return often.sort("step_ns", "process", descending=[True, False])


def measure_shares(of_steps: pl.DataFrame, periods: pl.DataFrame) -> pl.DataFrame:
    """`stage, process, share_ratio`: of all the time of the process's steps, how much it was in the stage.
    `of_steps`: as `stages.by_step` gives them.
    """
    together = of_steps.join(periods, on=["process", "step"], how="inner")
    inside = together.group_by("stage", "process").agg(pl.col("total_ns").sum())
    whole = periods.group_by("process").agg(pl.col("period_ns").sum())
    ratio = pl.col("total_ns") / pl.col("period_ns")
    return inside.join(whole, on="process").select(
        "stage", "process", share_ratio=pl.when(pl.col("period_ns") > 0).then(ratio)
    )
