"""Attribute records: to one JSON text a range, to columns with types by name, and the busy time of driven ranges."""

from __future__ import annotations

import json
import math
from typing import Any, Iterable, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from ..store import records
from .decode import I64, U8, U64, Attributes

Objects = npt.NDArray[np.object_]
_TEXTS = (records.TEXT, records.OTHER)
# How the attributes of a row begin that stands for several calls.
COALESCED = '{"coalesced":'


def json_texts(attributes: Attributes, texts: dict[int, str]) -> tuple[I64, list[str]]:
    """(rows, JSON objects) of the ranges that have attributes. *Cost*: about half a microsecond an attribute."""
    wanted = np.isin(attributes.value_type, records.SHOWN)
    value, key = attributes.value[wanted], attributes.key[wanted]
    value_type, owner = attributes.value_type[wanted], attributes.owner[wanted]
    if not len(owner):
        return owner, []
    distinct, places = np.unique(key, return_inverse=True)
    prefixes = [as_json(texts.get(k, f"(unknown {k})")) + ":" for k in distinct.tolist()]
    members: Objects = np.array(prefixes, dtype=object)[places] + _write_values(value, value_type, texts)
    starts = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    if len(starts) == len(owner):
        return owner, ["{" + member + "}" for member in members]
    stops = [*starts[1:].tolist(), len(owner)]
    listed = members.tolist()
    return owner[starts], ["{" + ",".join(listed[a:b]) + "}" for a, b in zip(starts.tolist(), stops)]


def _write_values(value: npt.NDArray[np.uint64], value_type: npt.NDArray[np.uint8], texts: dict[int, str]) -> Objects:
    listed = np.full(len(value), "null", dtype=object)
    is_int, is_float, is_bool = (value_type == t for t in (records.INT, records.FLOAT, records.BOOL))
    listed[is_int] = [str(v) for v in value[is_int].view(np.int64).tolist()]
    # JSON has no NaN and no infinities: they become the texts "nan", "inf" and "-inf".
    floats = value[is_float].view(np.float64).tolist()
    listed[is_float] = [repr(v) if math.isfinite(v) else f'"{v}"' for v in floats]
    listed[is_bool] = ["true" if v else "false" for v in value[is_bool].tolist()]
    is_text = (value_type == records.TEXT) | (value_type == records.OTHER)
    if is_text.any():
        distinct, places = np.unique(value[is_text], return_inverse=True)
        listed[is_text] = np.array([as_json(texts.get(t)) for t in distinct.tolist()], dtype=object)[places]
    return listed


def as_json(value: Any) -> str:
    """`value` as JSON that stays readable for people: only what must be is escaped."""
    return json.dumps(value, ensure_ascii=False)


class Values(NamedTuple):
    """Of one attribute in one block: the rows that have it, and its values as they are recorded."""

    rows: I64
    value: U64
    value_type: U8
    texts: dict[int, str]


def read_named(
    attributes: Attributes, texts: dict[int, str], names: Sequence[str], first_row: int
) -> dict[str, Values]:
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


def make_column(name: str, rows: int, parts: Sequence[Values]) -> pl.Series:
    """One attribute of a chunk: Int64, Float64, Boolean or String, by what the values are; null where there is none.

    Of different types: a text beside anything makes all texts, a float beside an integer makes floats. Of an attribute
    that was given twice, the last counts.
    """
    types = {int(kind) for part in parts for kind in np.unique(part.value_type)} - {records.NULL}
    if not types:
        return pl.Series(name, [], dtype=pl.Null).extend_constant(None, rows)
    if types & set(_TEXTS):
        return _put_texts(name, rows, parts)
    has_float, placed = records.FLOAT in types, []
    for part in parts:
        values: Any = part.value.view(np.int64)
        if has_float:
            values = np.where(part.value_type == records.FLOAT, part.value.view(np.float64), values)
        placed.append((part.rows, values, part.value_type != records.NULL))
    return put_values(name, rows, np.bool_ if types == {records.BOOL} else values.dtype, placed)


def put_values(name: str, rows: int, dtype: Any, parts: Iterable[tuple[I64, npt.NDArray[Any], Any]]) -> pl.Series:
    """A column of so many rows. `parts`: places, their values, and which of these are one; else there is null."""
    values, has_one = np.zeros(rows, dtype=dtype), np.zeros(rows, dtype=bool)
    for places, of_places, are_there in parts:
        values[places], has_one[places] = of_places, are_there
    frame = pl.DataFrame({"value": values, "has_one": has_one})
    return frame.select(pl.when("has_one").then("value").alias(name))[name]


def _put_texts(name: str, rows: int, parts: Sequence[Values]) -> pl.Series:
    listed: list[str | None] = [None] * rows
    for part in parts:
        for row, value, value_type in zip(part.rows.tolist(), part.value.tolist(), part.value_type.tolist()):
            held = records.value_of(value_type, value, part.texts)
            listed[row] = None if held is None else str(held).lower() if isinstance(held, bool) else str(held)
    return pl.Series(name, listed, dtype=pl.String)
