"""What was compacted, for a run that is opened: it takes the place of sealed files that are no longer there.

As long as all sealed files of a batch are there, they are read, and the batch is not. Once they were removed, or some
of them are gone, the batch stands for all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Iterable, Iterator

from ...errors import FormatError
from ...stages import canonical
from ...store import dataset
from ...store.dataset import MARKS, RANGES, STAGE_ROWS, CompactedBatch
from ...store.values import table_of
from .. import sealed
from ..folder import Damage, reason_of
from ..processes import Process, Processes
from ..tables.stages import FOREVER_NS
from . import columns

if TYPE_CHECKING:
    import polars as pl

    from ..selection import Selection


class CompactedParts:
    """The batches that stand for sealed files of a run.

    Args:
        run: The run's folder.
        run_id: Its id.
        sealed_names: The sealed files that are there.
        damage: Grows by what cannot be read.
    """

    def __init__(self, run: Path, run_id: str, sealed_names: Iterable[str], damage: list[Damage]) -> None:
        there = set(sealed_names)
        self._base, self.damage = run / dataset.FOLDER, damage
        self._batches = [b for b in dataset.batches(run, run_id) if b.removed or not there.issuperset(b.sources)]
        self.replaced = frozenset(name for batch in self._batches for name in batch.sources)

    def __bool__(self) -> bool:
        return bool(self._batches)

    def teach(self, processes: Processes) -> None:
        """Tell what is known of the processes."""
        for batch in self._batches:
            for name, about in batch.processes.items():
                meta, end = table_of(about.get("about")), about.get("end")
                process = processes.of(meta.get("identity"), name)
                sealed.take_about(dict(meta), end if isinstance(end, dict) else None, process)

    def rows(self, kind: str, chosen: Selection, processes: list[Process]) -> Iterator[pl.DataFrame]:
        """Rows of ranges or marks that are asked for, file by file; `process` is the row in `processes()`."""
        for batch in self._batches:
            yield from self._rows_of(batch, kind, chosen, processes)

    def backwards(self, chosen: Selection, processes: list[Process]) -> Iterator[dict[str, list[pl.DataFrame]]]:
        """Ranges and marks of all processes, batch by batch, the newest first; in each what encloses others first."""
        import polars as pl

        for batch in reversed(self._batches):
            frames = {kind: list(self._rows_of(batch, kind, chosen, processes)) for kind in (RANGES, MARKS)}
            together = {kind: [pl.concat(each, how="vertical_relaxed")] for kind, each in frames.items() if each}
            if len(frames[RANGES]) > 1:
                together[RANGES] = [_as_they_ended(together[RANGES][0])]
            yield {kind: [rows.reverse() for rows in each] for kind, each in together.items()}

    def _rows_of(
        self, batch: CompactedBatch, kind: str, chosen: Selection, processes: list[Process]
    ) -> Iterator[pl.DataFrame]:
        import polars as pl

        schema = {"process": pl.String, "row": pl.UInt32}
        index = {process.name: process.index for process in processes}
        numbers = pl.DataFrame({"process": list(index), "row": list(index.values())}, schema=schema)
        for file in batch.of(RANGES if kind == STAGE_ROWS else kind):
            rows = self._read(file, batch)
            if rows is not None:
                named = rows.join(numbers, on="process", maintain_order="left").drop("process")
                yield named.rename({"row": "process"}).filter(is_asked_for(chosen, kind))

    def of(self, process: Process, chosen: Selection) -> Iterator[dict[str, pl.DataFrame]]:
        """Ranges and marks of one process that are asked for, batch by batch, oldest first, by kind."""
        for batch in (batch for batch in self._batches if process.name in batch.processes):
            kinds = {kind: self._of_process(process, batch, kind) for kind in (RANGES, MARKS)}
            yield {kind: rows.filter(is_asked_for(chosen, kind)) for kind, rows in kinds.items() if rows is not None}

    def _of_process(self, process: Process, batch: CompactedBatch, kind: str) -> pl.DataFrame | None:
        import polars as pl

        frames = [rows for file in batch.of(kind) if (rows := self._read(file, batch)) is not None]
        own = [rows.filter(pl.col("process").cast(pl.String) == process.name) for rows in frames]
        if not own:
            return None
        together = pl.concat(own, how="vertical_relaxed").with_columns(process=pl.lit(process.index, dtype=pl.UInt32))
        has_several = kind == RANGES and sum(map(len, own)) > max(map(len, own))
        return _as_they_ended(together) if has_several else together

    def _read(self, name: str, batch: CompactedBatch) -> pl.DataFrame | None:
        file = str(self._base / name)
        of_batch = f"of batch {batch.number} of {batch.host}"

        def left_out(count: int) -> None:
            Damage.of(file, f"{of_batch}: {count} rows with numbers that cannot be").note_in(self.damage)

        try:
            return columns.read(Path(file), name.partition("/")[0], left_out)
        except (OSError, FormatError) as exc:
            offset = getattr(exc, "offset", 0) or 0
            Damage(file, offset, 0, f"{of_batch}: {reason_of(exc)[:200]}").note_in(self.damage)
            return None


def _as_they_ended(ranges: pl.DataFrame) -> pl.DataFrame:
    """In the order in which they ended, which files of several days have lost: inner ones before outer ones.

    Of those that end in the same nanosecond the deeper one is taken for the first.
    """
    import polars as pl

    ends = pl.col("start_ns") + pl.col("duration_ns")
    return ranges.sort(ends, "depth", "start_ns", descending=[False, True, False], nulls_last=True, maintain_order=True)


def is_asked_for(chosen: Selection, kind: str) -> pl.Expr:
    """What a run's filters leave of rows."""
    import polars as pl

    start, is_wanted = pl.col("time_ns" if kind == MARKS else "start_ns"), pl.lit(True)
    if chosen.steps is not None:
        is_wanted &= pl.col("step").is_in(sorted(chosen.steps)).fill_null(False)
    if chosen.since_ns is not None:
        took = pl.lit(0) if kind == MARKS else pl.col("duration_ns").fill_null(FOREVER_NS - chosen.since_ns)
        is_wanted &= took >= chosen.since_ns - start
    if chosen.until_ns is not None:
        is_wanted &= start < chosen.until_ns
    if chosen.stages is not None:
        wanted = chosen.stages
        answers = (
            pl.col("stage").cast(pl.String).map_elements(lambda s: canonical(s) in wanted, return_dtype=pl.Boolean)
        )
        is_wanted &= answers.fill_null(False)
    return is_wanted


def _are_wanted(keys: pl.Series, wanted: frozenset[str] | None) -> pl.Series:
    import polars as pl

    names = [key for key in keys.cast(pl.String).unique().drop_nulls() if canonical(key) in (wanted or ())]
    are: pl.Series = keys.cast(pl.String).is_in(names).fill_null(False)
    return are
