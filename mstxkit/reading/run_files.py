"""The files of a run, opened: its processes, and their rows in pieces that are not yet for users."""

from __future__ import annotations

import os
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable, Iterator, Mapping, TypeVar

from ..errors import FormatError
from ..store import job_file, layout, patch_record
from ..store.dataset import MARKS, RANGES
from ..store.job_file import JobState
from .folder import Damage, Folder, merge, run_id, unlisted
from .processes import Process, Processes, set_offsets

if TYPE_CHECKING:
    import polars as pl

    from .dataset.joining import CompactedRows
    from .frames import Finisher
    from .reach import Reach
    from .rows import Need
    from .selection import Numbers, Selection

AnyRun = TypeVar("AnyRun", bound="RunFiles")
Record = TypeVar("Record")


class RunFiles:
    """What there is of a run, as it was when it was opened; `Run` makes tables of it.

    Args:
        path: Its folder.
        chosen: What of it is asked for; None for all.
        sealed_files: These alone, and nothing that is live or was compacted; None: all there is.
    """

    def __init__(self, path: str, chosen: Selection | None = None, sealed_files: frozenset[str] | None = None) -> None:
        from . import live, places, replicas, rows, sealed, vocabulary
        from .dataset.parts import CompactedParts
        from .selection import EVERYTHING

        self.path, self._chosen = path, chosen or EVERYTHING
        # Called with the number of rows that were read, piece by piece: for who shows how far it has come.
        self.on_rows: Callable[[int], object] = lambda count: None
        self.damage: list[Damage] = []
        self._patches = Folder(os.path.join(path, layout.PATCHES))
        self.id = run_id(path, self.damage)
        self._sealed = places.SealedFolder(path, self.id)
        self._sealed.only = sealed_files
        processes = Processes()
        # Live first: a bank that is sealed meanwhile is then seen twice, never not at all.
        if sealed_files is None:
            for part in (layout.LIVE, layout.SEALED):
                self.damage += unlisted(os.path.join(path, part))
            self.damage += live.read_all(Folder(os.path.join(path, layout.LIVE)), processes)
        there = self._sealed.names(layout.SEALED_SUFFIX) if sealed_files is None else []
        its_id = self.id if sealed_files is None else None
        self._compacted = CompactedParts(Path(path), its_id, there, self.damage, self._chosen)
        self._sealed.without = self._compacted.replaced
        self._compacted.teach(processes)
        ranks = self._chosen.ranks
        self.damage += sealed.index(self._sealed, processes, None if ranks is None else sealed.of_ranks(ranks))
        processes.leave_out_other_programs(ranks)
        self._processes = processes.ordered()
        places.add_removed(path, self.id, self._processes)
        replicas.settle(self._processes)
        self.damage += live.losses(self._processes)
        self.damage = self._compacted.damage = merge(self.damage)
        set_offsets(self._processes, self._clocks_put_right)
        self.vocabulary = vocabulary.Vocabulary()
        self._blocks = rows.Blocks(self._sealed, self.vocabulary, self.damage, self._chosen)
        self._opened: list[tuple[Process, Any]] | None = None
        self._stage_rows: pl.DataFrame | None = None

    def _clocks_put_right(self, hosts: int) -> Mapping[str, int]:
        """As whoever judged the job has found; of one host alone nothing is wrong, but this may be a part of a job."""
        job = job_file.read(Path(self.path), self.id or "") or JobState()
        return job.clocks if max(hosts, job.hosts) > 1 else {}

    def rows_at_most(self) -> int:
        """So many rows will be read of it, or fewer, by what the files say of themselves; no row is read for it."""
        return self._blocks.rows_at_most(self._processes) + sum(group.rows.rows for group in self._compacted.groups())

    def reach(self) -> Reach:
        """Which steps and stages the run has: by the indexes of its blocks; live banks, which have none, by rows."""
        from . import reach, rows

        sources = [(process, source) for process in self._processes for source in rows.all_sources(process)]
        by_index = [reach.said_of(source) for _, source in sources]
        silent = (each for each, its_reach in zip(sources, by_index) if its_reach is None)
        read = map(reach.read_from, self._blocks.whole(silent))
        opened = (reach.of_open(range_) for _, range_ in self._open())
        return reduce(reach.Reach.and_also, chain(filter(None, by_index), read, opened), self._compacted.reach())

    def who_may_have(self, attribute: str) -> frozenset[int]:
        """Processes of which a row may have this attribute, by the texts of their blocks; what was compacted says of
        those of a whole group of rows.
        """
        compacted = self._compacted.who_may_have(attribute)
        each = ((process, self._blocks.texts(process)) for process in self._processes)
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
        wanted = [process for process in self._processes if only is None or process.index in only]
        if backwards:
            open_rows = self._open_rows(need)
            yield open_rows if only is None else open_rows.filter(open_rows["process"].is_in(list(only)))
        if not self._compacted:
            yield from self._coded(wanted, need, rows, backwards)
            return
        from .dataset import joining

        compacted = self._compacted_rows(need, kinds)
        each = (
            piece
            for process in wanted[:: -1 if backwards else 1]
            for piece in self._coded_of(process, compacted, need, rows, backwards)
        )
        yield from joining.gathered(each, rows, backwards)

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
        from .dataset.joining import CompactedRows

        return CompactedRows(self._compacted, self._processes, self.vocabulary, need, self._chosen, kinds)

    def _open_rows(self, need: Need) -> pl.DataFrame:
        """Ranges that are open, or were when their process ended, process by process."""
        from . import frames, opened

        own = frames.compact(opened.as_chunk(self._open(), self.vocabulary, need))
        compacted = self._compacted_rows(need).open() if self._compacted else []
        return frames.together([own, *compacted]).sort("process", maintain_order=True) if compacted else own

    def _coded(self, processes: list[Process], need: Need, rows: int, backwards: bool) -> Iterator[pl.DataFrame]:
        from . import frames

        chunks = self._blocks.chunks_backwards if backwards else self._blocks.chunks
        for chunk in chunks(processes, rows, need):
            self.on_rows(chunk.rows)
            yield frames.compact(chunk)

    def part(self: AnyRun, ranks: Numbers = None, steps: Numbers = None, stages: Iterable[str] | None = None) -> AnyRun:
        """The same run, opened once more: a part of it, chosen as `open_run` does."""
        from .selection import selection

        return type(self)(self.path, selection(ranks, steps, None, None, stages))

    def _pieces(
        self, rows: int = 1 << 20, need: Need | None = None, kinds: tuple[str, ...] = (RANGES, MARKS)
    ) -> Iterator[pl.DataFrame]:
        """All rows with codes in place of texts; the vocabulary holds those of a piece once it has been given."""
        from .rows import ALL

        yield from self.coded(need or ALL, rows, False, kinds)
        yield self._open_rows(need or ALL)

    def _open(self) -> list[tuple[Process, Any]]:
        from . import opened

        if self._opened is None:
            ranges = ((p, opened.open_ranges(p, self._blocks, self._sealed, self.damage)) for p in self._processes)
            self._opened = [
                (process, range_)
                for process, open_ranges in ranges
                for range_ in open_ranges
                if opened.is_asked_for(process, range_, self._chosen)
            ]
        return self._opened

    def known_processes(self) -> list[Process]:
        """In the order of `processes()`."""
        return self._processes

    def archived_batches(self, rows: int) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """(ranges, marks) as they are kept when sealed files are compacted, in pieces of about so many rows."""
        from . import frames

        for piece in self._pieces(rows, frames.ARCHIVE_NEED):
            finisher = self._finisher()
            yield finisher.archived_ranges(piece), finisher.archived_marks(piece)

    def decoded_stage_rows(self, *more: str) -> pl.DataFrame:
        """`stage_rows()`, decoded anew, with these columns of ranges besides."""
        from . import frames

        pieces = self._pieces(need=frames.STAGE_NEED)
        own = frames.together([self._finisher().only_stages(piece) for piece in pieces])
        return self._finisher().stage_rows(own, more)

    def _patch_records(self, parse: Callable[[bytes], Record]) -> Iterator[tuple[Process, Record]]:
        """What became of patching in each process that says so, parsed."""
        by_file = {f"{process.name}{layout.PATCHES_SUFFIX}": process for process in self._processes}
        for name in (name for name in self._patches.names(layout.PATCHES_SUFFIX) if name in by_file):
            try:
                record = parse(self._patches.read(name, size=patch_record.LIMIT_BYTES))
            except (OSError, FormatError) as exc:
                Damage.because(self._patches.path_of(name), exc).note_in(self.damage)
                continue
            yield by_file[name], record

    def _finisher(self) -> Finisher:
        from . import frames

        return frames.Finisher(self._processes, self.vocabulary)
