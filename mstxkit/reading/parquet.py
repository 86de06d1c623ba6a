"""Parquet of a run as a frame; what is damaged or hostile is an error, and never the end of this process."""

from __future__ import annotations

from io import BytesIO
from typing import IO, Any, Sequence

import polars as pl

from ..errors import FormatError
from ..store import parquet


def in_memory(frame: pl.DataFrame, **options: Any) -> BytesIO:
    """A frame as Parquet, `options` as polars has them: its own writing says of a full disk that the file is wrong."""
    content = BytesIO()
    frame.write_parquet(content, **options)
    return content


def read_file(file: IO[bytes], rows: int | None = None) -> pl.DataFrame:
    """All rows, or the first so many. Raises FormatError: it is not what it says; OSError: it cannot be read."""
    for group in parquet.look_at_file(file):
        parquet.check_pages(file, group)
    return _scan_part(file, 0, rows)


def read_part(file: IO[bytes], group: parquet.RowGroup, columns: Sequence[str]) -> pl.DataFrame:
    """These columns of a group of a file that was looked at. Raises as `read_file`."""
    parquet.check_pages(file, group, columns)
    return _scan_part(file, group.first, group.rows, columns)


def _scan_part(file: IO[bytes], first: int, rows: int | None, columns: Sequence[str] | None = None) -> pl.DataFrame:
    try:
        scanned = pl.scan_parquet(file).slice(first, rows)
        return (scanned if columns is None else scanned.select(columns)).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as exc:
        raise FormatError(f"is no Parquet: {str(exc)[:200]}") from None
