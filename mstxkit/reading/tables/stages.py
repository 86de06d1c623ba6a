"""How often each process went through each stage, and how long it was inside; what killed processes were inside of."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..intervals import new_in_groups

FOREVER_NS = (1 << 63) - 1
KILLED, LEFT = "killed", "left"
# Attributes by which an occurrence says how much work it did.
WORK = ("tokens", "prompts")
_STAGE = ("process", "stage")
_KEY = ("process", "rank", "role", "pid", "step", "stage", "part", "waits_for")
_BY_STEP = (
    "step", "stage", "rank", "role", "pid", "count", "total_ns", "start_ns", "end_ns", "part", "waits_for", "process",
)  # fmt: skip


def pick_outermost(stage_rows: pl.DataFrame, is_sorted: bool = True) -> pl.DataFrame:
    """The ended occurrences of stages that are not inside another occurrence of the same stage on their track.

    By begin; where all are of one depth and they need not be sorted, as they come. Inside: begun while one of smaller
    depth was going on. Occurrences of equal depth that overlap are siblings (a suspended coroutine leaves its track to
    others). What is inside an occurrence that is still open does not count. `stage_rows`: one an occurrence: `process,
    track, stage, depth, start_ns, duration_ns` (null: open), …
    """
    has_ended, is_inside = pl.col("duration_ns").is_not_null(), pl.lit(False)
    depths = stage_rows["depth"].unique().sort().to_list()
    rows = stage_rows.sort("start_ns", "depth") if is_sorted or len(depths) > 1 else stage_rows
    end_ns = pl.when(has_ended).then(pl.col("start_ns") + pl.col("duration_ns")).otherwise(FOREVER_NS)
    for depth in depths[1:]:
        until_ns = pl.when(pl.col("depth") < depth).then(end_ns).cum_max().forward_fill().over(*_STAGE, "track")
        is_inside = is_inside | ((pl.col("depth") == depth) & (pl.col("start_ns") < until_ns).fill_null(False))
    return rows.filter(has_ended & ~is_inside)


def by_step(occurrences: pl.DataFrame) -> pl.DataFrame:
    """By step, stage and rank, of outermost ones: `step, stage, rank, role, pid, count, total_ns, start_ns, end_ns,
    part, waits_for, process`.

    `total_ns` is the union of their time across the tracks of their process: two threads in one
    stage at once count once. *Cost*: about 0.4 µs an occurrence.
    """
    by = ("step", pl.col("stage").cast(pl.String), "process", "waits_for", "start_ns")
    rows, key = occurrences.sort(*by, maintain_order=True), pl.col("step", "stage", "process", "waits_for")
    starts = rows["start_ns"].to_numpy()
    ends = starts + rows["duration_ns"].to_numpy()
    is_first = rows.select(pl.any_horizontal(key.ne_missing(key.shift()))).to_series().to_numpy().copy()
    is_first[:1] = True
    first = np.flatnonzero(is_first)
    sums = {
        "count": np.diff(first, append=rows.height).astype(np.int64),
        "total_ns": np.add.reduceat(new_in_groups(is_first, starts, ends), first) if len(first) else starts,
        "start_ns": starts[first],
        "end_ns": np.maximum.reduceat(ends, first) if len(first) else ends,
    }
    who = rows.select(_KEY)[first]
    return who.with_columns(pl.Series(name, values) for name, values in sums.items()).select(*_BY_STEP)


def sum_column(column: pl.Expr) -> pl.Expr:
    """Their sum; null where all are."""
    return pl.when(column.is_not_null().any()).then(column.sum())


def per_step(rows: pl.DataFrame, who: str) -> pl.DataFrame:
    """`stage, <who>, steps, step_ns`: how long each is in a stage in a step. Of each stage, the slowest comes first.

    Everything that calls somebody slow goes by this. `step_ns` is the mean over the steps in which `who` had the stage,
    so many as `steps`. What is in no step does not count where anybody was in the stage in a step, and who was there in
    no step only has no row. Where nobody was, the whole run is one step, and `steps` is 0.

    Args:
        rows: with `stage, step, total_ns` and `who`, as `by_step` and `Run.stages()` have them.
        who: the column of those who are compared, `process` or `rank`; several rows of one in a step add up.
    """
    has_no_steps = pl.col("step").is_null().all().over("stage")
    in_steps = rows.filter(pl.col("step").is_not_null() | has_no_steps)
    of_steps = in_steps.group_by("stage", who, "step").agg(pl.col("total_ns").sum())
    steps = pl.col("step").is_not_null().sum().cast(pl.Int64)
    means = of_steps.group_by("stage", who).agg(steps=steps, step_ns=pl.col("total_ns").mean())
    return means.sort(pl.col("stage").cast(pl.String), "step_ns", who, descending=[False, True, False])


def find_middle(count: int) -> int:
    """Of so many, the slowest first, which is in the middle: of two, the faster one."""
    return count // 2


def new_ns(key: tuple[str, ...]) -> pl.Expr:
    """How much of each row's time no earlier row of its `key` covers (rows sorted by start): its sum is their union."""
    end_ns = pl.col("start_ns") + pl.col("duration_ns")
    covered_until = end_ns.cum_max().shift(1).over(*key)
    return (end_ns - pl.max_horizontal("start_ns", covered_until)).clip(lower_bound=0)


def by_process(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`stage, process, rank, host, pid, role, count, total_ns, mean_ns, p50_ns, p99_ns, first_ns`, and a step's.

    Of the outermost occurrences, stages in order of begin, of each the slowest process first, by `step_ns`. `total_ns`
    is the union over the tracks of the process; mean and percentiles are those of single occurrences.

    - `steps, step_ns` as `per_step` gives them (null: this process was in the stage in no step, others were), and
      `step_count`: occurrences a step;
    - `stepless`: so many occurrences in no step;
    - `tokens, token_ns, prompts, prompt_ns`: the work that occurrences say they did, and the time of one of it.
    """
    key = ("process", "stage")
    rows = occurrences.sort("start_ns").with_columns(new_ns=new_ns(key))
    per_process = rows.group_by("stage", "process", "rank", "host", "pid", "role").agg(
        count=pl.len().cast(pl.Int64),
        total_ns=pl.col("new_ns").sum(),
        **_of_single_ones(),
        first_ns=pl.col("start_ns").min(),
        stepless=pl.col("step").is_null().sum().cast(pl.Int64),
    )
    step_count = (pl.col("count") - pl.col("stepless")) / pl.col("steps")
    per_process = per_process.join(per_step(by_step(occurrences), "process"), on=["stage", "process"], how="left")
    for work in WORK:  # of the occurrences that say how much they did: all of it, and the union of their time over that
        says_so = rows.filter(pl.col(work).is_finite() & (pl.col(work) > 0)).with_columns(new_ns=new_ns(_STAGE))
        sums = says_so.group_by("stage", "process").agg(pl.col(work).sum(), ns=pl.col("new_ns").sum())
        of_one = sums.with_columns((pl.col("ns") / pl.col(work)).alias(f"{work[:-1]}_ns")).drop("ns")
        per_process = per_process.join(of_one, on=["stage", "process"], how="left")
    per_process = per_process.with_columns(step_count=pl.when(pl.col("steps") > 0).then(step_count))
    ordered = per_process.with_columns(stage_first_ns=pl.col("first_ns").min().over("stage"))
    slowest_first = (-pl.col("step_ns").fill_null(-1), -pl.col("total_ns"), "process")
    return ordered.sort("stage_first_ns", pl.col("stage").cast(pl.String), *slowest_first).drop("stage_first_ns")


def sum_occurrences(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`stage, count, mean_ns, p50_ns, p99_ns`: single occurrences of a stage over all processes."""
    return occurrences.group_by("stage").agg(count=pl.len().cast(pl.Int64), **_of_single_ones())


def _of_single_ones() -> dict[str, pl.Expr]:
    ns = pl.col("duration_ns")
    percentiles = {f"p{p}_ns": ns.quantile(p / 100, interpolation="nearest") for p in (50, 99)}
    return {"mean_ns": ns.mean(), **percentiles}


def find_endings(processes: pl.DataFrame, open_ranges: pl.DataFrame) -> pl.DataFrame:
    """The innermost open range on each track of each process that is gone without a word, the one entered last first.

    `row, track, step, stage, name, domain, start_ns, open_ns`; `row` is the process's row in `processes`; `open_ns` is
    from its begin until the process was last seen. Both tables are as `Run` gives them.
    """
    gone = processes.with_row_index("row").filter(pl.col("state").is_in((KILLED, LEFT))).select("row", "last_seen_ns")
    innermost = open_ranges.sort("depth", "start_ns").group_by("process", "track", maintain_order=True).last()
    return (
        innermost.rename({"process": "row"})
        .join(gone, on="row", how="inner")
        .with_columns(open_ns=(pl.col("last_seen_ns") - pl.col("start_ns")).clip(lower_bound=0))
        .sort(["row", "start_ns", "track"], descending=[False, True, False])
        .select("row", "track", "step", "stage", "name", "domain", "start_ns", "open_ns")
    )
