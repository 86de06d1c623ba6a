"""Rows on their way into frames: decoded blocks of many processes, put together in chunks of bounded size."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..store import livefile, records, segment
from ..store.values import whole_number
from . import attributes, decode
from .align import Clock
from .allowance import Allowance
from .folder import Damage, Folder, reason_of
from .processes import BlockRef, Process
from .sealed import payload_of
from .vocabulary import Vocabulary

CHUNK_ROWS = 1 << 20

IS_MARK, IS_ERROR, IS_OPEN = 1, 2, 4
NO_DURATION = -1

_COLUMNS = {
    "process": np.uint32, "site": np.uint32, "stage": np.uint32, "track": np.uint16, "depth": np.uint8,
    "flags": np.uint8, "step": np.uint32, "start_ns": np.int64, "duration_ns": np.int64,
}  # fmt: skip


class Chunk:
    """Columns of rows; `sparse` holds (rows, values) of the columns that most rows lack."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.rows = capacity, 0
        self.columns: dict[str, npt.NDArray[Any]] = {name: np.empty(capacity, t) for name, t in _COLUMNS.items()}
        self.busy: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self.attributes: list[tuple[npt.NDArray[np.int64], list[str]]] = []

    def add(self, **values: npt.NDArray[Any] | int) -> None:
        """Append rows: all columns by name; scalars are repeated."""
        count = max(len(v) for v in values.values() if isinstance(v, np.ndarray))
        for name, value in values.items():
            self.columns[name][self.rows : self.rows + count] = value
        self.rows += count


class Blocks:
    """All blocks and live banks of a run's processes, decoded one after the other into chunks."""

    def __init__(self, sealed: Folder, vocabulary: Vocabulary, damage: list[Damage]) -> None:
        self._sealed, self._vocabulary, self._damage = sealed, vocabulary, damage
        self.allowance = Allowance()

    def chunks(self, processes: list[Process], chunk_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """Ranges and marks, process by process, in the order in which they ended."""
        chunk = Chunk(chunk_rows)
        for process in processes:
            for columns, texts in self.of(process):
                if chunk.rows and chunk.rows + len(columns.end) > chunk.capacity:
                    yield chunk
                    chunk = Chunk(chunk_rows)
                if len(columns.end) > chunk.capacity:
                    chunk = Chunk(len(columns.end))
                self._put(chunk, process, columns, texts)
        yield chunk

    def chunks_backwards(self, processes: list[Process], chunk_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """The same from the end: the last chunk first; the rows of a chunk stay in order."""
        held: list[tuple[Process, decode.Columns, livefile.Texts]] = []
        rows = 0
        for process in reversed(processes):
            for columns, texts in self.of(process, backwards=True):
                if held and rows + len(columns.end) > chunk_rows:
                    yield self._together(held, rows)
                    held, rows = [], 0
                held.append((process, columns, texts))
                rows += len(columns.end)
        yield self._together(held, rows)

    def _together(self, held: list[tuple[Process, decode.Columns, livefile.Texts]], rows: int) -> Chunk:
        chunk = Chunk(rows)
        while held:
            self._put(chunk, *held.pop())
        return chunk

    def of(
        self, process: Process, from_bank: int = 0, backwards: bool = False
    ) -> Iterator[tuple[decode.Columns, livefile.Texts]]:
        """Decoded blocks of one process, then its live banks that were not sealed meanwhile."""
        unsealed = process.unsealed()
        grown = {bank.seq for bank in unsealed}
        sources: list[BlockRef | livefile.BankCopy] = [ref for ref in process.blocks if ref.bank not in grown]
        sources = [source for source in (*sources, *unsealed) if _bank_of(source) >= from_bank]
        for source in reversed(sources) if backwards else sources:
            decoded = self._decode(source) if isinstance(source, BlockRef) else _copied(source)
            if decoded is not None:
                yield decoded

    def _decode(self, ref: BlockRef) -> tuple[decode.Columns, livefile.Texts] | None:
        try:
            payload = self._payload(ref)
            texts, unread = livefile.read_texts(payload.texts, None)
            columns = decode.from_payload(payload, whole_number(ref.meta.get("origin")))
        except (FormatError, OSError, ValueError, MemoryError) as exc:
            self._note(ref, reason_of(exc))
            return None
        if unread:
            self._note(ref, f"the first {unread} bytes of a block's texts are damaged: some names are missing")
        return columns, texts

    def _payload(self, ref: BlockRef) -> segment.Payload:
        sizes = [ref.meta.get(name) for name in ("records", "attributes", "text_bytes")]
        if not all(isinstance(size, int) and 0 <= size < 1 << 40 for size in sizes):
            raise FormatError("a block that does not say how much it holds")
        rows, attribute_count, text_bytes = sizes
        expected = text_bytes + records.RECORD_BYTES * (rows + attribute_count)  # type: ignore[operator]
        self.allowance.grant(ref, expected)
        stream = segment.decompress(str(ref.meta.get("codec")), payload_of(self._sealed, ref), expected)
        return segment.split(stream, ref.meta)

    def _note(self, ref: BlockRef, reason: str) -> None:
        Damage(self._sealed.path_of(ref.file), ref.offset, ref.size, reason).note_in(self._damage)

    def _put(self, chunk: Chunk, process: Process, columns: decode.Columns, texts: livefile.Texts) -> None:
        if not len(columns.end):
            return
        clock = process.clock
        end_ns, start_ns = clock.to_monotonic(columns.end), clock.to_monotonic(columns.end - columns.duration)
        self._put_sparse(chunk, clock, columns, texts)
        chunk.add(
            process=process.index, track=columns.track, depth=columns.depth, step=columns.step,
            site=self._vocabulary.site_codes(columns.site, texts),
            stage=self._vocabulary.stage_codes(columns.stage, texts),
            flags=columns.is_mark * np.uint8(IS_MARK) | columns.error * np.uint8(IS_ERROR),
            start_ns=start_ns + np.int64(process.offset_ns), duration_ns=end_ns - start_ns,
        )  # fmt: skip

    def _put_sparse(self, chunk: Chunk, clock: Clock, columns: decode.Columns, texts: livefile.Texts) -> None:
        if not len(columns.attributes.owner):
            return
        rows, ticks = attributes.busy_ticks(columns.attributes)
        if len(rows):
            end = columns.end[rows]
            chunk.busy.append((rows + chunk.rows, clock.to_monotonic(end) - clock.to_monotonic(end - ticks)))
        rows, values = attributes.json_texts(columns.attributes, texts.texts)
        if values:
            chunk.attributes.append((rows + chunk.rows, values))


def _bank_of(source: BlockRef | livefile.BankCopy) -> int:
    return source.bank if isinstance(source, BlockRef) else source.seq


def _copied(bank: livefile.BankCopy) -> tuple[decode.Columns, livefile.Texts]:
    return decode.from_bank(bank)[0], livefile.read_texts(bank.text, bank.salt)[0]
