"""Sealed files of a run, indexed: which blocks are whole, whose they are, and where. Payloads are read later."""

from __future__ import annotations

import math
import zlib
from typing import Any

from .. import segment
from ..errors import FormatError
from .folder import LIMIT_BYTES, Damage, Folder
from .processes import EXITED, KILLED, BlockRef, Process, Processes

SUFFIX = ".mxs"


def index(folder: Folder, processes: Processes) -> list[Damage]:
    """Read every sealed file once; processes learn their blocks, the result lists what could not be read."""
    damage: list[Damage] = []
    for name in folder.names(SUFFIX):
        found: list[Damage] = []
        try:
            _index_file(folder, name, processes, found)
        except (FormatError, OSError, MemoryError) as exc:
            found.append(Damage(folder.path_of(name), getattr(exc, "offset", 0) or 0, 0, reason_of(exc)))
        if not processes.is_running(stem_of(name)):
            damage += found
        else:
            damage += [one for one in found if not _is_being_written(one)]
    return damage


def _is_being_written(damage: Damage) -> bool:
    """What the end of a running process's file may look like for a moment."""
    return damage.size == 0 or damage.reason.startswith("file ends inside")


def _index_file(folder: Folder, name: str, processes: Processes, damage: list[Damage]) -> None:
    data = folder.read(name, size=LIMIT_BYTES + 1)
    if len(data) > LIMIT_BYTES:
        damage.append(
            Damage(folder.path_of(name), LIMIT_BYTES, 0, "the rest of this file is beyond what is read of one")
        )
        data = data[:LIMIT_BYTES]
    stem = stem_of(name)
    for found in segment.scan(data):
        if isinstance(found, segment.Damage):
            damage.append(Damage(folder.path_of(name), *found))
        else:
            _take(found, name, processes.of(found.meta.get("identity"), stem))


def stem_of(name: str) -> str:
    """`<process>` of `<process>.<nnnn>.mxs`."""
    return name[: -len(SUFFIX)].rsplit(".", 1)[0]


def _take(block: segment.Block, name: str, process: Process) -> None:
    ref = BlockRef(name, block.payload_at, len(block.payload), zlib.crc32(block.payload), _without_clock(block.meta))
    process.learn(block.meta, ref.bank if block.kind == segment.RECORDS else math.inf)
    if block.kind == segment.RECORDS:
        _take_records(ref, process)
    elif block.kind == segment.OPEN_RANGES:
        process.open_block = ref
    elif block.kind == segment.END:
        process.ended = True
        process.state = KILLED if block.meta.get("ended") == "killed" else EXITED


def _take_records(ref: BlockRef, process: Process) -> None:
    """A bank that was sealed twice (by its process, then by who adopted it) counts once."""
    if not ref.bank or ref.bank not in process.sealed_banks:
        process.blocks.append(ref)
        process.sealed_banks.add(ref.bank)


def _without_clock(meta: dict[str, Any]) -> dict[str, Any]:
    """Anchors are by far the largest part of a meta, and the process has learnt them."""
    return {key: value for key, value in meta.items() if key not in ("clock", "identity", "counters")}


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


def reason_of(exc: BaseException) -> str:
    """Why something could not be read, in words without its path."""
    if isinstance(exc, MemoryError):
        return "needs more memory than there is"
    return getattr(exc, "strerror", None) or str(exc)
