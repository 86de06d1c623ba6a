"""What a Perfetto trace shows beside the ranges: counters, and ranges of single samples once more, one by one."""

from __future__ import annotations

from typing import Iterator

import numpy as np
import polars as pl

from ... import stages
from ..frames import NAMED
from ..rows import IS_MARK, IS_OPEN
from ..vocabulary import Vocabulary
from . import _track_events as events
from ._lanes import LaneEvents
from ._places import Places
from ._slices import rows_backwards

# What a counter is called, its unit, and the attributes that it is made of.
COUNTERS = {
    "tokens": ("tokens", ("tokens",)),
    "buffer": ("items", ("buffer", "buffer_size", "queue", "queue_size")),
    "weight version": ("version", ("weight_version", "policy_version", "model_version", "param_version")),
}
# Attributes that say of which sample a range of generation is.
SAMPLES = ("sample", "sample_id", "sample_index", "request_id")
ATTRIBUTES = (*(name for _, names in COUNTERS.values() for name in names), *SAMPLES)
_GENERATE = "actor_generate"


def counters(piece: pl.DataFrame, places: Places, first_ns: int) -> Iterator[bytes]:
    """Values of counters, of compact rows: a range's when it ended."""
    for name, (unit, attributes) in COUNTERS.items():
        for attribute in (NAMED + attribute for attribute in attributes):
            if not piece[attribute].dtype.is_numeric():
                continue
            rows = piece.filter(pl.col(attribute).is_not_null() & (pl.col("flags") & IS_OPEN == 0))
            if not rows.height:
                continue
            process = rows["process"].to_numpy().astype(np.int64)
            different, place = np.unique(process, return_inverse=True)
            tracks = np.array([places.counter(each, name, unit) for each in different.tolist()])[place]
            at = rows["start_ns"].to_numpy() + np.maximum(rows["duration_ns"].to_numpy(), 0) - first_ns
            values = rows[attribute].cast(pl.Float64).to_numpy()
            yield events.counters(values, at=at, track=tracks, sequence=process + places.sequence(0))


def samples(piece: pl.DataFrame, vocabulary: Vocabulary, places: Places, lanes: LaneEvents) -> Iterator[bytes]:
    """Ranges of generation that say of which sample they are, called by it."""
    sample = pl.coalesce(pl.col(NAMED + name).cast(pl.String) for name in SAMPLES)
    codes = [code for code, key in enumerate(vocabulary.stages) if key and stages.canonical(key) == _GENERATE]
    is_generation = pl.col("stage").is_in(pl.Series(codes, dtype=pl.UInt32).implode())
    is_range = pl.col("flags") & (IS_OPEN | IS_MARK) == 0
    shown = piece.with_columns(shown=sample).filter(pl.col("shown").is_not_null() & is_generation & is_range)
    for row, name in zip(rows_backwards(shown, vocabulary, 0), shown["shown"].to_list()[::-1]):
        track = places.alone(row, "sample", places.samples(row.process))
        yield lanes.once_more(row._replace(name=name), track)
