"""One row a process, step and stage: what is always kept of a run, however old. And tables of stages made of these.

`process, rank, role, host, pid, part, step, stage, count, total_ns, busy_ns, longest_ns, start_ns, end_ns, tokens,
waits_for, buckets, bucket_counts`: `count` outermost occurrences that have ended, `total_ns` the union of their time,
`busy_ns` time really spent inside, where ranges say so, `longest_ns` the longest one, `buckets` as in `histogram`.
A step that two batches hold parts of has a row of each: they add up. And one row a process, stage and day
(`of_days`), which tables over many steps are made of.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterable

import polars as pl

from ...errors import ReadError
from ...store import dataset
from ..tables import stages, waits
from . import columns, histogram

DAY_NS = 86_400 * 10**9
_KEY = ["process", "step", "stage", "waits_for"]
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SUMMED = ("count", "total_ns", "busy_ns", "tokens")
# What a table of stages can be by.
BY = ("stage", "rank", "role", "host", "step", "process")


def of_stage_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Summaries of occurrences of stages, open and nested ones too, as `Run.stage_rows()` has them, with `busy_ns`.
    `rows`: with `process` as its row in `processes()`.
    """
    both = (waits.only_work(rows), waits.only_waits(rows))
    ended = pl.concat([stages.outermost(part) for part in both])
    own = ended.group_by(_KEY).agg(
        busy_ns=stages.summed(pl.col("busy_ns")),
        longest_ns=pl.col("duration_ns").max(),
        tokens=stages.summed(pl.col("tokens")),
    )
    summed = stages.by_step(ended).join(own, on=_KEY, how="left", nulls_equal=True)
    return summed.join(histogram.of_each(ended, _KEY), on=_KEY, how="left", nulls_equal=True)


def of_days(summaries: pl.DataFrame) -> pl.DataFrame:
    """A row a process, stage and UTC day: what summaries of that day come to, `steps` and `rows` of them, and the
    histogram of all occurrences.
    """
    dated = summaries.with_columns(day=pl.col("start_ns") // DAY_NS)
    key = ["process", "stage", "waits_for", "day"]
    who = [pl.col(name).last() for name in ("rank", "role", "host", "pid", "part")]
    summed = dated.group_by(key).agg(
        *who, *map(stages.summed, map(pl.col, _SUMMED)), pl.col("longest_ns").max(), pl.col("start_ns").min(),
        steps=pl.col("step").drop_nulls().n_unique().cast(pl.Int64), rows=pl.len().cast(pl.Int64),
    )  # fmt: skip
    lists = histogram.as_lists(histogram.counts(dated, key), key)
    return summed.join(lists, on=key, how="left", nulls_equal=True).drop("day").sort("process", "stage")


def table(
    run: Path, by: Iterable[str] = ("stage",), days: Iterable[str] | None = None, roles: Iterable[str] | None = None
) -> pl.DataFrame:
    """How long stages take, of days of a run that was compacted: columns of `by`, then `steps, count, total_ns,
    busy_ns, longest_ns, mean_ns, p50_ns, p99_ns, tokens`, what took longest in all first.

    `steps` are those of a process on the day on which it has most; `mean_ns` is the time in a stage of one process in
    one step (each part counts of a step that two calls of compact have, where `step` is not in `by`); `p50_ns` and
    `p99_ns` are of single occurrences, and at most `histogram.ERROR_RATIO` (2.2 %) off. What a controller waits for is
    left out. *Cost*: a row a process, stage and day is read; with `step` in `by`, each summary.

    Args:
        run: The run's folder.
        by: Of which things: any of BY.
        days: UTC days (`2026-11-24`); None: all.
        roles: Roles; None: all.

    Raises:
        ReadError: there is no summary of these, one of them cannot be read, or `by` names what there is not.
    """
    key = list(by)
    if not key or not set(key) <= set(BY):
        raise ReadError(f"by={key!r}: a table of stages is by any of {', '.join(BY)}")
    kind, steps = (dataset.SUMMARIES, ()) if "step" in key else (dataset.DAYS, ("steps",))
    rows = pl.concat([columns.read(file, kind) for file in _files(run, days, kind)])
    is_asked = pl.lit(True) if roles is None else pl.col("role").is_in(list(roles))
    rows = rows.filter(pl.col("waits_for").is_null() & is_asked)
    sums = rows.group_by(key).agg(
        *map(stages.summed, map(pl.col, _SUMMED)), pl.col("longest_ns", *steps).max(),
        mean_ns=pl.col("total_ns").sum() / (pl.col("rows").sum() if steps else pl.struct(_KEY).n_unique()),
    )  # fmt: skip
    quantiles = histogram.quantiles(histogram.counts(rows, key), key, {"p50_ns": 0.5, "p99_ns": 0.99})
    together = sums.join(quantiles, on=key, how="left", nulls_equal=True)
    named = (*key, *steps, "count", "total_ns", "busy_ns", "longest_ns", "mean_ns", "p50_ns", "p99_ns", "tokens")
    return together.select(named).sort("total_ns", *key, descending=[True] + [False] * len(key), nulls_last=True)


def _files(run: Path, days: Iterable[str] | None, kind: str) -> list[Path]:
    folder = run / dataset.FOLDER / kind
    wanted = [] if days is None else list(days)
    if wrong := [day for day in wanted if not _DAY.fullmatch(day)]:
        raise ReadError(f"{wrong[0]!r} is no day; a day is 2026-11-24")
    every = ["*"] if days is None else wanted
    files = [file for day in every for file in sorted(folder.glob(f"day={day}/role=*/host=*/*{dataset.SUFFIX}"))]
    if not files:
        there = sorted({path.name[4:] for path in folder.glob("day=*")})
        what = f"it has {there[0]} to {there[-1]}" if there else "it was not compacted: mstxkit collect RUN --compact"
        raise ReadError(f"{run}: no summaries of these days; {what}")
    return files
