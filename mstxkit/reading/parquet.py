"""Parquet of a run as a frame; what is damaged or hostile is an error, and never the end of this process."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Sequence

from ..errors import FormatError
from ..store import parquet

if TYPE_CHECKING:
    import polars as pl


def read(file: IO[bytes], rows: int | None = None) -> pl.DataFrame:
    """All rows, or the first so many.

    Raises:
        FormatError: it is not what it says.
        OSError: it cannot be read.
    """
    parquet.check(file)
    return part(file, 0, rows)


def part(file: IO[bytes], first: int, rows: int | None, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Rows of a file that was checked, from the `first` on; only these columns. Raises as `read`."""
    import polars as pl

    try:
        file.seek(0)
        scanned = pl.scan_parquet(file).slice(first, rows)
        return (scanned if columns is None else scanned.select(columns)).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as exc:
        raise FormatError(f"is no Parquet: {str(exc)[:200]}") from None
