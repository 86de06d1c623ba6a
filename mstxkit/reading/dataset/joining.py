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
from ...store.values import group_by
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
            by_strand = group_by(own, lambda group: (group.kind, group.file.split("/")[1]))
            # Of what ends at one instant, marks come first, then what a later day has: that began later.
            strands: dict[int, Iterator[pl.DataFrame | None]] = {}
            for at, name in enumerate(sorted(by_strand, reverse=True)):
                frames = (self._ended(group).get(process.index) for group in by_strand[name][:: -1 if backwards else 1])
                strands[at - len(by_strand) * (name[0] == MARKS)] = frames
            yield from _merge_strands(strands, backwards)

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
        names = coding.columns_of(group.kind, self._need)
        rows = self._parts.read(group, names)
        rows = pl.DataFrame(schema=columns.schema_of(group.kind, names)) if rows is None else rows
        coded = coding.encode_rows(rows, group.kind, self._numbers, self._vocabulary, self._need)
        wanted = self._chosen.rows(coded, self._vocabulary.stages)
        return coded if wanted.all() else coded.filter(wanted)


def _merge_strands(strands: dict[int, Iterator[pl.DataFrame | None]], backwards: bool) -> Iterator[pl.DataFrame]:
    """Rows of all in order, as far as each of them has been read, then further. Of those that ended at one instant come
    first those of the smallest number.
    """
    waiting: list[pl.DataFrame] = []
    edges: dict[int, int] = {}  # when the last row that was read ended, of strands that may go on
    due = list(strands)
    while due or waiting:
        for number in due:
            frame = next((frame for frame in strands[number] if frame is not None and frame.height), None)
            edges.pop(number, None)
            if frame is not None:
                edges[number] = int(frame[ENDED][0 if backwards else -1])
                waiting.insert(0 if backwards else len(waiting), frame.with_columns(pl.lit(number).alias(_STRAND)))
        if not waiting:
            return
        rows, waiting, due = pl.concat(waiting, how="vertical_relaxed"), [], list(edges)
        if rows[_STRAND].n_unique() > 1:
            rows = rows.sort(ENDED, _STRAND, maintain_order=True)
            if edges:  # at this instant others may still follow
                edge = max(edges.values()) if backwards else min(edges.values())
                is_over = pl.col(ENDED) > edge if backwards else pl.col(ENDED) < edge
                rows, waiting = rows.filter(is_over), [rows.filter(~is_over)]
                due = [number for number, its_edge in edges.items() if its_edge == edge]
        if rows.height:
            yield rows.drop(ENDED, _STRAND)


def gather_frames(frames: Iterable[pl.DataFrame], rows: int, backwards: bool) -> Iterator[pl.DataFrame]:
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
