"""Rows that were compacted, in the form of the run's own tables, and together with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Mapping, Sequence

from ...store.dataset import MARKS, RANGES, STAGE_ROWS

if TYPE_CHECKING:
    import polars as pl


def of_kind(kind: str, rows: pl.DataFrame, columns: Sequence[str], named: Sequence[str] = ()) -> pl.DataFrame:
    """The columns of a table of that kind.

    Args:
        named: Which of them are attributes: they are read from the JSON text.
    """
    import polars as pl

    kept = rows.filter(pl.col("is_stage").fill_null(False)) if kind == STAGE_ROWS else rows
    return kept.with_columns(attribute(kept, name) for name in named).select(columns)


def attribute(rows: pl.DataFrame, name: str) -> pl.Series:
    """One attribute of each row, of the narrowest type that all its values have."""
    import json

    import polars as pl

    values = [_member(text, name, json.loads) for text in rows["attributes"].to_list()]
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pl.Series(name, values, dtype=pl.Null)
    if kinds == {str} or not kinds <= {int, float, bool}:
        texts = [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]
        return pl.Series(name, texts, dtype=pl.String)
    dtype = pl.Boolean if kinds == {bool} else pl.Int64 if kinds == {int} else pl.Float64
    return pl.Series(name, values, dtype=dtype, strict=False)


def _member(text: str | None, name: str, loads: object) -> object:
    try:
        value = None if text is None else loads(text)  # type: ignore[operator]
    except (ValueError, RecursionError):
        return None
    return value.get(name) if isinstance(value, dict) else None


def joined(compacted: Iterable[pl.DataFrame], own: pl.DataFrame) -> pl.DataFrame:
    """Of both, what was compacted first; types are those of the run's own table."""
    import polars as pl

    texts = [name for name, dtype in own.schema.items() if dtype == pl.Categorical]
    pieces = [rows.with_columns(pl.col(texts).cast(pl.String)) for rows in (*compacted, own) if rows.height]
    if not pieces:
        return own
    return pl.concat(pieces, how="vertical_relaxed").with_columns(pl.col(texts).cast(pl.Categorical))


def batch(
    kinds: Mapping[str, Sequence[pl.DataFrame]], none: tuple[pl.DataFrame, pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(ranges, marks) as `Run.batches()` gives them.

    Args:
        kinds: Of each kind that there is, its rows in pieces.
        none: Both without rows, for their columns and types.
    """
    import polars as pl

    def typed(kind: str, form: pl.DataFrame) -> pl.DataFrame:
        columns = [pl.col(name).cast(dtype) for name, dtype in form.schema.items()]
        return pl.concat([form, *(rows.select(columns) for rows in kinds.get(kind, ()))])

    ranges, marks = none
    return typed(RANGES, ranges), typed(MARKS, marks)
