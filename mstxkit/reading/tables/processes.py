"""Tables of the processes of a run: how each ended, what recording cost it, and what of it was lost."""

from __future__ import annotations

import polars as pl

from .. import endings, frames, labels
from ..processes import row_of
from ..run_files import RunFiles
from . import findings

DROPS = (
    "dropped", "evicted", "coalesced", "slots_overflowed", "attributes_lost", "names_capped", "texts_cut", "faults",
)  # fmt: skip
_WHO = ("rank", "host", "pid", "role", "label")


def table(files: RunFiles) -> pl.DataFrame:
    """By rank, its own process before those beside it."""
    seen = dict(files.open_ranges().group_by("process").agg(pl.col("start_ns").max()).iter_rows())
    judged = endings.of_run(files.processes, seen, findings.stored_incidents(files.path, files.id, files.damage))
    rows = [row_of(process, seen.get(process.index, 0), judged[process.index]) for process in files.processes]
    labelled = [{**row, "label": label} for row, label in zip(rows, labels.of_processes(rows))]
    return pl.DataFrame(labelled, schema=frames.PROCESS_SCHEMA)


def overhead(processes: pl.DataFrame) -> pl.DataFrame:
    """`rank, host, pid, role, label, native, own_cost_ratio, own_cost_ns, lasted_ns`, what cost most first.

    `own_cost_ratio`: recording's own time over the time since the process began to record; null where it is not known.
    """
    lasted = pl.col("last_seen_ns") - pl.col("start_ns")
    columns = processes.select(
        *_WHO, "native", "own_cost_ratio",
        own_cost_ns=(pl.col("own_cost_ratio") * lasted).round().cast(pl.Int64), lasted_ns=lasted,
    )  # fmt: skip
    return columns.sort("own_cost_ratio", descending=True, nulls_last=True)


def drops(processes: pl.DataFrame) -> pl.DataFrame:
    """`rank, host, pid, role, label, kind, count`: a row for each kind of loss of each process; none where none is.

    `coalesced` calls are not lost: many of them share a record.
    """
    rows = processes.select(*_WHO, *DROPS).unpivot(DROPS, index=_WHO, variable_name="kind", value_name="count")
    return rows.filter(pl.col("count") > 0).sort("rank", "pid", "kind", nulls_last=True)
