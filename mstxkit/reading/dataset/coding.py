"""Rows that were compacted, with codes in place of texts again, as `RunFiles.coded` gives those of sealed files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

import numpy as np

from ...store.dataset import MARKS
from ...store.livefile import SiteText
from ...store.records import NO_STEP
from ..rows import IS_ERROR, IS_MARK, IS_OPEN, NO_DURATION, Need
from . import joining

if TYPE_CHECKING:
    import polars as pl

    from ..vocabulary import Vocabulary

_SITE = ("name", "domain", "is_stage")


def coded(kinds: Mapping[str, pl.DataFrame], vocabulary: Vocabulary, need: Need) -> pl.DataFrame:
    """Ranges and marks of one process, compact, in the order in which they ended; one of the two at least."""
    import polars as pl

    frames = [
        _from_marks(rows) if kind == MARKS else rows.with_columns(flags=pl.lit(0)) for kind, rows in kinds.items()
    ]
    rows = pl.concat([_of_one_form(frame, vocabulary, need) for frame in frames], how="vertical_relaxed")
    return rows[_order(rows)] if len(frames) > 1 else rows


def _order(rows: pl.DataFrame) -> np.ndarray[Any, Any]:
    """Ranges as they are kept, and a mark before the first one that ended at its time or later."""
    is_mark = rows["flags"].to_numpy() & IS_MARK != 0
    end = rows["start_ns"].to_numpy() + np.maximum(rows["duration_ns"].to_numpy(), 0)
    ends = np.maximum.accumulate(end[~is_mark])
    place = np.empty(len(end), dtype=np.int64)
    place[~is_mark] = 2 * np.arange(len(ends)) + 1
    place[is_mark] = 2 * np.searchsorted(ends, end[is_mark])
    return np.argsort(place, kind="stable")


def _from_marks(marks: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return marks.with_columns(
        name="message", start_ns="time_ns", duration_ns=pl.lit(0), is_stage=pl.lit(False), open=pl.lit(False),
        error=pl.lit(False), busy_ns=pl.lit(None, dtype=pl.Int64), flags=pl.lit(IS_MARK),
    )  # fmt: skip


def _of_one_form(rows: pl.DataFrame, vocabulary: Vocabulary, need: Need) -> pl.DataFrame:
    import polars as pl

    texts = rows.with_columns(pl.col("name", "domain", "stage").cast(pl.String))
    flags = pl.col("flags") + pl.col("open") * IS_OPEN + pl.col("error") * IS_ERROR
    named = [joining.attribute(rows, name).alias(f"@{name}") for name in need.columns]
    return texts.select(
        pl.col("process").cast(pl.UInt32), _sites(texts, vocabulary), _stages(texts, vocabulary),
        pl.col("track").cast(pl.UInt16), pl.col("depth").cast(pl.UInt8), flags.cast(pl.UInt8).alias("flags"),
        pl.col("step").fill_null(NO_STEP).cast(pl.UInt32), "start_ns",
        pl.col("duration_ns").fill_null(NO_DURATION).cast(pl.Int64), "busy_ns", "attributes", *named,
    )  # fmt: skip


def _sites(texts: pl.DataFrame, vocabulary: Vocabulary) -> pl.Series:
    import polars as pl

    different = texts.select(_SITE).unique()
    codes = [vocabulary.site_code(SiteText(name, domain, int(own or 0))) for name, domain, own in different.iter_rows()]
    numbered = different.with_columns(pl.Series("site", codes, dtype=pl.UInt32))
    return texts.select(_SITE).join(numbered, on=_SITE, how="left", maintain_order="left", nulls_equal=True)["site"]


def _stages(texts: pl.DataFrame, vocabulary: Vocabulary) -> pl.Series:
    import polars as pl

    stages = texts["stage"]
    codes = {stage: vocabulary.stage_code(stage) for stage in stages.drop_nulls().unique()}
    listed = [0 if stage is None else codes[stage] for stage in stages.to_list()]
    return pl.Series("stage", listed, dtype=pl.UInt32)
