"""One row a process, step and stage: what is always kept of a run, however old. And tables of stages made of these.

`process, rank, role, host, pid, part, step, stage, count, total_ns, busy_ns, longest_ns, start_ns, end_ns, tokens,
waits_for, buckets, bucket_counts`: `count` outermost occurrences that have ended, `total_ns` the union of their time,
`busy_ns` time really spent inside, where ranges say so, `longest_ns` the longest one, `buckets` a histogram.
A step that two batches hold parts of has a row of each: they add up. And one row a process, stage and day
(`of_days`), which tables over many steps are made of.

Histograms of durations can be added up: bucket b, a sixteenth of an octave, holds durations from 2**(b/16) to
2**((b+1)/16) ns, so a quantile that is read from one is at most 2.2 % off the duration that really stands there
(`ERROR_RATIO`). The buckets that are not empty are kept; of a single occurrence none, as its duration says its bucket.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Iterable

import polars as pl

from ...errors import ReadError
from ...store import dataset
from ..tables import stages, waits
from . import columns

DAY_NS = 86_400 * 10**9
PER_OCTAVE = 16
# From the middle of a bucket to its ends, as a share: 2**(1/32) - 1.
ERROR_RATIO = 2 ** (1 / (2 * PER_OCTAVE)) - 1
_KEY = ["process", "step", "stage", "waits_for"]
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SUMMED = ("count", "total_ns", "busy_ns", "tokens")
# What a table of stages can be by.
BY = ("stage", "rank", "role", "host", "step", "process")


def of_stage_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Summaries of occurrences of stages, open and nested ones too, as `RunFiles.stage_rows` has them, with `busy_ns`.
    `rows`: with `process` as its row in `processes()`.
    """
    both = (waits.only_work(rows), waits.only_waits(rows))
    ended = pl.concat([stages.pick_outermost(part) for part in both])
    own = ended.group_by(_KEY).agg(
        busy_ns=stages.sum_column(pl.col("busy_ns")),
        longest_ns=pl.col("duration_ns").max(),
        tokens=stages.sum_column(pl.col("tokens")),
    )
    summed = stages.by_step(ended).join(own, on=_KEY, how="left", nulls_equal=True)
    counted = ended.group_by(*_KEY, find_bucket(pl.col("duration_ns")).alias("bucket")).agg(n=pl.len().cast(pl.UInt64))
    several = pl.col("bucket_counts").list.sum() > 1  # of single ones the histogram is null
    lists = _as_lists(counted, _KEY).select(*_KEY, *(pl.when(several).then(n) for n in ("buckets", "bucket_counts")))
    return summed.join(lists, on=_KEY, how="left", nulls_equal=True)


def of_days(summaries: pl.DataFrame) -> pl.DataFrame:
    """A row a process, stage and UTC day: what summaries of that day come to, `steps` and `rows` of them, and the
    histogram of all occurrences.
    """
    dated = summaries.with_columns(day=pl.col("start_ns") // DAY_NS)
    key = ["process", "stage", "waits_for", "day"]
    who = [pl.col(name).last() for name in ("rank", "role", "host", "pid", "part")]
    summed = dated.group_by(key).agg(
        *who, *map(stages.sum_column, map(pl.col, _SUMMED)), pl.col("longest_ns").max(), pl.col("start_ns").min(),
        steps=pl.col("step").drop_nulls().n_unique().cast(pl.Int64), rows=pl.len().cast(pl.Int64),
    )  # fmt: skip
    lists = _as_lists(_count_buckets(dated, key), key)
    return summed.join(lists, on=key, how="left", nulls_equal=True).drop("day").sort("process", "stage")


def table(
    run: Path, by: Iterable[str] = ("stage",), days: Iterable[str] | None = None, roles: Iterable[str] | None = None
) -> pl.DataFrame:
    """How long stages take, of days of a run that was compacted: columns of `by`, then `steps, count, total_ns,
    busy_ns, longest_ns, mean_ns, p50_ns, p99_ns, tokens`, what took longest in all first.

    `steps` are those of a process on the day on which it has most; `mean_ns` is the time in a stage of one process in
    one step (each part counts of a step that two calls of compact have, where `step` is not in `by`); `p50_ns` and
    `p99_ns` are of single occurrences, and at most `ERROR_RATIO` (2.2 %) off. What a controller waits for is
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
    rows = pl.concat([columns.read_rows(file, kind) for file in _list_files(run, days, kind)])
    is_asked = pl.lit(True) if roles is None else pl.col("role").is_in(list(roles))
    rows = rows.filter(pl.col("waits_for").is_null() & is_asked)
    sums = rows.group_by(key).agg(
        *map(stages.sum_column, map(pl.col, _SUMMED)), pl.col("longest_ns", *steps).max(),
        mean_ns=pl.col("total_ns").sum() / (pl.col("rows").sum() if steps else pl.struct(_KEY).n_unique()),
    )  # fmt: skip
    until, every = pl.col("n").cum_sum().over(key), pl.col("n").sum().over(key)
    below = _count_buckets(rows, key).sort("bucket").with_columns(until=until, all=every)
    shares = {"p50_ns": 0.5, "p99_ns": 0.99}  # of the occurrences that are below it
    least = (pl.col("bucket").filter(pl.col("until") >= share * pl.col("all")).min() for share in shares.values())
    # In the middle of a bucket: no more than ERROR_RATIO off any duration in it.
    octaves = ((bucket.cast(pl.Float64) + 0.5) / PER_OCTAVE for bucket in least)
    quantiles = below.group_by(key).agg(pl.lit(2.0).pow(of).alias(name) for name, of in zip(shares, octaves))
    together = sums.join(quantiles, on=key, how="left", nulls_equal=True)
    named = (*key, *steps, "count", "total_ns", "busy_ns", "longest_ns", "mean_ns", "p50_ns", "p99_ns", "tokens")
    return together.select(named).sort("total_ns", *key, descending=[True] + [False] * len(key), nulls_last=True)


def _list_files(run: Path, days: Iterable[str] | None, kind: str) -> list[Path]:
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


def find_bucket(duration_ns: pl.Expr) -> pl.Expr:
    """The bucket of each duration; 0 of what is not above 1 ns."""
    return (duration_ns.clip(lower_bound=1).cast(pl.Float64).log(2) * PER_OCTAVE).floor().cast(pl.UInt16)


def _as_lists(counted: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """`buckets` and `bucket_counts` of each key, of `bucket` and `n`."""
    in_order = counted.sort("bucket").group_by(key, maintain_order=True)
    return in_order.agg(buckets=pl.col("bucket"), bucket_counts=pl.col("n").cast(pl.UInt32))


def _count_buckets(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """`bucket` and `n`, the occurrences in it, of each key; those of several tables add up.
    `rows`: `count, longest_ns, buckets, bucket_counts` and the columns of `key`.
    """
    is_single = pl.col("buckets").is_null()
    singles = rows.filter(is_single).group_by(*key, find_bucket(pl.col("longest_ns")).alias("bucket")).agg(
        n=pl.col("count").cast(pl.UInt64).sum()
    )  # fmt: skip
    several = rows.filter(~is_single).select(*key, bucket="buckets", n="bucket_counts")
    # polars 1.44 warns where this is not said, and earlier ones do not know it; no list is empty here.
    is_known = "empty_as_null" in inspect.signature(pl.DataFrame.explode).parameters
    options = {"empty_as_null": False} if is_known else {}
    lists = several.explode("bucket", "n", **options).select(*key, "bucket", pl.col("n").cast(pl.UInt64))
    return pl.concat([singles, lists]).group_by(*key, "bucket").agg(pl.col("n").sum())
