"""How long steps take: of each process, from the first begin of a step's ranges, or its word, to that of the next's."""

from __future__ import annotations

from typing import Iterable

import polars as pl

from ..processes import Process

_ENDED = "ended"


def periods(spans: pl.DataFrame, states: list[str], processes: Iterable[Process] = ()) -> pl.DataFrame:
    """`process, step, period_ns`: how long each step took each process, by process and step.

    Until its next step began, where that has the next number; else until the last of its ranges ended. A last step
    that may not be over, since its process has not ended, is left out unless it is the only one.

    Args:
        spans: as `inside.sums` gives them; those of a step count together.
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
    not_ended = [process for process, state in enumerate(states) if state != _ENDED]
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


def shares(of_steps: pl.DataFrame, periods: pl.DataFrame) -> pl.DataFrame:
    """`stage, process, share_ratio`: of all the time of the process's steps, how much it was in the stage.

    Args:
        of_steps: as `stages.by_step` gives them.
    """
    together = of_steps.join(periods, on=["process", "step"], how="inner")
    inside = together.group_by("stage", "process").agg(pl.col("total_ns").sum())
    whole = periods.group_by("process").agg(pl.col("period_ns").sum())
    ratio = pl.col("total_ns") / pl.col("period_ns")
    return inside.join(whole, on="process").select(
        "stage", "process", share_ratio=pl.when(pl.col("period_ns") > 0).then(ratio)
    )
