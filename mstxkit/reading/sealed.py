"""Sealed files of a run, indexed: which blocks are whole, whose they are, and where. Payloads are read later."""

from __future__ import annotations

import math
import zlib

from ..errors import FormatError
from ..store import segment
from ..store.layout import SEALED_SUFFIX, sealed_process
from ..store.values import text_of
from .folder import LIMIT_BYTES, Damage, Folder
from .processes import ENDED, KILLED, LEFT, RUNNING, BlockRef, Process, Processes

_ENDINGS = {"exit": ENDED, "killed": KILLED, "left": LEFT}


def index(folder: Folder, processes: Processes) -> list[Damage]:
    """Read every sealed file once; processes learn their blocks, the result lists what could not be read."""
    damage: list[Damage] = []
    for name in folder.names(SEALED_SUFFIX):
        parts: list[Damage] = []
        try:
            _index_file(folder, name, processes, parts)
        except (FormatError, OSError, MemoryError) as exc:
            parts.append(Damage.because(folder.path_of(name), exc))
        is_running = processes.is_running(sealed_process(name))
        damage += [part for part in parts if not (is_running and _is_being_written(part))]
    return damage


def _is_being_written(damage: Damage) -> bool:
    """What the end of a running process's file may look like for a moment."""
    return damage.size == 0 or damage.reason.startswith("file ends inside")


def _index_file(folder: Folder, name: str, processes: Processes, damage: list[Damage]) -> None:
    data, path = folder.read(name, size=LIMIT_BYTES + 1), folder.path_of(name)
    if len(data) > LIMIT_BYTES:
        damage.append(Damage(path, LIMIT_BYTES, 0, "the rest of this file is beyond what is read of one"))
        data = data[:LIMIT_BYTES]
    for block in segment.scan(data):
        if isinstance(block, segment.BlockDamage):
            damage.append(Damage(path, *block))
        else:
            _take(block, name, processes.of(block.meta.get("identity"), sealed_process(name)))


def _take(block: segment.Block, name: str, process: Process) -> None:
    # Anchors are by far the largest part of a meta, and the process learns them here.
    meta = {key: value for key, value in block.meta.items() if key not in ("clock", "identity", "counters")}
    ref = BlockRef(name, block.payload_at, len(block.payload), zlib.crc32(block.payload), meta)
    process.learn(block.meta, ref.bank if block.kind == segment.RECORDS else math.inf)
    if block.kind == segment.RECORDS:
        process.take(ref)
    elif block.kind == segment.OPEN_RANGES:
        process.open_block = ref
    elif block.kind == segment.END:
        process.learn_end(block.meta)
        if process.state != RUNNING:  # by its lock: it was adopted by mistake
            process.state = _ENDINGS.get(text_of(block.meta.get("ended")), ENDED)


def payload_of(folder: Folder, ref: BlockRef) -> bytes:
    """A block's payload, read again; its file may be gone or another one by now.

    Raises:
        FormatError: these are no longer the bytes that were indexed.
        OSError: the file cannot be read.
    """
    payload = folder.read(ref.file, ref.offset, ref.size)
    if len(payload) != ref.size or zlib.crc32(payload) != ref.crc:
        raise FormatError("a block that changed while it was read", ref.offset)
    return payload
