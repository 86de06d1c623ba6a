"""Files of a dataset as frames: what is no table of its kind is an error, rows that cannot be are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Sequence

import polars as pl

from ...errors import FormatError, ReadError
from ...store import documents
from ...store import parquet as claims
from ...store.dataset import DAYS, MARKS, RANGES, SUMMARIES
from ...store.parquet import RowGroup
from ...store.records import NO_STEP
from .. import parquet
from ..folder import reason_of
from ..frames import WORK, make_schema

_WHO = "process rank role host pid stage"
_WHERE = f"{_WHO} track depth step domain attributes"
_SUMMED = f"{_WHO} part waits_for count total_ns busy_ns longest_ns start_ns tokens buckets bucket_counts"
_HISTOGRAM = {"count": pl.Int64, "buckets": pl.List(pl.UInt16), "bucket_counts": pl.List(pl.UInt32)}
_COLUMNS = {
    RANGES: make_schema(
        f"{_WHERE} {' '.join(WORK)} is_stage name start_ns duration_ns busy_ns open error part waits_for",
        depth=pl.Int16, prompts=pl.Float64, open=pl.Boolean, error=pl.Boolean,
    ),
    MARKS: make_schema(f"{_WHERE} message time_ns", depth=pl.Int16),
    SUMMARIES: make_schema(f"{_SUMMED} step end_ns", **_HISTOGRAM),
    DAYS: make_schema(f"{_SUMMED} steps rows", rows=pl.Int64, **_HISTOGRAM),
}  # fmt: skip
_AT_MOST = {"track": (1 << 16) - 1, "depth": 255, "step": NO_STEP - 1}
_NEEDED = ("process", "start_ns", "time_ns", "track", "depth")
_LATEST = 1 << 62


def read_rows(file: Path, kind: str) -> pl.DataFrame:
    """The rows of one file, with the columns of its kind and others of its own; those that cannot be are left out.
    Raises ReadError: it cannot be read, or is no table of that kind.
    """
    try:
        with open(documents.open_regular(file), "rb") as stream:
            return _type_columns(parquet.read_file(stream), kind, _COLUMNS[kind])[0]
    except (OSError, FormatError) as exc:
        raise ReadError(f"{file}: {reason_of(exc)}") from None


class TableFile:
    """One file of a dataset, looked at: the groups of its rows, and the rows of each.
    Raises OSError, FormatError: it cannot be read, or is not what it says.
    """

    def __init__(self, file: Path, kind: str) -> None:
        self._file, self._kind = file, kind
        with open(documents.open_regular(file), "rb") as stream:
            self._state, self.groups = documents.settled_state(stream.fileno()), claims.look_at_file(stream)

    def rows(self, group: RowGroup, names: Sequence[str]) -> tuple[pl.DataFrame, int]:
        """These columns of a group, and how many rows were left out that cannot be. Raises as the class does."""
        if missing := sorted({*names} - group.names):
            raise FormatError(f"is no table of {self._kind}: it has no {missing[0]}")
        with open(documents.open_regular(self._file), "rb") as stream:
            state = documents.settled_state(stream.fileno())
            if not (state and state == self._state) and claims.look_at_file(stream) != self.groups:
                raise FormatError("has changed since it was looked at")
            return _type_columns(parquet.read_part(stream, group, names), self._kind, names)


def _type_columns(rows: pl.DataFrame, kind: str, names: Iterable[str]) -> tuple[pl.DataFrame, int]:
    schema = schema_of(kind, names)
    try:
        is_so = all(rows.schema[name] == dtype for name, dtype in schema.items())
        typed = rows if is_so else rows.with_columns(pl.col(name).cast(dtype) for name, dtype in schema.items())
        # All numbers of a row are those of a record; none of them is below zero.
        numbers = [name for name, dtype in schema.items() if dtype.is_integer() and name not in ("rank", "pid")]
        wrong = [~pl.col(name).is_between(0, _AT_MOST.get(name, _LATEST)).fill_null(True) for name in numbers]
        missing = [pl.col(name).is_null() for name in _NEEDED if name in typed.columns]
        can_be = typed.select(~pl.any_horizontal(*wrong, *missing)).to_series()
        sane = typed if can_be.all() else typed.filter(can_be)
    except pl.exceptions.PolarsError as exc:
        raise FormatError(f"is no table of {kind}: {str(exc)[:200]}") from None
    return sane, rows.height - sane.height


def schema_of(kind: str, names: Iterable[str]) -> dict[str, pl.DataType]:
    """The types of these columns."""
    return {name: _COLUMNS[kind][name] for name in names}
