"""Attributes by name as columns with types: without a JSON text in between."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from ..store import records
from .decode import I64, U8, U64, Attributes

_TEXTS = (records.TEXT, records.OTHER)


class Values(NamedTuple):
    """Of one attribute in one block: the rows that have it, and its values as they are recorded."""

    rows: I64
    value: U64
    value_type: U8
    texts: dict[int, str]


def named(attributes: Attributes, texts: dict[int, str], names: Sequence[str], first_row: int) -> dict[str, Values]:
    """The values of these attributes in a block; those that it has none of are left out.
    `first_row`: the place of the block's first row among the rows of its chunk.
    """
    if not names or not len(attributes.owner):
        return {}
    wanted = set(names)
    keys: dict[str, list[int]] = {}
    for key, text in texts.items():
        if text in wanted:
            keys.setdefault(text, []).append(key)
    is_shown = (attributes.value_type >= min(records.SHOWN)) & (attributes.value_type <= max(records.SHOWN))
    places = {name: np.flatnonzero(is_shown & np.isin(attributes.key, keys[name])) for name in keys}
    return {
        name: Values(attributes.owner[at] + first_row, attributes.value[at], attributes.value_type[at], texts)
        for name, at in places.items()
        if len(at)
    }


def column(name: str, rows: int, parts: Sequence[Values]) -> pl.Series:
    """One attribute of a chunk: Int64, Float64, Boolean or String, by what the values are; null where there is none.

    Of different types: a text beside anything makes all texts, a float beside an integer makes floats. Of an attribute
    that was given twice, the last counts.
    """
    types = {int(kind) for part in parts for kind in np.unique(part.value_type)} - {records.NULL}
    if not types:
        return pl.Series(name, [], dtype=pl.Null).extend_constant(None, rows)
    if types & set(_TEXTS):
        return _texts(name, rows, parts)
    if types == {records.BOOL}:
        return _put(name, rows, parts, np.bool_, lambda part: part.value.astype(np.bool_))
    if records.FLOAT in types:
        return _put(name, rows, parts, np.float64, _floats)
    return _put(name, rows, parts, np.int64, lambda part: part.value.view(np.int64))


def _floats(part: Values) -> npt.NDArray[np.float64]:
    whole = part.value.view(np.int64).astype(np.float64)
    return np.where(part.value_type == records.FLOAT, part.value.view(np.float64), whole)


def _put(name: str, rows: int, parts: Sequence[Values], dtype: Any, read: Any) -> pl.Series:
    values, has_one = np.zeros(rows, dtype=dtype), np.zeros(rows, dtype=bool)
    for part in parts:
        values[part.rows] = read(part)
        has_one[part.rows] = part.value_type != records.NULL
    frame = pl.DataFrame({"value": values, "has_one": has_one})
    return frame.select(pl.when("has_one").then("value").alias(name))[name]


def _texts(name: str, rows: int, parts: Sequence[Values]) -> pl.Series:
    listed: list[str | None] = [None] * rows
    for part in parts:
        for row, value, value_type in zip(part.rows.tolist(), part.value.tolist(), part.value_type.tolist()):
            held = records.value_of(value_type, value, part.texts)
            listed[row] = None if held is None else str(held).lower() if isinstance(held, bool) else str(held)
    return pl.Series(name, listed, dtype=pl.String)
