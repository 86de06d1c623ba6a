"""Rows on their way into frames: decoded blocks of many processes, put together in chunks of bounded size."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, Callable, Iterable, Iterator, NamedTuple, TypeVar, Union

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..store import livefile, records, segment, summaries
from ..store.livefile import read_texts
from ..store.values import whole_number
from . import attributes, decode
from .align import Clock
from .folder import Damage, Folder
from .processes import BlockRef, Process
from .sealed import Allowance, check_payload
from .selection import Selection
from .vocabulary import Vocabulary

IS_MARK, IS_ERROR, IS_OPEN = 1, 2, 4
NO_DURATION = -1
WAITS_FOR = summaries.WAITS_FOR

_COLUMNS = {
    "process": np.uint32, "site": np.uint32, "stage": np.uint32, "track": np.uint16, "depth": np.uint8,
    "flags": np.uint8, "step": np.uint32, "start_ns": np.int64, "duration_ns": np.int64,
}  # fmt: skip
T = TypeVar("T")
R = TypeVar("R")
_THREADS, _AHEAD = 2, 4


class Need(NamedTuple):
    """What a table shows of a row: what nobody looks at is not decoded.

    Args:
        as_json: All attributes as one JSON text?
        names: Attributes that are columns of their own.
        own_stages: Only ranges that are occurrences of a stage of their own?
        texts: Of which site and stage a row is? Else both may be 0.
    """

    as_json: bool = True
    names: tuple[str, ...] = ()
    own_stages: bool = False
    texts: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The names, and what tells whose a row is: what a controller waits for is not its own."""
        return self.names if WAITS_FOR in self.names else (*self.names, WAITS_FOR)


ALL = Need()
Source = Union[BlockRef, livefile.BankCopy]


class DecodedBlock(NamedTuple):
    """Rows of a block and its texts, of which so many bytes are damaged, `unread`; times on the run's wall clock."""

    columns: decode.Columns
    texts: livefile.Texts
    start_ns: decode.I64
    duration_ns: decode.I64
    unread: int = 0


_DAMAGE = (FormatError, OSError, ValueError, MemoryError)
# A small block as it is unpacked, a large one decoded, or why it cannot be read; None: it is a live bank.
_Read = Union[segment.Payload, DecodedBlock, Exception, None]
_ReadSource = tuple[Process, Source, _Read]
# A block from which on a thread reads, unpacks and decodes it ahead.
_LARGE_BYTES = 1 << 16
_FEW_TEXTS = 1 << 16
_READ_AHEAD_BYTES = 1 << 18
# Blocks that have no more rows together are decoded together.
_ROWS_TOGETHER = 1 << 15


class Chunk:
    """Columns of rows; `busy`, `attributes` and `named` hold (rows, values) of the columns that most rows lack."""

    def __init__(self, capacity: int, need: Need = ALL) -> None:
        self.capacity, self.rows, self.need = capacity, 0, need
        self.columns: dict[str, npt.NDArray[Any]] = {name: np.empty(capacity, t) for name, t in _COLUMNS.items()}
        self.busy: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self.attributes: list[tuple[npt.NDArray[np.int64], list[str]]] = []
        self.named: dict[str, list[attributes.Values]] = {}

    def add(self, **values: npt.NDArray[Any] | int) -> None:
        """Append rows: all columns by name; scalars are repeated."""
        count = max(len(v) for v in values.values() if isinstance(v, np.ndarray))
        for name, value in values.items():
            self.columns[name][self.rows : self.rows + count] = value
        self.rows += count


class Blocks:
    """All blocks and live banks of a run's processes, decoded one after the other into chunks.
    `chosen`: which rows of them are asked for.
    """

    def __init__(self, sealed: Folder, vocabulary: Vocabulary, damage: list[Damage], chosen: Selection) -> None:
        self._sealed, self._vocabulary, self._damage, self._chosen = sealed, vocabulary, damage, chosen
        self.allowance = Allowance()
        self._read_ahead = ("", 0, b"")

    def chunks(self, processes: list[Process], chunk_rows: int, need: Need) -> Iterator[Chunk]:
        """Ranges and marks, process by process, in the order in which they ended."""
        chunk = Chunk(chunk_rows, need)
        sources = ((process, source) for process in processes for source in self._list_sources(process))
        for process, decoded in self._decode_sources(sources, need, min(chunk_rows, _ROWS_TOGETHER)):
            rows = len(decoded.columns.end)
            # Has it many rows, the last of another process? Many rows of one process are finished faster.
            is_large = 4 * chunk.rows >= chunk.capacity
            is_of_others = is_large and chunk.columns["process"][chunk.rows - 1] != process.index
            if chunk.rows and (chunk.rows + rows > chunk.capacity or is_of_others):
                yield chunk
                chunk = Chunk(chunk_rows, need)
            if rows > chunk.capacity:
                chunk = Chunk(rows, need)
            self._put_block(chunk, process, decoded)
        yield chunk

    def chunks_backwards(self, processes: list[Process], chunk_rows: int, need: Need) -> Iterator[Chunk]:
        """The same from the end: the last chunk first; the rows of a chunk stay in order."""
        held: list[tuple[Process, DecodedBlock]] = []
        rows = 0
        backwards = reversed(processes)
        sources = ((process, source) for process in backwards for source in reversed(self._list_sources(process)))
        for process, decoded in self._decode_sources(sources, need):
            if held and rows + len(decoded.columns.end) > chunk_rows:
                yield self._join_held(held, rows, need)
                held, rows = [], 0
            held.append((process, decoded))
            rows += len(decoded.columns.end)
        yield self._join_held(held, rows, need)

    def _join_held(self, held: list[tuple[Process, DecodedBlock]], rows: int, need: Need) -> Chunk:
        chunk = Chunk(rows, need)
        while held:
            self._put_block(chunk, *held.pop())
        return chunk

    def rows_at_most(self, processes: list[Process]) -> int:
        """How many rows they have, by what the blocks that may hold any of those asked for say of themselves; of a live
        bank attributes count too.
        """
        return sum(
            whole_number(of.meta.get("records")) if isinstance(of, BlockRef) else len(of.raw) // records.RECORD_BYTES
            for process in processes
            for of in self._list_sources(process)
        )

    def texts(self, process: Process) -> Iterator[livefile.Texts]:
        """The texts of its blocks and live banks that may hold what is asked for, oldest first; no row is decoded."""
        for source in self._list_sources(process):
            if not isinstance(source, BlockRef):
                yield read_texts(source.text, source.salt)[0]
                continue
            try:
                texts = _texts_of(self._read_payload(source).texts)[0]
            except _DAMAGE:
                continue
            yield texts

    def whole(self, sources: Iterable[tuple[Process, Source]]) -> Iterator[DecodedBlock]:
        """These blocks and live banks, all of their rows, whatever is asked for."""
        return (decoded for _, decoded in self._decode_sources(sources, None))

    def _list_sources(self, process: Process) -> list[Source]:
        may_hold = self._chosen.may_hold
        return [each for each in all_sources(process) if not isinstance(each, BlockRef) or may_hold(each, process)]

    def _decode_sources(
        self, sources: Iterable[tuple[Process, Source]], need: Need | None, rows_together: int = 0
    ) -> Iterator[tuple[Process, DecodedBlock]]:
        """Those that can be read; without a need, all of their rows.
        `rows_together`: blocks that follow each other may come as one that has no more rows; 0: each by itself.
        """
        group: list[_ReadSource] = []
        texts, rows_left = None, 0  # of those that may join it
        for (process, source), read in in_order(lambda item: self._read_source(*item, need), sources, _is_large):
            small = read if isinstance(read, segment.Payload) and len(read.texts) < _FEW_TEXTS else None
            joins = small is not None and small.texts == texts and small.n <= rows_left and process is group[0][0]
            if not joins:
                yield from self._decoded_group(group, need)
                texts = small.texts if small is not None and not _texts_of(small.texts)[1] else None
                group, rows_left = [], rows_together
            group.append((process, source, read))
            rows_left -= small.n if small is not None else 0
        yield from self._decoded_group(group, need)

    def _decoded_group(self, group: list[_ReadSource], need: Need | None) -> Iterator[tuple[Process, DecodedBlock]]:
        """Small blocks of a process that have the same texts together, or one by one where one of them is damaged."""
        origins = [whole_number(source.meta.get("origin")) for _, source, _ in group if isinstance(source, BlockRef)]
        payloads = [read for *_, read in group if isinstance(read, segment.Payload)]
        if len(payloads) > 1:
            process, texts = group[0][0], _texts_of(payloads[0].texts)[0]
            try:
                columns = decode.from_payloads([*zip(payloads, origins)], self._choose(need, texts))
                yield process, _add_times(process, columns, texts)
                return
            except (ValueError, MemoryError):
                pass
        for process, source, read in group:
            if (decoded := self._settle_source(process, source, read, need)) is not None:
                yield process, decoded

    def _read_source(self, process: Process, source: Source, need: Need | None) -> _Read:
        """May run on a thread of its own: nothing of what is common to blocks changes, but what they may claim."""
        if not isinstance(source, BlockRef):
            return None
        try:
            payload = self._read_payload(source)
            return self._decode(process, source, payload, need) if _is_large((process, source)) else payload
        except _DAMAGE as exc:
            return exc

    def _settle_source(self, process: Process, source: Source, read: _Read, need: Need | None) -> DecodedBlock | None:
        """A block or bank decoded; what is damaged is noted, and nothing comes of what cannot be read."""
        if not isinstance(source, BlockRef):
            columns, texts = decode.from_bank(source)[0], read_texts(source.text, source.salt)[0]
            chosen = self._choose(need, texts)(columns.site, lambda: columns.stage, lambda: columns.step)
            return _add_times(process, columns if chosen is None else decode.pick_rows(columns, chosen), texts)
        try:
            if isinstance(read, Exception):
                raise read
            assert read is not None
            decoded = read if isinstance(read, DecodedBlock) else self._decode(process, source, read, need)
        except _DAMAGE as exc:
            self._note_damage(source, exc)
            return None
        if decoded.unread:
            reason = f"the first {decoded.unread} bytes of a block's texts are damaged: some names are missing"
            self._note_damage(source, FormatError(reason))
        return decoded

    def _decode(self, process: Process, ref: BlockRef, payload: segment.Payload, need: Need | None) -> DecodedBlock:
        texts, unread = _texts_of(payload.texts) if len(payload.texts) < _FEW_TEXTS else read_texts(payload.texts, None)
        origin = whole_number(ref.meta.get("origin"))
        columns = decode.from_payloads([(payload, origin)], self._choose(need, texts))
        return _add_times(process, columns, texts)._replace(unread=unread)

    def _choose(self, need: Need | None, texts: livefile.Texts) -> decode.Choose:
        """Which rows of a block with these texts are asked for."""
        asked = self._chosen

        def choose(
            site: decode.U16, stage: Callable[[], decode.U16], step: Callable[[], decode.U32]
        ) -> decode.Bits | None:
            if need is None:
                return None
            parts = [asked.in_steps(step())] if asked.steps is not None else []
            parts += [asked.in_stages(stage(), texts.stages)] if asked.stages is not None else []
            if need.own_stages:
                is_own = np.zeros(1 << 16, dtype=bool)  # of each site by its number
                is_own[[number for number, text in texts.sites.items() if text.own_stage and number < 1 << 16]] = True
                parts.append(is_own[site])
            return np.logical_and.reduce(parts) if parts else None

        return choose

    def _read_payload(self, ref: BlockRef) -> segment.Payload:
        sizes = [ref.meta.get(name) for name in ("records", "attributes", "text_bytes")]
        if not all(type(size) is int and 0 <= size < 1 << 40 for size in sizes):
            raise FormatError("a block that does not say how much it holds")
        rows, attribute_count, text_bytes = sizes
        expected = text_bytes + records.RECORD_BYTES * (rows + attribute_count)  # type: ignore[operator]
        self.allowance.grant(ref, expected)
        if ref.size >= _LARGE_BYTES:
            packed = self._sealed.read(ref.file, ref.offset, ref.size)
        else:  # read together with what follows it, which is asked for next
            file, first, data = self._read_ahead
            if file != ref.file or not first <= ref.offset <= first + len(data) - ref.size:
                first, data = ref.offset, self._sealed.read(ref.file, ref.offset, _READ_AHEAD_BYTES)
                self._read_ahead = (ref.file, first, data)
            packed = data[ref.offset - first : ref.offset - first + ref.size]
        stream = segment.decompress_stream(str(ref.meta.get("codec")), check_payload(packed, ref), expected)
        return segment.split_stream(stream, ref.meta)

    def _note_damage(self, ref: BlockRef, why: Exception) -> None:
        Damage.because(self._sealed.path_of(ref.file), why, ref.offset, ref.size).note_in(self._damage)

    def _put_block(self, chunk: Chunk, process: Process, decoded: DecodedBlock) -> None:
        columns, texts, start_ns, duration_ns, _ = decoded
        if self._chosen.has_time and not (chosen := self._chosen.in_time(start_ns, duration_ns)).all():
            columns, start_ns, duration_ns = decode.pick_rows(columns, chosen), start_ns[chosen], duration_ns[chosen]
        if not len(start_ns):
            return
        self._put_sparse(chunk, process.clock, columns, texts)
        site, stage = self._vocabulary.block_codes(columns.site, columns.stage, texts)
        chunk.add(
            process=process.index, track=columns.track, depth=columns.depth, step=columns.step,
            site=site, stage=stage,
            flags=columns.is_mark * np.uint8(IS_MARK) | columns.error * np.uint8(IS_ERROR),
            start_ns=start_ns, duration_ns=duration_ns,
        )  # fmt: skip

    def _put_sparse(self, chunk: Chunk, clock: Clock, columns: decode.Columns, texts: livefile.Texts) -> None:
        own = columns.attributes
        if not len(own.owner):
            return
        is_busy = own.value_type == records.BUSY
        rows, ticks = own.owner[is_busy], own.value[is_busy].view(np.int64)  # really spent inside
        if len(rows):
            end = columns.end[rows]
            chunk.busy.append((rows + chunk.rows, clock.to_monotonic(end) - clock.to_monotonic(end - ticks)))
        if chunk.need.as_json:
            rows, values = attributes.json_texts(columns.attributes, texts.texts)
            if values:
                chunk.attributes.append((rows + chunk.rows, values))
        columns_of = attributes.read_named(columns.attributes, texts.texts, chunk.need.columns, chunk.rows)
        for name, part in columns_of.items():
            chunk.named.setdefault(name, []).append(part)


@lru_cache(maxsize=64)
def _texts_of(text: bytes) -> tuple[livefile.Texts, int]:
    """DecodedBlock texts; the blocks of a process mostly have the same. Nobody changes them."""
    return read_texts(text, None)


def _is_large(item: tuple[Process, Source]) -> bool:
    return isinstance(item[1], BlockRef) and item[1].size >= _LARGE_BYTES


def all_sources(process: Process) -> list[Source]:
    """Blocks of a process, then its live banks that were not sealed meanwhile."""
    unsealed = process.unsealed()
    grown = {bank.seq for bank in unsealed}
    return [*(ref for ref in process.blocks if ref.bank not in grown), *unsealed]


def _add_times(process: Process, columns: decode.Columns, texts: livefile.Texts) -> DecodedBlock:
    end_ns = process.clock.to_monotonic(columns.end)
    duration_ns = end_ns - process.clock.to_monotonic(columns.end - columns.duration)
    return DecodedBlock(columns, texts, end_ns - duration_ns + np.int64(process.offset_ns), duration_ns)


def in_order(work: Callable[[T], R], items: Iterable[T], is_large: Callable[[T], bool]) -> Iterator[tuple[T, R]]:
    """Each item with its result, in order; large ones are worked on ahead, at most four at a time.

    What `work` raises is raised here. A small item costs less than to hand it on: it waits for its turn.
    """
    waiting: deque[tuple[T, Callable[[], R]]] = deque()
    with ThreadPoolExecutor(_THREADS, "mstxkit-reading") as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(work, item).result if is_large(item) else partial(work, item)))
                if len(waiting) >= _AHEAD or not is_large(waiting[0][0]):
                    first, result = waiting.popleft()
                    yield first, result()
            while waiting:
                first, result = waiting.popleft()
                yield first, result()
        finally:
            pool.shutdown(cancel_futures=True)
