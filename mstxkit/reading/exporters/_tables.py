"""A run as a folder of tables, for csv and Parquet: what is large goes piece by piece.

`ranges` and `marks` have the columns of `Run.ranges()` and `Run.marks()`, in the same order of rows, and `process`,
the row of `processes`; `stages`, `processes`, `tracks`, `escalations` and `verdicts` are those of the run.
"""

from __future__ import annotations

from typing import Callable

import polars as pl
from polars import selectors

from ..run import Run

WHOLE = ("stages", "processes", "tracks", "escalations", "verdicts")
_ROWS = 1 << 18


def write(run: Run, piece: Callable[[str, int, pl.DataFrame], None]) -> int:
    """Hand a run's tables on; the number of ranges and marks. `piece`: called with a table's name, the number of the
    piece, from 0 on, and the piece. Each table has at least one, which has no rows where the table has none.
    """
    count = 0
    for number, (ranges, marks) in enumerate(run.batches(rows=_ROWS)):
        count += ranges.height + marks.height
        for name, table in (("ranges", ranges.drop("is_stage")), ("marks", marks.drop("depth"))):
            if table.height or not number:
                piece(name, number, plain(table))
    for name in WHOLE:
        piece(name, 0, plain(getattr(run, name)()))
    return count


def plain(table: pl.DataFrame) -> pl.DataFrame:
    """With texts for categoricals: other programs have none, or their own."""
    return table.with_columns(selectors.categorical().cast(pl.String))
