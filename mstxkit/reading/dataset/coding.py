"""Rows that were compacted, with codes in place of texts again, as `RunFiles.coded` gives those of sealed files."""

from __future__ import annotations

import json
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import polars as pl

from ...store.dataset import MARKS
from ...store.livefile import SiteText
from ...store.records import NO_STEP
from ..attributes import COALESCED
from ..frames import NAMED, WORK
from ..rows import IS_ERROR, IS_MARK, IS_OPEN, NO_DURATION, WAITS_FOR, Need
from ..vocabulary import UNKNOWN_TEXT, Vocabulary

_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
# When a row ended: what the order of rows goes by. A row that stands for several calls lies later than its end.
ENDED = "ended"
_FEW = 256
_BOTH = ("process", "track", "depth", "step", "domain", "stage", "attributes")
_OF_TEXTS = ("domain", "stage", "is_stage", "name", "message")
_OF_RANGES = ("is_stage", "name", "start_ns", "duration_ns", "busy_ns", "open", "error", WAITS_FOR)


def columns_of(kind: str, need: Need) -> tuple[str, ...]:
    """The columns of a file that rows are made of."""
    names = (*_BOTH, "message", "time_ns") if kind == MARKS else (*_BOTH, *_OF_RANGES, *_kept_apart(need))
    return names if need.texts else tuple(name for name in names if name not in _OF_TEXTS)


def _kept_apart(need: Need) -> list[str]:
    """Attributes that are taken from columns of their own: as numbers, where nobody asks for their types."""
    return [] if need.as_json else [name for name in need.names if name in WORK]


def encode_rows(
    rows: pl.DataFrame, kind: str, numbers: Mapping[str, int], vocabulary: Vocabulary, need: Need
) -> pl.DataFrame:
    """Rows of a file, compact, in their order, and when they `ENDED`.
    `numbers`: of the processes that are asked for, by name; rows of others are left out.
    """
    process = _replace_texts(rows["process"], lambda name: numbers.get(name, -1), pl.Int64)
    owned = rows.with_columns(process)
    if (process < 0).any():
        owned = owned.filter(pl.col("process") >= 0)
    whole = owned.with_columns(flags=pl.lit(0))
    if kind == MARKS:
        whole = owned.with_columns(
            **({"name": pl.col("message")} if "message" in owned.columns else {}), start_ns="time_ns",
            duration_ns=pl.lit(0), **dict.fromkeys(("is_stage", "open", "error"), pl.lit(False)),
            busy_ns=pl.lit(None, dtype=pl.Int64), flags=pl.lit(IS_MARK), waits_for=pl.lit(None, dtype=pl.String),
        )  # fmt: skip
    kept = whole.filter(pl.col("is_stage").fill_null(False)) if need.own_stages else whole
    return _of_one_form(kept, vocabulary, need)


def _of_one_form(rows: pl.DataFrame, vocabulary: Vocabulary, need: Need) -> pl.DataFrame:
    flags = pl.col("flags") + pl.col("open").fill_null(False) * IS_OPEN + pl.col("error").fill_null(False) * IS_ERROR
    apart = (WAITS_FOR, *_kept_apart(need))
    named = {name: rows[name] for name in need.columns if name in apart}
    named |= make_members(rows["attributes"], [name for name in need.columns if name not in apart])
    site, stage = pl.lit(0, pl.UInt32).alias("site"), pl.lit(0, pl.UInt32).alias("stage")
    if need.texts:
        site = pl.lit(_code_sites(rows, vocabulary))
        stage = pl.lit(_replace_texts(rows["stage"], vocabulary.stage_code, pl.UInt32))
    is_single = ~pl.col("attributes").str.starts_with(COALESCED).fill_null(False)
    ended = pl.when(is_single).then(pl.col("start_ns") + pl.col("duration_ns").fill_null(0))
    return rows.select(
        pl.col("process").cast(pl.UInt32), site, stage.fill_null(0),
        pl.col("track").cast(pl.UInt16), pl.col("depth").cast(pl.UInt8), flags.cast(pl.UInt8).alias("flags"),
        pl.col("step").fill_null(NO_STEP).cast(pl.UInt32), "start_ns",
        pl.col("duration_ns").fill_null(NO_DURATION).cast(pl.Int64), "busy_ns",
        pl.col("attributes") if need.as_json else pl.lit(None, dtype=pl.String).alias("attributes"),
        *(named[name].alias(NAMED + name) for name in need.columns),
        ended.forward_fill().backward_fill().alias(ENDED),
    )  # fmt: skip


def _replace_texts(texts: pl.Series, code_of: Callable[[str], int], dtype: Any) -> pl.Series:
    """Each text's code; null stays null."""
    different = texts.drop_nulls().unique(maintain_order=True)  # else codes differ from process to process
    codes = pl.Series(texts.name, [code_of(text) for text in different.to_list()], dtype=dtype)
    if len(codes) == 1 and not texts.null_count():
        replaced: pl.Series = codes.new_from_index(0, len(texts))
    else:
        replaced = codes.gather(texts.cast(pl.Enum(different)).to_physical().cast(pl.UInt32))
    return replaced


def _code_sites(rows: pl.DataFrame, vocabulary: Vocabulary) -> pl.Series:
    """The code of what three columns say together."""
    names: dict[str, int] = {}
    name, domain = (
        _replace_texts(rows[column].fill_null(UNKNOWN_TEXT), lambda text: names.setdefault(text, len(names)), pl.Int64)
        for column in ("name", "domain")
    )
    texts = list(names)
    keys = ((name * len(texts) + domain) * 2 + rows["is_stage"].fill_null(False).cast(pl.Int64)).to_numpy()
    if len(texts) > _FEW:
        different, places = np.unique(keys, return_inverse=True)
    else:  # to count is faster than to sort
        is_there = np.bincount(keys) > 0
        different, places = np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[keys]
    sites = [SiteText(texts[k // 2 // len(texts)], texts[k // 2 % len(texts)], k % 2) for k in different.tolist()]
    codes = np.array([vocabulary.site_code(site) for site in sites], dtype=np.uint32)
    return pl.Series("site", codes[places], dtype=pl.UInt32)


def make_members(texts: pl.Series, names: Sequence[str]) -> dict[str, pl.Series]:
    """Attributes as columns, each of the narrowest type that all its values have; one that no row has is null."""
    if not names:
        return {}
    has_any = texts.str.contains_any([f"{json.dumps(name, ensure_ascii=False)}:" for name in names]).fill_null(False)
    objects = list(map(_read_object, texts.filter(has_any).to_list()))
    places = pl.select(pl.when(has_any).then(has_any.cum_sum() - 1)).to_series()
    values: dict[str, list[Any]] = {}
    for place, members_of_row in enumerate(objects):
        for name, value in members_of_row.items():
            if name in names:
                own = values.get(name) or values.setdefault(name, [None] * len(objects))
                own[place] = value
    nothing = pl.repeat(None, len(texts), dtype=pl.Null, eager=True)
    return {name: _type_values(values[name]).gather(places) if name in values else nothing for name in names}


def _type_values(values: list[Any]) -> pl.Series:
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pl.Series(values, dtype=pl.Null)
    if kinds == {str} or not kinds <= {int, float, bool}:
        texts = [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]
        return pl.Series(texts, dtype=pl.String)
    dtype = pl.Boolean if kinds == {bool} else pl.Int64 if kinds == {int} else pl.Float64
    return pl.Series(values, dtype=dtype, strict=False)


def _read_object(text: str) -> dict[str, Any]:
    try:
        value, end = _scan(text, 0)  # three times as fast as `json.loads`, which looks for white space around it
    except (ValueError, RecursionError, StopIteration):
        return {}
    return value if isinstance(value, dict) and end == len(text) else {}
