"""Chunks to polars frames, with the columns that users see.

Rows stay compact (codes instead of texts) until the vocabulary is complete; then texts become categoricals, each once.
"""

from __future__ import annotations

import re
from typing import Any, Iterable

import numpy as np
import polars as pl

from ..errors import ReadError
from ..host import parts
from ..store.records import NO_STEP
from . import attributes
from .processes import Process, part_of, rank_of, role_of
from .rows import ALL, IS_ERROR, IS_MARK, IS_OPEN, NO_DURATION, WAITS_FOR, Chunk, Need
from .vocabulary import Vocabulary

RANGE_COLUMNS = (
    "rank", "host", "pid", "role", "track", "depth", "step", "domain", "stage", "name", "start_ns", "duration_ns",
    "busy_ns", "open", "error", "attributes", "part",
)  # fmt: skip
MARK_COLUMNS = ("rank", "host", "pid", "track", "step", "domain", "stage", "message", "time_ns", "attributes")
STAGE_ROW_COLUMNS = (
    "process", "rank", "host", "pid", "role", "track", "depth", "step", "stage", "start_ns", "duration_ns",
    "tokens", "prompts", "part", "waits_for", "responses", "longest_response",
)  # fmt: skip

# Before the name of an attribute that is a column of its own, in rows that are still compact.
NAMED = "@"
WORK = ("tokens", "prompts", "responses", "longest_response")
# What rows of stages are made of.
STAGE_NEED = Need(as_json=False, names=WORK, own_stages=True)
# What is kept of ranges and marks where sealed files are compacted.
ARCHIVE_NEED = Need(as_json=True, names=WORK)


def need_of(attributes: bool | Iterable[str]) -> Need:
    """What a table of ranges or of marks shows, by what its user gave.
    Raises ReadError: names that cannot be columns.
    """
    if isinstance(attributes, str):
        raise ReadError(f"attributes={attributes!r}: several names are asked for: attributes=[{attributes!r}]")
    names = () if isinstance(attributes, bool) else tuple(dict.fromkeys(attributes))
    if taken := sorted({*names} & {*RANGE_COLUMNS, *MARK_COLUMNS}):
        raise ReadError(f"attributes={list(names)}: {taken[0]!r} is a column already; its values are in `attributes`")
    return Need(attributes is not False, names)


def compact_rows(chunk: Chunk) -> pl.DataFrame:
    """A chunk's rows with codes. The chunk is used up."""
    columns = [pl.Series(name, chunk.columns.pop(name)[: chunk.rows]) for name in list(chunk.columns)]
    busy = ((rows, busy_ns, busy_ns >= 0) for rows, busy_ns in chunk.busy)
    columns += [attributes.put_values("busy_ns", chunk.rows, np.int64, busy), _attributes_column(chunk)]
    named = {name: chunk.named.get(name, []) for name in chunk.need.columns}
    columns += [attributes.make_column(NAMED + name, chunk.rows, parts) for name, parts in named.items()]
    return pl.DataFrame(columns)


def join_rows(pieces: list[pl.DataFrame]) -> pl.DataFrame:
    """Rows of several chunks: a column of attributes has one type in all of them."""
    return pl.concat(pieces, rechunk=False, how="vertical_relaxed")


def _attributes_column(chunk: Chunk) -> pl.Series:
    if not chunk.attributes:
        return pl.repeat(None, chunk.rows, dtype=pl.String, eager=True).alias("attributes")
    places = np.full(chunk.rows, -1, dtype=np.int64)
    texts: list[str] = []
    for rows, values in chunk.attributes:
        places[rows] = np.arange(len(texts), len(texts) + len(values))
        texts += values
    places[places < 0] = len(texts)
    return pl.Series("attributes", [*texts, None], dtype=pl.String).gather(pl.Series(places))


def only_marks(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that are marks."""
    return rows.filter(pl.col("flags") & IS_MARK != 0)


class Finisher:
    """Compact rows to frames for users: codes to texts, ids to a process's own columns."""

    def __init__(self, processes: list[Process], vocabulary: Vocabulary) -> None:
        sites = vocabulary.sites
        self._driver = len(processes)
        domains, names = (
            make_categorical(name, [getattr(site, name) for site in sites]) for name in ("domain", "name")
        )
        # What a row's process, its owner, or the code of its site or of its stage stands for. One element a process; of
        # rank and part one more, of a driver that waits: that is no rank's.
        self._by_number = {
            "rank": (pl.Series("rank", [*map(rank_of, processes), None], dtype=pl.Int32), "owner"),
            "host": (make_categorical("host", [process.host for process in processes]), "process"),
            "pid": (pl.Series("pid", [process.pid for process in processes], dtype=pl.Int32), "process"),
            "role": (make_categorical("role", list(map(role_of, processes))), "process"),
            "part": (make_categorical("part", [*map(part_of, processes), parts.DRIVER]), "owner"),
            "domain": (domains, "site"), "name": (names, "site"), "message": (names, "site"),
            "is_stage": (pl.Series("is_stage", [site.is_stage for site in sites], dtype=pl.Boolean), "site"),
            "stage": (make_categorical("stage", vocabulary.stages), "stage"),
        }  # fmt: skip
        self._repeated: dict[str, pl.Series] = {}

    def ranges(self, rows: pl.DataFrame, with_process: bool = False, need: Need = ALL) -> pl.DataFrame:
        """The contract's columns of ranges, and those of the attributes that are needed; marks are left out."""
        is_mark = rows["flags"] & IS_MARK != 0
        columns = ("process", "is_stage", *RANGE_COLUMNS) if with_process else RANGE_COLUMNS
        return self._pick(self._add_owners(rows.filter(~is_mark) if is_mark.any() else rows), _as_needed(columns, need))

    def marks(self, rows: pl.DataFrame, with_process: bool = False, need: Need = ALL) -> pl.DataFrame:
        """The same of marks."""
        columns = ("process", "depth", *MARK_COLUMNS) if with_process else MARK_COLUMNS
        return self._pick(only_marks(rows), _as_needed(columns, need))

    def stage_rows(self, rows: pl.DataFrame, more: tuple[str, ...]) -> pl.DataFrame:
        """The rows that are occurrences of a stage of their own, open ones included, with `process`."""
        is_own = self._by_number["is_stage"][0].gather(rows["site"]) & (rows["flags"] & IS_MARK == 0)
        return self._pick(self._add_owners(rows.filter(is_own)), (*STAGE_ROW_COLUMNS, *more))

    def archived_rows(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """All that is known of ranges, and of marks: what tables of these and of stages are made of."""
        kept = self._add_owners(rows.filter(pl.col("flags") & IS_MARK == 0))
        ranges = self._pick(kept, ("process", "is_stage", *RANGE_COLUMNS, *WORK, WAITS_FOR))
        return ranges, self._pick(only_marks(rows), ("process", "depth", "role", *MARK_COLUMNS))

    def _add_owners(self, rows: pl.DataFrame) -> pl.DataFrame:
        """With `owner`: whose rank and part a row has, its process's; what a controller waits for is the driver's."""
        if rows[NAMED + WAITS_FOR].null_count() == rows.height:
            return rows
        waits = pl.col(NAMED + WAITS_FOR).is_not_null()
        return rows.with_columns(owner=pl.when(waits).then(self._driver).otherwise(pl.col("process")))

    def _pick(self, rows: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
        processes = rows["process"]
        only = int(processes[0]) if rows.height and processes.min() == processes.max() else None
        return rows.select(self._make_column(rows, name, only) for name in names)

    def _make_column(self, rows: pl.DataFrame, name: str, only: int | None) -> pl.Expr | pl.Series:
        """One column; `only`: the process of all rows, if it is one."""
        if name in self._by_number:
            values, number = self._by_number[name]
            number = "process" if number == "owner" and "owner" not in rows.columns else number
            place = only if number == "process" else 0 if number == "site" and values.n_unique() == 1 else None
            if place is not None:
                return self._repeat_value(values, place, rows.height).alias(name)
            return pl.lit(values).gather(pl.col(number)).alias(name)
        if name in WORK and rows[NAMED + name].dtype == pl.Boolean:
            return pl.lit(None, pl.Float64).alias(name)
        return _EXPRESSIONS.get(name, pl.col(name)).alias(name.removeprefix(NAMED))

    def _repeat_value(self, values: pl.Series, place: int, rows: int) -> pl.Series:
        """One value in all rows. Pieces that have the same one share its memory."""
        kept = self._repeated.get(values.name)
        if kept is None or len(kept) < rows or not kept.head(1).equals(values[place : place + 1]):
            kept = self._repeated[values.name] = values.new_from_index(place, rows)
        return kept.head(rows)


def _as_needed(columns: tuple[str, ...], need: Need) -> tuple[str, ...]:
    kept = columns if need.as_json else tuple(name for name in columns if name != "attributes")
    return (*kept, *(NAMED + name for name in need.names))


_EXPRESSIONS = {
    "time_ns": pl.col("start_ns"),
    "track": pl.col("track").cast(pl.Int32),
    "depth": pl.col("depth").cast(pl.Int16),
    "step": pl.when(pl.col("step") != NO_STEP).then(pl.col("step").cast(pl.Int64)),
    "duration_ns": pl.when(pl.col("duration_ns") != NO_DURATION).then(pl.col("duration_ns")),
    "open": pl.col("flags") & IS_OPEN != 0,
    "error": pl.col("flags") & IS_ERROR != 0,
    WAITS_FOR: pl.col(NAMED + WAITS_FOR).cast(pl.String),
    **{name: pl.col(NAMED + name).cast(pl.Float64, strict=False) for name in WORK},
}


def make_categorical(name: str, values: list[str] | list[str | None]) -> pl.Series:
    """Texts as a categorical whose order is that of the texts, also where polars sorts by its codes."""
    distinct = sorted({value for value in values if value is not None})
    places = {value: place for place, value in enumerate(distinct)}
    codes = pl.Series([None if value is None else places[value] for value in values], dtype=pl.UInt32)
    return pl.Series(name, distinct, dtype=pl.Categorical).gather(codes)


# What a column holds follows from its name: its unit, or what it counts. All others are texts.
_KINDS = {
    pl.Int64: r"(.*_)?steps?|.*_ns|bytes|calls|thread|dropped|evicted|coalesced|faults|.*_(overflowed|lost|capped|cut)",
    pl.Int32: r"(.*_)?ranks?|pid|members|trainers|rollouts|world_size|attempt|track|reports",
    pl.Float64: r".*_(ratio|per_s)|confidence|(.*_)?tokens|responses|longest_response|last_rank_longest",
    pl.Boolean: r"native|is_.*",
}


def make_schema(columns: str, **others: Any) -> dict[str, Any]:
    """The types of these columns, in their order; `others`: of those whose name says something else there."""
    kinds = {
        column: [kind for kind, names in _KINDS.items() if re.fullmatch(names, column)] for column in columns.split()
    }
    return {column: others.get(column, (*kind, pl.String)[0]) for column, kind in kinds.items()}


PATCH_SCHEMA = make_schema(
    "process rank host pid role framework path state reason detail tier version calls", process=pl.UInt32
)
PROCESS_SCHEMA = make_schema(
    "rank host pid role part world_size start_ns last_seen_ns native dropped coalesced faults clock_error_ns "
    "own_cost_ratio state evicted slots_overflowed under label place attributes_lost names_capped texts_cut clock "
    "process ending attempt versions"
)
ESCALATION_SCHEMA = make_schema("request stage rank state first_step last_step start_ns end_ns preset folder reason")
PROFILE_SCHEMA = make_schema("request stage step rank host state place bytes start_ns end_ns preset folder reason")
VERDICT_SCHEMA = make_schema(
    "time_ns step kind stage rank role since_step impact_ratio coverage_ratio confidence waits_for evidence next "
    "request recurrence_ratio group withdrawn no_request",
    group=pl.List(pl.Int32),
)
INCIDENT_SCHEMA = make_schema("incident time_ns kind stage range rank role since_ns waits_for reports page reason")
LATENESS_SCHEMA = make_schema("step group rank stage late_ns error_ns source role")
TRACK_SCHEMA = make_schema("process rank host pid track thread is_task name is_shared", process=pl.UInt32)
