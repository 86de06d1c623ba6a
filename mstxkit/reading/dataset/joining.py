"""What was compacted of a process, as one sequence: rows come in the order in which they ended.

A batch has ranges and marks in files of their own, and those of each day by their begin. Each of these strands is in
order; together they are merged, a bounded piece at a time.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from typing import Iterable, Iterator

import polars as pl

from ...store.dataset import MARKS, RANGES
from ...store.values import grouped
from ..processes import Process
from ..rows import IS_OPEN, Need
from ..selection import Selection
from ..vocabulary import Vocabulary
from . import coding, columns
from .coding import ENDED
from .parts import CompactedGroup, CompactedParts

BOTH = (RANGES, MARKS)
_STRAND = "strand"
_GROUPS_KEPT = 4


class CompactedRows:
    """One reading of what was compacted. Keeps a few groups of rows, which processes that follow each other share.
    `kinds`: ranges, marks, or both.
    """

    def __init__(
        self, parts: CompactedParts, processes: list[Process], vocabulary: Vocabulary, need: Need, chosen: Selection,
        kinds: tuple[str, ...] = BOTH,
    ) -> None:  # fmt: skip
        self._parts, self._vocabulary, self._chosen = parts, vocabulary, chosen
        self._need = need if chosen.stages is None else need._replace(texts=True)
        self._numbers = {process.name: process.index for process in processes}
        self._kinds = (RANGES,) if need.own_stages else kinds
        self._ended = lru_cache(_GROUPS_KEPT)(self._ended_by_process)

    def of(self, process: Process, backwards: bool) -> Iterator[pl.DataFrame]:
        """All of a process that has ended, in pieces; backwards from the last to the first, each in order."""
        groups = [group for group in self._parts.holders.get(process.name, ()) if group.kind in self._kinds]
        of_batches = [list(own) for _, own in groupby(groups, lambda group: group.batch.number)]
        for own in of_batches[:: -1 if backwards else 1]:
            by_strand = grouped(own, lambda group: group.strand)
            # Of what ends at one instant, marks come first, then what a later day has: that began later.
            orders = {name: -1 if name[0] == MARKS else at for at, name in enumerate(sorted(by_strand, reverse=True))}
            strands = [
                _Strand(self._frames(process, by_strand[name], backwards), orders[name], backwards) for name in orders
            ]
            yield from _merge_strands(strands, backwards)

    def _frames(self, process: Process, groups: list[CompactedGroup], backwards: bool) -> Iterator[pl.DataFrame]:
        for group in groups[:: -1 if backwards else 1]:
            frame = self._ended(group).get(process.index)
            if frame is not None:
                yield frame

    def _ended_by_process(self, group: CompactedGroup) -> dict[int, pl.DataFrame]:
        rows = self._code_rows(group)
        ended = rows.filter(rows["flags"] & IS_OPEN == 0) if group.has_open else rows
        if ended["process"].n_unique() == 1:
            return {int(ended["process"][0]): ended}
        return {int(key): own for (key,), own in ended.partition_by("process", as_dict=True).items()}

    def open(self) -> list[pl.DataFrame]:
        """Ranges that never ended."""
        each = [self._code_rows(group) for group in self._parts.groups(only_open=True)]
        return [rows.filter(rows["flags"] & IS_OPEN != 0).drop(ENDED) for rows in each]

    def _code_rows(self, group: CompactedGroup) -> pl.DataFrame:
        """The rows of a group that are asked for."""
        need = self._need
        rows = self._parts.read(group, coding.columns_of(group.kind, need))
        if rows is None:
            rows = pl.DataFrame(schema=columns.schema_of(group.kind, coding.columns_of(group.kind, need)))
        coded = coding.coded(rows, group.kind, self._numbers, self._vocabulary, need)
        wanted = self._chosen.rows(coded, self._vocabulary.stages)
        return coded if wanted.all() else coded.filter(wanted)


class _Strand:
    """Frames in the order of a reading, as far as they are read, and how they stand to others that end together."""

    def __init__(self, frames: Iterator[pl.DataFrame], order: int, backwards: bool) -> None:
        self._frames, self._order, self._backwards = frames, order, backwards
        self.held: pl.DataFrame | None = None
        self.is_done = False

    def more(self) -> None:
        """Read one frame more."""
        frame = next(self._frames, None)
        self.is_done = frame is None
        if frame is not None:
            marked = frame.with_columns(pl.lit(self._order).alias(_STRAND))
            both = [each for each in (self.held, marked) if each is not None]
            self.held = pl.concat(both[:: -1 if self._backwards else 1], how="vertical_relaxed")

    def edge(self) -> int:
        """When the last of the held rows ended that others may still follow, in the direction of the reading."""
        assert self.held is not None
        return int(self.held[ENDED][0 if self._backwards else -1])

    def take(self, bound: int | None) -> pl.DataFrame:
        """The held rows before this moment, in the direction of the reading; all where there is none."""
        assert self.held is not None
        if bound is None:
            taken, self.held = self.held, None
            return taken
        is_beyond = pl.col(ENDED) > bound if self._backwards else pl.col(ENDED) < bound
        taken, self.held = self.held.filter(is_beyond), self.held.filter(~is_beyond)
        return taken


def _merge_strands(strands: list[_Strand], backwards: bool) -> Iterator[pl.DataFrame]:
    """Rows of all in order: as far back as each of them has been read, then further."""
    while True:
        for strand in strands:
            while not strand.is_done and (strand.held is None or not strand.held.height):
                strand.more()
        strands = [strand for strand in strands if strand.held is not None and strand.held.height]
        if not strands:
            return
        edges = [strand.edge() for strand in strands if not strand.is_done]
        bound = None if len(strands) == 1 or not edges else max(edges) if backwards else min(edges)
        taken = [strand.take(bound) for strand in strands]
        together = pl.concat(taken, how="vertical_relaxed") if len(taken) > 1 else taken[0]
        if together.height:
            ordered = together.sort(ENDED, _STRAND, maintain_order=True) if len(taken) > 1 else together
            yield ordered.drop(ENDED, _STRAND)
            continue
        for strand in strands:
            if not strand.is_done and strand.edge() == bound:
                strand.more()


def gathered(frames: Iterable[pl.DataFrame], rows: int, backwards: bool) -> Iterator[pl.DataFrame]:
    """Small frames that follow each other as one of about so many rows; backwards each comes before the last one."""
    held: list[pl.DataFrame] = []
    for frame in frames:
        if held and sum(map(len, held)) + frame.height > rows:
            yield pl.concat(held[:: -1 if backwards else 1], how="vertical_relaxed")
            held = []
        if frame.height:
            held.append(frame)
    if held:
        yield pl.concat(held[:: -1 if backwards else 1], how="vertical_relaxed")
