"""The files of a run, opened: its processes, and their rows in pieces that are not yet for users."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

from ..store import layout
from ..store.dataset import MARKS, RANGES
from .folder import Damage, Folder, merge, run_id
from .processes import Process, Processes, set_offsets

if TYPE_CHECKING:
    import polars as pl

    from .frames import Finisher
    from .rows import Need
    from .selection import Selection


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
        self.damage: list[Damage] = []
        self._patches = Folder(os.path.join(path, layout.PATCHES))
        self.id = run_id(path, self.damage)
        self._sealed = places.SealedFolder(path, self.id)
        self._sealed.only = sealed_files
        processes = Processes()
        # Live first: a bank that is sealed meanwhile is then seen twice, never not at all.
        if sealed_files is None:
            self.damage += live.read_all(Folder(os.path.join(path, layout.LIVE)), processes)
        there = self._sealed.names(layout.SEALED_SUFFIX) if sealed_files is None else []
        self._compacted = CompactedParts(Path(path), self.id if sealed_files is None else "", there, self.damage)
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
        set_offsets(self._processes)
        self._vocabulary = vocabulary.Vocabulary()
        self._blocks = rows.Blocks(self._sealed, self._vocabulary, self.damage, self._chosen)
        self._opened: list[tuple[Process, Any]] | None = None
        self._stage_rows: pl.DataFrame | None = None

    def _pieces(self, rows: int = 1 << 20, need: Need | None = None) -> Iterator[pl.DataFrame]:
        """All rows with codes in place of texts; the vocabulary holds those of a piece once it has been given."""
        from . import frames, opened
        from .rows import ALL

        for chunk in self._blocks.chunks(self._processes, rows, need or ALL):
            yield frames.compact(chunk)
        yield frames.compact(opened.as_chunk(self._open(), self._vocabulary, need or ALL))

    def _pieces_backwards(self, rows: int) -> Iterator[pl.DataFrame]:
        from . import frames, opened

        yield frames.compact(opened.as_chunk(self._open(), self._vocabulary)).reverse()
        for chunk in self._blocks.chunks_backwards(self._processes, rows):
            yield frames.compact(chunk).reverse()

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

    def archived_stage_rows(self) -> pl.DataFrame:
        """`stage_rows()` with `busy_ns`."""
        from . import frames

        pieces = self._pieces(need=frames.STAGE_NEED)
        own = frames.together([self._finisher().only_stages(piece) for piece in pieces])
        return self._finisher().stage_rows(own, ("busy_ns",))

    def _with_compacted(self, own: pl.DataFrame, kind: str, named: tuple[str, ...] = ()) -> pl.DataFrame:
        """A table, and before its rows those of the same kind that were compacted."""
        from .dataset import joining

        if not self._compacted:
            return own
        frames = self._compacted.rows(kind, self._chosen, self._processes)
        return joining.joined([joining.of_kind(kind, rows, own.columns, named) for rows in frames], own)

    def _compacted_batches(self, backwards: bool = False) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """(ranges, marks) that were compacted, as `batches()` gives them."""
        from . import frames, opened
        from .dataset import joining

        if not self._compacted:
            return
        nothing, finisher = frames.compact(opened.as_chunk([], self._vocabulary)), self._finisher()
        none = finisher.ranges(nothing, with_process=True), finisher.marks(nothing, with_process=True)
        for kind in (MARKS, RANGES):
            rows = self._compacted.rows(kind, self._chosen, self._processes)
            yield from joining.batches(rows, kind, none, backwards)

    def _finisher(self) -> Finisher:
        from . import frames

        return frames.Finisher(self._processes, self._vocabulary)
