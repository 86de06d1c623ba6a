"""Parquet: a folder for each table of a run, which polars, pandas, DuckDB and Spark read as one table each.

`polars.read_parquet("exp7_parquet/ranges/*.parquet")`. Texts are as they were recorded. `ranges` and `marks` have the
columns of `Run.ranges()` and `Run.marks()`, in the same order of rows, and `process`, the row of `processes`; `stages`,
`processes`, `tracks`, `escalations` and `verdicts` are those of the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import polars as pl

from .. import parquet
from ..run import Run
from . import FOLDER, Exporter

WHOLE = ("stages", "processes", "tracks", "escalations", "verdicts")
_ROWS = 1 << 18
# In place of categoricals: other programs have none, or their own.
_TEXTS = pl.col(pl.Categorical).cast(pl.String)


def write_tables(run: Run, folder: Path) -> int:
    """Write `run` into an empty folder; the number of ranges and marks. *Cost*: half a microsecond a range."""

    def put(name: str, number: int, piece: pl.DataFrame) -> None:
        (folder / name).mkdir(exist_ok=True, mode=0o750)
        (folder / name / f"{number:06d}.parquet").write_bytes(parquet.in_memory(piece).getvalue())

    return hand_on_tables(run, put)


def hand_on_tables(run: Run, piece: Callable[[str, int, pl.DataFrame], None]) -> int:
    """Hand a run's tables on; the number of ranges and marks. `piece`: called with a table's name, the number of the
    piece, from 0 on, and the piece. Each table has at least one, which has no rows where the table has none.
    """
    count = 0
    for number, (ranges, marks) in enumerate(run.batches(rows=_ROWS)):
        count += ranges.height + marks.height
        for name, table in (("ranges", ranges.drop("is_stage")), ("marks", marks.drop("depth"))):
            if table.height or not number:
                piece(name, number, table.with_columns(_TEXTS))
    for name in WHOLE:
        piece(name, 0, getattr(run, name)().with_columns(_TEXTS))
    return count


EXPORTER = Exporter("_parquet", write_tables, form=FOLDER)
