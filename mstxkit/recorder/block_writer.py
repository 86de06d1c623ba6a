"""Writes what a live file holds as blocks: its banks, as each is full or old enough, what is open, and the end.

The sealer loads it with the first block.
"""

from __future__ import annotations

import threading
from typing import Any, Mapping

from ..engine.choose import engine
from ..store import block_index, livefile, records, segment
from ..store.block_index import Indexed
from . import blocks
from .live import LiveFile
from .sealed import SealedFiles

_MORE_BYTES = 64  # what another number in a counter may add to a block


class BlockWriter:
    """From the live file of this process into `files`. One thread at a time; all of it raises OSError."""

    def __init__(self, live: LiveFile, files: SealedFiles) -> None:
        self._live, self._files = live, files
        # Where banks are encoded, one after the other: memory that is touched once is not touched anew.
        self._room = bytearray()
        self._end: Mapping[str, Any] = {}
        self._late = 0

    def write_bank(self, index: int) -> tuple[int, int]:
        """Write a full bank of the engine's: its sequence number, and how many records and attributes it had."""
        head = livefile.read_bank_head(self._live.view, self._live.layout.bank_at(index))
        texts = engine.bank_texts(index)
        stored = blocks.encode_texts(texts)
        size = len(stored) + head.record_count * records.RECORD_BYTES
        if len(self._room) < size:
            self._room = bytearray(size)
        self._room[: len(stored)] = stored
        n, m, extent = engine.encode_into(index, self._room, len(stored))
        if n:
            stream = memoryview(self._room)[: len(stored) + (n + m) * records.RECORD_BYTES]
            content = segment.Content(stream, texts, len(stored), n, m, segment.Extent(*extent))
            self._files.append(blocks.of_records(self._live.view, content, head.seq, head.origin))
        return head.seq, n + m

    def write_rest(self, sealed: Mapping[int, int], error: str | None) -> None:
        """Write what is left once the engine has let go. `sealed`: as of `write_bank`, of banks that are written."""
        view = self._live.view
        for block in blocks.of_left_banks(view, self._live.layout, sealed):
            self._files.append(block)
        # First of all: what this evicts must be in the last counters.
        self._files.make_room(len(_last_blocks(view, error).data) + _MORE_BYTES)
        self._files.append(last := _last_blocks(view, error), is_last=True)
        self._end = {key: value for key, value in last.about.items() if key not in ("clock", "codec")}

    def count_late(self) -> bool:
        """At the exit, after the end: what the main thread still marks, as a finalizer does, is dropped, and the end is
        said anew with that (of many with each 64th). Other threads were in the midst of their work. True: tell of the
        next one, too.
        """
        is_late = threading.current_thread() is threading.main_thread()
        self._late += is_late
        if is_late and (self._late < 64 or not self._late % 64):
            counters = self._end["counters"]
            counters = {**counters, "dropped": counters["dropped"] + self._late}
            self._files.add_if_there(block_index.make_block(segment.END, {**self._end, "counters": counters}))
        return True


def _last_blocks(view: memoryview, error: str | None) -> Indexed:
    """What is open and the end, with the counters as they are now."""
    return (blocks.of_open_ranges(view) or Indexed(b"")) + blocks.of_end(view, "exit", error=error)
