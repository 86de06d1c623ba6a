"""Parquet of a run as a frame; what is damaged or hostile is an error, and never the end of this process."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

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
    import polars as pl

    parquet.check(file)
    try:
        return pl.read_parquet(file, use_pyarrow=False, n_rows=rows)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as exc:
        raise FormatError(f"is no Parquet: {str(exc)[:200]}") from None
