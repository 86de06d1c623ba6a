"""Histograms of durations that can be added up: a bucket is a sixteenth of an octave.

Bucket b holds durations from 2**(b/16) to 2**((b+1)/16) ns, so a quantile that is read from a histogram is at most
2.2 % off the duration that really stands there (`ERROR_RATIO`). Summaries keep the buckets that are not empty; of a
single occurrence none, since its duration says which one it is in.
"""

from __future__ import annotations

import inspect

import polars as pl

PER_OCTAVE = 16
# From the middle of a bucket to its ends, as a share: 2**(1/32) - 1.
ERROR_RATIO = 2 ** (1 / (2 * PER_OCTAVE)) - 1


def bucket(duration_ns: pl.Expr) -> pl.Expr:
    """The bucket of each duration; 0 of what is not above 1 ns."""
    return (duration_ns.clip(lower_bound=1).cast(pl.Float64).log(2) * PER_OCTAVE).floor().cast(pl.UInt16)


def middle_ns(bucket: pl.Expr) -> pl.Expr:
    """The duration in the middle of a bucket, which is no more than ERROR_RATIO off any in it."""
    return pl.lit(2.0).pow((bucket.cast(pl.Float64) + 0.5) / PER_OCTAVE)


def of_each(occurrences: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """`buckets` and `bucket_counts`, lists as long as each other, of the durations of each key; null of single ones."""
    counted = occurrences.group_by(*key, bucket(pl.col("duration_ns")).alias("bucket")).agg(n=pl.len().cast(pl.UInt64))
    lists = as_lists(counted, key)
    several = pl.col("bucket_counts").list.sum() > 1
    return lists.select(*key, pl.when(several).then("buckets"), pl.when(several).then("bucket_counts"))


def as_lists(counted: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """`buckets` and `bucket_counts` of each key, of `bucket` and `n`."""
    in_order = counted.sort("bucket").group_by(key, maintain_order=True)
    return in_order.agg(buckets=pl.col("bucket"), bucket_counts=pl.col("n").cast(pl.UInt32))


def counts(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """`bucket` and `n`, the occurrences in it, of each key; those of several tables add up.
    `rows`: `count, longest_ns, buckets, bucket_counts` and the columns of `key`.
    """
    is_single = pl.col("buckets").is_null()
    singles = rows.filter(is_single).group_by(*key, bucket(pl.col("longest_ns")).alias("bucket")).agg(
        n=pl.col("count").cast(pl.UInt64).sum()
    )  # fmt: skip
    several = rows.filter(~is_single).select(*key, bucket="buckets", n="bucket_counts")
    # polars 1.44 warns where this is not said, and earlier ones do not know it; no list is empty here.
    is_known = "empty_as_null" in inspect.signature(pl.DataFrame.explode).parameters
    options = {"empty_as_null": False} if is_known else {}
    lists = several.explode("bucket", "n", **options).select(*key, "bucket", pl.col("n").cast(pl.UInt64))
    return pl.concat([singles, lists]).group_by(*key, "bucket").agg(pl.col("n").sum())


def quantiles(counted: pl.DataFrame, key: list[str], shares: dict[str, float]) -> pl.DataFrame:
    """A column for each share, in ns: that of all occurrences of each key. `counted`: as `counts` gives them; `shares`:
    the name of each column, and which share of the occurrences is below it.
    """
    summed = counted.group_by(*key, "bucket").agg(pl.col("n").sum()).sort("bucket")
    below = summed.with_columns(until=pl.col("n").cum_sum().over(key), all=pl.col("n").sum().over(key))
    return below.group_by(key).agg(
        middle_ns(pl.col("bucket").filter(pl.col("until") >= share * pl.col("all")).min()).alias(name)
        for name, share in shares.items()
    )
