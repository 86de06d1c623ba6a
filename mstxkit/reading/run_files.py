"""The files of a run, opened: its processes, and their rows in pieces. Tables are made of them, and only read."""

from __future__ import annotations

import os
from functools import cached_property, reduce
from itertools import chain
from pathlib import Path
from typing import Callable, Collection, Iterable, Iterator, Mapping

import polars as pl

from ..store import job_file, layout
from ..store.dataset import MARKS, RANGES
from ..store.job_file import JobState
from ..store.records import NO_STEP
from . import frames, live, opened, places, reach, sealed
from .dataset.joining import CompactedRows, gather_frames
from .dataset.parts import CompactedParts
from .folder import Damage, Folder, explain_unlisted, merge_damage, run_id
from .opened import UnfinishedRange
from .processes import Process, Processes, rank_of, set_offsets, settle_replicas
from .reach import Reach
from .rows import ALL, Blocks, Need, all_sources
from .selection import EVERYTHING, Numbers, Selection, make_selection
from .vocabulary import Vocabulary


class RunFiles:
    """What there is of a run, as it was when it was opened.

    Args:
        path: Its folder.
        chosen: What of it is asked for; None for all.
        sealed_files: These alone, and nothing that is live or was compacted; None: all there is.

    Attributes:
        processes: In the order of the table of processes.
        vocabulary: What the codes of rows stand for, once these were given.
        on_rows: Called with the number of rows that were read, piece by piece: for who shows how far it has come.
    """

    def __init__(self, path: str, chosen: Selection | None = None, sealed_files: frozenset[str] | None = None) -> None:
        self.path, self.chosen = path, chosen or EVERYTHING
        self.on_rows: Callable[[int], object] = lambda count: None
        self.damage: list[Damage] = []
        self.id = run_id(path, self.damage)
        self._sealed = places.SealedFolder(path, self.id)
        self._sealed.only = sealed_files
        processes = Processes()
        # Live first: a bank that is sealed meanwhile is then seen twice, never not at all.
        if sealed_files is None:
            for part in (layout.LIVE, layout.SEALED):
                self.damage += explain_unlisted(os.path.join(path, part))
            self.damage += live.read_all(Folder(os.path.join(path, layout.LIVE)), processes)
        there = self._sealed.names(layout.SEALED_SUFFIX) if sealed_files is None else []
        its_id = self.id if sealed_files is None else None
        self._compacted = CompactedParts(Path(path), its_id, there, self.damage, self.chosen)
        self._sealed.without = self._compacted.replaced
        self._compacted.teach(processes)
        ranks = self.chosen.ranks
        self.damage += sealed.index_files(self._sealed, processes, None if ranks is None else sealed.of_ranks(ranks))
        processes.leave_out_other_programs(ranks)
        self.processes = processes.ordered()
        places.add_removed(path, self.id, self.processes)
        settle_replicas(self.processes)
        self.damage += live.find_losses(self.processes)
        self.damage = self._compacted.damage = merge_damage(self.damage)
        set_offsets(self.processes, self._clocks_put_right)
        self.vocabulary = Vocabulary()
        self._blocks = Blocks(self._sealed, self.vocabulary, self.damage, self.chosen)

    def _clocks_put_right(self, hosts: int) -> Mapping[str, int]:
        """As whoever judged the job has found; of one host alone nothing is wrong, but this may be a part of a job."""
        job = job_file.read_state(Path(self.path), self.id or "") or JobState()
        return job.clocks if max(hosts, job.hosts) > 1 else {}

    def rows_at_most(self) -> int:
        """So many rows will be read of it, or fewer, by what the files say of themselves; no row is read for it."""
        return self._blocks.rows_at_most(self.processes) + sum(group.rows.rows for group in self._compacted.groups())

    def reach(self) -> Reach:
        """Which steps and stages the run has: by the indexes of its blocks; live banks, which have none, by rows."""
        sources = [(process, source) for process in self.processes for source in all_sources(process)]
        by_index = [reach.said_of(source) for _, source in sources]
        silent = (each for each, its_reach in zip(sources, by_index) if its_reach is None)
        read = map(reach.read_from, self._blocks.whole(silent))
        steps = ((None if of.step == NO_STEP else of.step, of.stage) for _, of in self._opened_ranges)
        unfinished = (Reach(step, step, frozenset(filter(None, [stage]))) for step, stage in steps)
        return reduce(Reach.and_also, chain(filter(None, by_index), read, unfinished), self._compacted.reach())

    def who_may_have(self, attribute: str) -> frozenset[int]:
        """Processes of which a row may have this attribute, by the texts of their blocks; what was compacted says of
        those of a whole group of rows.
        """
        compacted = self._compacted.who_may_have(attribute)
        each = ((process, self._blocks.texts(process)) for process in self.processes)
        return frozenset(
            process.index
            for process, blocks in each
            if process.name in compacted or any(attribute in texts.texts.values() for texts in blocks)
        )

    def coded(
        self, need: Need, rows: int = 1 << 17, backwards: bool = True, kinds: tuple[str, ...] = (RANGES, MARKS),
        only: Collection[int] | None = None,
    ) -> Iterator[pl.DataFrame]:  # fmt: skip
        """Rows with codes in place of texts, in pieces from the last to the first, open ranges before all others.

        Forwards, from the first to the last, without those that are open. In a piece rows are in the order in which
        they ended: of one process after the other, of some track or other. `process, site, stage, track, depth, flags,
        step, start_ns, duration_ns, busy_ns, attributes`, and `@name` for each name that is needed. `vocabulary` says
        what the codes of a piece stand for once it has been given.

        Args:
            kinds: What is needed; the other may be left out.
            only: Only processes of these rows of `processes()`.
        """
        wanted = [process for process in self.processes if only is None or process.index in only]
        if backwards:
            open_rows = self.open_rows(need)
            yield open_rows if only is None else open_rows.filter(open_rows["process"].is_in(list(only)))
        if not self._compacted:
            yield from self._coded(wanted, need, rows, backwards)
            return
        compacted = self._compacted_rows(need, kinds)
        each = (
            piece
            for process in wanted[:: -1 if backwards else 1]
            for piece in self._coded_of(process, compacted, need, rows, backwards)
        )
        yield from gather_frames(each, rows, backwards)

    def _coded_of(
        self, process: Process, compacted: CompactedRows, need: Need, rows: int, backwards: bool
    ) -> Iterator[pl.DataFrame]:
        """Of one process what was compacted, then the rest."""
        own = self._coded([process], need, rows, backwards) if process.blocks or process.banks else ()
        if backwards:
            yield from own
        for piece in compacted.of(process, backwards):
            self.on_rows(piece.height)
            yield piece
        if not backwards:
            yield from own

    def _compacted_rows(self, need: Need, kinds: tuple[str, ...] = (RANGES, MARKS)) -> CompactedRows:
        return CompactedRows(self._compacted, self.processes, self.vocabulary, need, self.chosen, kinds)

    def open_rows(self, need: Need) -> pl.DataFrame:
        """Ranges that are open, or were when their process ended, process by process."""
        own = frames.compact_rows(opened.as_chunk(self._opened_ranges, self.vocabulary, need))
        compacted = self._compacted_rows(need).open() if self._compacted else []
        return frames.join_rows([own, *compacted]).sort("process", maintain_order=True) if compacted else own

    def _coded(self, processes: list[Process], need: Need, rows: int, backwards: bool) -> Iterator[pl.DataFrame]:
        chunks = self._blocks.chunks_backwards if backwards else self._blocks.chunks
        for chunk in chunks(processes, rows, need):
            self.on_rows(chunk.rows)
            yield frames.compact_rows(chunk)

    def part(self, ranks: Numbers = None, steps: Numbers = None, stages: Iterable[str] | None = None) -> RunFiles:
        """The same run, opened once more: a part of it, chosen as `open_run` does."""
        return RunFiles(self.path, make_selection(ranks, steps, None, None, stages))

    def pieces(
        self, rows: int = 1 << 20, need: Need = ALL, kinds: tuple[str, ...] = (RANGES, MARKS)
    ) -> Iterator[pl.DataFrame]:
        """All rows with codes in place of texts; the vocabulary holds those of a piece once it has been given."""
        yield from self.coded(need, rows, False, kinds)
        yield self.open_rows(need)

    @cached_property
    def _opened_ranges(self) -> list[tuple[Process, UnfinishedRange]]:
        ranges = ((p, opened.open_ranges(p, self._blocks, self._sealed, self.damage)) for p in self.processes)
        return [
            (process, range_)
            for process, open_ranges in ranges
            for range_ in open_ranges
            if opened.is_asked_for(process, range_, self.chosen)
        ]

    def finisher(self) -> frames.Finisher:
        """Makes texts of the codes that have been given so far."""
        return frames.Finisher(self.processes, self.vocabulary)

    def batches(self, rows: int = 1 << 17, backwards: bool = False) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """See `Run.batches`."""
        backward = (piece.reverse() for piece in self.coded(ALL, rows))
        for piece in backward if backwards else self.pieces(rows):
            finisher = self.finisher()
            yield finisher.ranges(piece, with_process=True), finisher.marks(piece, with_process=True)

    def ranges(self, attributes: bool | Iterable[str]) -> pl.DataFrame:
        """See `Run.ranges`."""
        need = frames.need_of(attributes)
        pieces = list(self.pieces(need=need, kinds=(RANGES,)))  # all of them first: only then every text is known
        finisher = self.finisher()
        return frames.join_rows([finisher.ranges(pieces.pop(0), need=need) for _ in range(len(pieces))])

    def marks(self, attributes: bool | Iterable[str]) -> pl.DataFrame:
        """See `Run.marks`."""
        need = frames.need_of(attributes)
        marked = frames.join_rows([frames.only_marks(piece) for piece in self.pieces(need=need, kinds=(MARKS,))])
        return self.finisher().marks(marked, need=need)

    def open_ranges(self) -> pl.DataFrame:
        """See `Run.open_ranges`."""
        rows = self.open_rows(ALL)  # before the finisher: only then every text is known
        return self.finisher().ranges(rows, with_process=True)

    @cached_property
    def stage_rows(self) -> pl.DataFrame:
        """Every occurrence of a stage, open and nested ones and those that wait too; decoded once, and kept.

        Columns as `Run.occurrences()`.
        """
        return self.decoded_stage_rows()

    def decoded_stage_rows(self, *more: str) -> pl.DataFrame:
        """The same, decoded anew, with these columns of ranges besides."""
        rows = frames.join_rows(list(self.pieces(need=frames.STAGE_NEED)))  # before the finisher, as above
        return self.finisher().stage_rows(rows, more)

    def learn_tracks(self) -> None:
        """Tell each process what its tracks are called."""
        for process in self.processes:
            last = None
            for texts in self._blocks.texts(process):
                if texts is not last:
                    process.learn_texts(texts)
                last = texts

    def tracks(self) -> pl.DataFrame:
        """See `Run.tracks`."""
        self.learn_tracks()
        rows = [
            (*who, track, text.thread & (1 << 63) - 1, text.is_task, text.name or None, text.is_shared)
            for who, texts in (((p.index, rank_of(p), p.host, p.pid), p.texts) for p in self.processes)
            for track, text in sorted(texts.tracks.items())
        ]
        return pl.DataFrame(rows, schema=frames.TRACK_SCHEMA, orient="row")
