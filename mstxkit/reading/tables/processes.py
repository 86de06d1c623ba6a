"""Tables of the processes of a run: how each ended, what recording cost it, what of it was lost; and what `autopatch`
did and saw in each.
"""

from __future__ import annotations

import os
from typing import Callable, Iterator, TypeVar

import polars as pl

from ...errors import FormatError
from ...store import layout, patch_record
from .. import endings, frames, labels
from ..folder import Damage, Folder
from ..processes import Process, rank_of, role_of, row_of
from ..run_files import RunFiles
from . import findings

Record = TypeVar("Record")

# Columns of what was not recorded, or not kept; in words.
DROPS = {
    "dropped": "records dropped",
    "evicted": "records evicted by the disk quota",
    "coalesced": "calls coalesced",
    "slots_overflowed": "open ranges not shown (no free slot)",
    "attributes_lost": "ranges that lost attributes",
    "names_capped": "ranges given the catch-all name",
    "texts_cut": "texts cut",
    "faults": "faults inside mstxkit",
}
_WHO = ("rank", "host", "pid", "role", "label")


def table(files: RunFiles) -> pl.DataFrame:
    """By rank, its own process before those beside it."""
    seen = dict(files.open_ranges().group_by("process").agg(pl.col("start_ns").max()).iter_rows())
    judged = endings.of_run(files.processes, seen, findings.stored_incidents(files.path, files.id, files.damage))
    rows = [row_of(process, seen.get(process.index, 0), judged[process.index]) for process in files.processes]
    labelled = [{**row, "label": label} for row, label in zip(rows, labels.of_processes(rows))]
    return pl.DataFrame(labelled, schema=frames.PROCESS_SCHEMA)


def measure_overhead(processes: pl.DataFrame) -> pl.DataFrame:
    """`rank, host, pid, role, label, native, own_cost_ratio, own_cost_ns, lasted_ns`, what cost most first.

    `own_cost_ratio`: recording's own time over the time since the process began to record; null where it is not known.
    """
    lasted = pl.col("last_seen_ns") - pl.col("start_ns")
    columns = processes.select(
        *_WHO, "native", "own_cost_ratio",
        own_cost_ns=(pl.col("own_cost_ratio") * lasted).round().cast(pl.Int64), lasted_ns=lasted,
    )  # fmt: skip
    return columns.sort("own_cost_ratio", descending=True, nulls_last=True)


def list_drops(processes: pl.DataFrame) -> pl.DataFrame:
    """`rank, host, pid, role, label, kind, count`: a row for each kind of loss of each process; none where none is.

    `coalesced` calls are not lost: many of them share a record.
    """
    rows = processes.select(*_WHO, *DROPS).unpivot(list(DROPS), index=_WHO, variable_name="kind", value_name="count")
    return rows.filter(pl.col("count") > 0).sort("rank", "pid", "kind", nulls_last=True)


def patch_table(files: RunFiles) -> pl.DataFrame:
    """What `autopatch` did in each process, by its own word: a row a process and target."""
    rows = [
        (process.index, rank_of(process), process.host, process.pid, role_of(process), *target)
        for process, targets in _read_records(files, patch_record.parse_record)
        for target in targets
    ]
    return pl.DataFrame(rows, schema=frames.PATCH_SCHEMA, orient="row")


def trainer_settings(files: RunFiles) -> dict[str, list[str]]:
    """By name, the values that processes have."""
    values: dict[str, set[str]] = {}
    for _, settings in _read_records(files, patch_record.parse_settings):
        for name, value in settings.items():
            values.setdefault(name, set()).add(value)
    return {name: sorted(seen) for name, seen in values.items()}


def _read_records(files: RunFiles, parse: Callable[[bytes], Record]) -> Iterator[tuple[Process, Record]]:
    """What each process says that says anything, parsed."""
    folder = Folder(os.path.join(files.path, layout.PATCHES))
    by_file = {f"{process.name}{layout.PATCHES_SUFFIX}": process for process in files.processes}
    for name in (name for name in folder.names(layout.PATCHES_SUFFIX) if name in by_file):
        try:
            record = parse(folder.read(name, size=patch_record.LIMIT_BYTES))
        except (OSError, FormatError) as exc:
            Damage.because(folder.path_of(name), exc).note_in(files.damage)
            continue
        yield by_file[name], record
