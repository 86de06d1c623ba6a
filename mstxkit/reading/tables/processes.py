"""`Run.processes()`: a row a process of the run, with how it ended."""

from __future__ import annotations

import polars as pl

from .. import endings, frames, labels
from ..processes import row_of
from ..run_files import RunFiles
from . import incidents


def table(files: RunFiles) -> pl.DataFrame:
    """By rank, its own process before those beside it."""
    seen = dict(files.open_ranges().group_by("process").agg(pl.col("start_ns").max()).iter_rows())
    judged = endings.of_run(files.processes, seen, incidents.stored(files.path, files.id, files.damage))
    rows = [row_of(process, seen.get(process.index, 0), judged[process.index]) for process in files.processes]
    labelled = [{**row, "label": label} for row, label in zip(rows, labels.of_processes(rows))]
    return pl.DataFrame(labelled, schema=frames.PROCESS_SCHEMA)
