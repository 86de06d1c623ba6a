"""The files of a run, opened: its processes, and their rows in pieces that are not yet for users."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Iterator

from ..store import layout
from .folder import Damage, Folder, merge, run_id
from .processes import Process, Processes, set_offsets

if TYPE_CHECKING:
    import polars as pl

    from .frames import Finisher
    from .reach import Reach
    from .rows import Need
    from .selection import Selection


class RunFiles:
    """What there is of a run, as it was when it was opened; `Run` makes tables of it.

    Args:
        path: Its folder.
        chosen: What of it is asked for; None for all.
    """

    def __init__(self, path: str, chosen: Selection | None = None) -> None:
        from . import live, places, replicas, rows, sealed, vocabulary
        from .selection import EVERYTHING

        self.path, self._chosen = path, chosen or EVERYTHING
        # Called with the number of rows that were read, piece by piece: for who shows how far it has come.
        self.on_rows: Callable[[int], object] = lambda count: None
        self.damage: list[Damage] = []
        self._patches = Folder(os.path.join(path, layout.PATCHES))
        self.id = run_id(path, self.damage)
        self._sealed = places.SealedFolder(path, self.id)
        processes = Processes()
        # Live first: a bank that is sealed meanwhile is then seen twice, never not at all.
        self.damage += live.read_all(Folder(os.path.join(path, layout.LIVE)), processes)
        ranks = self._chosen.ranks
        self.damage += sealed.index(self._sealed, processes, None if ranks is None else sealed.of_ranks(ranks))
        processes.leave_out_other_programs(ranks)
        self._processes = processes.ordered()
        places.add_removed(path, self.id, self._processes)
        replicas.settle(self._processes)
        self.damage += live.losses(self._processes)
        self.damage = merge(self.damage)
        set_offsets(self._processes)
        self.vocabulary = vocabulary.Vocabulary()
        self._blocks = rows.Blocks(self._sealed, self.vocabulary, self.damage, self._chosen)
        self._opened: list[tuple[Process, Any]] | None = None
        self._stage_rows: pl.DataFrame | None = None

    def rows_at_most(self) -> int:
        """So many rows will be read of it, or fewer, by what the files say of themselves; *cost*: nothing is read."""
        return self._blocks.rows_at_most(self._processes)

    def reach(self) -> Reach:
        """Which steps and stages the run has, by the indexes of its blocks; rows are read only where one has none."""
        from .reach import of_blocks, of_rows

        indexed, is_whole = of_blocks(process.blocks for process in self._processes)
        has_banks = any(process.unsealed() for process in self._processes)
        return indexed if is_whole and not has_banks and not self._open() else indexed.and_also(of_rows(self))

    def coded(self, need: Need, rows: int = 1 << 17, backwards: bool = True) -> Iterator[pl.DataFrame]:
        """Rows with codes in place of texts, in pieces from the last to the first, open ranges before all others.

        Forwards, from the first to the last, without those that are open. In a piece rows are in the order in which
        they ended: of one process after the other, of some track or other. `process, site, stage, track, depth, flags,
        step, start_ns, duration_ns, busy_ns, attributes`, and `@name` for each name that is needed. `vocabulary` says
        what the codes of a piece stand for once it has been given.
        """
        from . import frames, opened

        if backwards:
            yield frames.compact(opened.as_chunk(self._open(), self.vocabulary, need))
        chunks = self._blocks.chunks_backwards if backwards else self._blocks.chunks
        for chunk in chunks(self._processes, rows, need):
            self.on_rows(chunk.rows)
            yield frames.compact(chunk)

    def _pieces(self, rows: int = 1 << 20, need: Need | None = None) -> Iterator[pl.DataFrame]:
        """All rows with codes in place of texts; the vocabulary holds those of a piece once it has been given."""
        from . import frames, opened
        from .rows import ALL

        for chunk in self._blocks.chunks(self._processes, rows, need or ALL):
            self.on_rows(chunk.rows)
            yield frames.compact(chunk)
        yield frames.compact(opened.as_chunk(self._open(), self.vocabulary, need or ALL))

    def _pieces_backwards(self, rows: int) -> Iterator[pl.DataFrame]:
        from . import frames, opened

        yield frames.compact(opened.as_chunk(self._open(), self.vocabulary)).reverse()
        for chunk in self._blocks.chunks_backwards(self._processes, rows):
            self.on_rows(chunk.rows)
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

    def _finisher(self) -> Finisher:
        from . import frames

        return frames.Finisher(self._processes, self.vocabulary)
