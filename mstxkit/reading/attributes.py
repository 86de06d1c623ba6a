"""Attribute records to one JSON text a range, and the busy time of driven ranges."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..store import records
from .decode import I64, Attributes

Objects = npt.NDArray[np.object_]


def busy_ticks(attributes: Attributes) -> tuple[I64, I64]:
    """(rows, ticks really spent inside) of the ranges that have them."""
    is_busy = attributes.value_type == records.BUSY
    return attributes.owner[is_busy], attributes.value[is_busy].view(np.int64)


def json_texts(attributes: Attributes, texts: dict[int, str]) -> tuple[I64, list[str]]:
    """(rows, JSON objects) of the ranges that have attributes. *Cost*: about half a microsecond an attribute."""
    wanted = np.isin(attributes.value_type, records.SHOWN)
    value, key = attributes.value[wanted], attributes.key[wanted]
    value_type, owner = attributes.value_type[wanted], attributes.owner[wanted]
    if not len(owner):
        return owner, []
    distinct, places = np.unique(key, return_inverse=True)
    prefixes = [as_json(texts.get(k, f"(unknown {k})")) + ":" for k in distinct.tolist()]
    members: Objects = np.array(prefixes, dtype=object)[places] + _values(value, value_type, texts)
    starts = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    if len(starts) == len(owner):
        return owner, ["{" + member + "}" for member in members]
    stops = [*starts[1:].tolist(), len(owner)]
    listed = members.tolist()
    return owner[starts], ["{" + ",".join(listed[a:b]) + "}" for a, b in zip(starts.tolist(), stops)]


def _values(value: npt.NDArray[np.uint64], value_type: npt.NDArray[np.uint8], texts: dict[int, str]) -> Objects:
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
