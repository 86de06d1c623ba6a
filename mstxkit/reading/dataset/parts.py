"""What was compacted, for a run that is opened: it takes the place of sealed files that are no longer there.

As long as all sealed files of a batch are there, they are read, and the batch is not. Once they were removed, or some
of them are gone, the batch stands for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Callable, Iterable, Iterator, Sequence, TypeVar

import polars as pl

from ...errors import FormatError
from ...stages import canonical_key
from ...store import dataset, records
from ...store.dataset import MARKS, RANGES, CompactedBatch
from ...store.livefile import Texts, TrackText
from ...store.parquet import RowGroup
from ...store.values import list_of, small_number, table_of, text_of, whole_number
from .. import sealed
from ..folder import Damage, noting_unusable, reason_of
from ..processes import Process, Processes
from ..reach import NOTHING, Reach
from ..selection import Selection
from ..tables.stages import FOREVER_NS
from .columns import TableFile

T = TypeVar("T")


class CompactedParts:
    """The batches that stand for sealed files of a run. `run_id`: None: nothing that was compacted is wanted;
    `sealed_names`: the sealed files that are there; `damage`: grows by what cannot be read.
    """

    def __init__(
        self, run: Path, run_id: str | None, sealed_names: Iterable[str], damage: list[Damage], chosen: Selection
    ) -> None:
        there = set(sealed_names)
        self._base, self.damage, self._chosen = run / dataset.FOLDER, damage, chosen
        self._groups: dict[int, list[CompactedGroup]] = {}
        self._processes: dict[str, Process] = {}
        with noting_unusable(damage) as unusable:
            batches = () if run_id is None else dataset.list_batches(run, run_id, unusable=unusable)
            self._batches = [batch for batch in batches if batch.removed or not there.issuperset(batch.sources)]
        self.replaced = frozenset(name for batch in self._batches for name in batch.sources)

    def __bool__(self) -> bool:
        return bool(self._batches)

    def teach(self, processes: Processes) -> None:
        """Tell what is known of the processes."""
        for batch in self._batches:
            for name, about in batch.processes.items():
                meta, end = table_of(about.get("about")), about.get("end")
                process = self._processes[name] = processes.of(meta.get("identity"), name)
                process.learn(dict(meta), math.inf)
                if isinstance(end, dict):
                    process.learn_end({**meta, **end})
                listed = (row for row in list_of(about.get("tracks")) if isinstance(row, list) and len(row) == 5)
                tracks = {
                    track: TrackText(whole_number(thread), is_task is True, text_of(text), is_shared is True)
                    for track, thread, is_task, text, is_shared in listed
                    if small_number(track) is not None and 0 <= track <= records.TRACK_MAX
                }
                process.learn_texts(Texts({}, {}, {}, tracks))

    def groups(self, only_open: bool = False) -> list[CompactedGroup]:
        """Rows that lie together and may be asked for, oldest batch first, as their files say; looked at once.
        `only_open`: those that may hold ranges that are open.
        """
        groups = []
        for at, batch in enumerate(self._batches):
            abouts = [table_of(about) for about in batch.processes.values()]
            identities = (table_of(table_of(about.get("about")).get("identity")) for about in abouts)
            ranks = self._chosen.ranks
            # Of a batch whose manifest has no process of these ranks, or nothing open, no file is looked at.
            is_of_ranks = ranks is None or any(map(sealed.of_ranks(ranks), identities))
            if is_of_ranks and not (only_open and all(about.get("has_open") is False for about in abouts)):
                if at not in self._groups:
                    self._groups[at] = list(self._look_at(batch))
                groups += [group for group in self._groups[at] if group.has_open or not only_open]
        return groups

    def _look_at(self, batch: CompactedBatch) -> Iterator[CompactedGroup]:
        off_ns = self._off_ns(batch).values() or (0,)
        for name in (*batch.of(RANGES), *batch.of(MARKS)):
            kind = name.partition("/")[0]
            table = self._note_damage(batch, name, partial(TableFile, self._base / name, kind))
            groups = [CompactedGroup(batch, kind, name, table, rows) for rows in table.groups] if table else []
            yield from (group for group in groups if group.may_hold(self._chosen, min(off_ns), max(off_ns)))

    def _off_ns(self, batch: CompactedBatch) -> dict[str, int]:
        """By how much the wall clock of each process is another one than when it was compacted."""
        written = ((name, about.get("offset_ns")) for name, about in batch.processes.items() if name in self._processes)
        both = ((name, then, self._processes[name].offset_ns) for name, then in written)
        return {name: now - then if now and type(then) is int else 0 for name, then, now in both}

    @cached_property
    def holders(self) -> dict[str, list[CompactedGroup]]:
        """By the name of a process, the groups that hold rows of it. A manifest of old does not say: a column does."""
        holders: dict[str, list[CompactedGroup]] = {}
        for group in self.groups():
            for name in self._processes_in(group):
                holders.setdefault(name, []).append(group)
        return holders

    def who_may_have(self, column: str) -> frozenset[str]:
        """Names of processes in whose groups of ranges any may have a value in this column."""
        each = ((name, group) for name, groups in self.holders.items() for group in groups)
        return frozenset(name for name, group in each if group.kind == RANGES and column not in group.rows.empty)

    def _processes_in(self, group: CompactedGroup) -> list[str]:
        least, most = group.rows.bounds.get("process", (None, None))
        if least is not None and least == most:
            return [str(least)]
        if names := table_of(group.batch.holders.get(group.file)).get(str(group.rows.first)):
            return list(map(text_of, list_of(names)))
        rows = self.read(group, ["process"])
        return [] if rows is None else rows["process"].unique().to_list()

    def read(self, group: CompactedGroup, columns: Sequence[str]) -> pl.DataFrame | None:
        """These columns of a group; None where they cannot be read."""
        read = self._note_damage(group.batch, group.file, lambda: group.table.rows(group.rows, columns))
        rows, left_out = read or (None, 0)
        if left_out:
            reason = f"of batch {group.batch.number} of {group.batch.host}: {left_out} rows with numbers that cannot be"
            Damage.of(str(self._base / group.file), reason).note_in(self.damage)
        off_ns, time = self._off_ns(group.batch), group.time
        if rows is None or time not in rows.columns or not any(off_ns.values()):
            return rows
        each = pl.col("process").replace_strict(off_ns, default=0, return_dtype=pl.Int64)
        off = each if len({*off_ns.values()}) > 1 else next(iter(off_ns.values()))
        return rows.with_columns(pl.col(time) + off)

    def _note_damage(self, batch: CompactedBatch, name: str, work: Callable[[], T]) -> T | None:
        """What `work` makes of a file; None, and damage, where the file is not what it should be."""
        try:
            return work()
        except (OSError, FormatError) as exc:
            reason = f"of batch {batch.number} of {batch.host}: {reason_of(exc)[:200]}"
            Damage(str(self._base / name), getattr(exc, "offset", 0) or 0, 0, reason).note_in(self.damage)
            return None

    def reach(self) -> Reach:
        """Which steps and stages there are. *Cost*: two columns are read."""
        reach = NOTHING
        for rows in (self.read(group, ["step", "stage"]) for group in self.groups()):
            if rows is not None:
                stages = frozenset(rows["stage"].drop_nulls().unique().to_list())
                reach = reach.and_also(Reach(rows["step"].min(), rows["step"].max(), stages))  # type: ignore[arg-type]
        return reach


@dataclass(frozen=True, eq=False)
class CompactedGroup:
    """Rows of one kind that lie together in a file of a batch."""

    batch: CompactedBatch
    kind: str
    file: str
    table: TableFile
    rows: RowGroup

    @property
    def has_open(self) -> bool:
        """May any of its ranges be open?"""
        return self.kind == RANGES and self.rows.bounds.get("open") != (False, False)

    @property
    def time(self) -> str:
        """The column of when a row begins."""
        return "time_ns" if self.kind == MARKS else "start_ns"

    def may_hold(self, chosen: Selection, least_off_ns: int, most_off_ns: int) -> bool:
        """Can any of its rows be asked for, by what is said of their values? Their times are so far off."""
        steps, stages = self.rows.between("step"), self.rows.bounds.get("stage", (None, ""))
        if chosen.steps is not None and ("step" in self.rows.empty or (steps and not chosen.meets_steps(*steps))):
            return False
        if chosen.stages is not None and stages[0] == stages[1] and canonical_key(str(stages[0])) not in chosen.stages:
            return False
        starts = self.rows.between(self.time)
        if starts is None or not chosen.has_time:
            return True
        lasts = (0, 0) if self.kind == MARKS else self.rows.between("duration_ns")
        longest = FOREVER_NS if self.has_open or lasts is None else lasts[1]
        is_before_end = chosen.until_ns is None or starts[0] + least_off_ns < chosen.until_ns
        return is_before_end and (chosen.since_ns is None or starts[1] + most_off_ns + longest >= chosen.since_ns)
