"""Sealed files: blocks of columnar, compressed, checksummed records, as pure encode and decode.

Shared by sealer, adoption and reader. Layout and guarantees: `docs/internals/format.md`, section "Sealed file".
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import zlib
from array import array
from itertools import accumulate
from typing import Any, Iterator, Mapping, NamedTuple

from ..errors import FormatError, NewerVersionError
from . import livefile, records, text_columns
from .livefile import Buffer

FILE_MAGIC = b"MSTXSEAL"
BLOCK_MAGIC = b"MXB1"
VERSION = 1
# Of blocks. In the first, one checksum held for meta and payload together: a meta could not be trusted alone.
JOINT, APART = 1, 2
FILE_HEADER_BYTES = 16
RECORDS, OPEN_RANGES, END, INDEX = 1, 2, 3, 4

_FILE = struct.Struct("<8sHHI")
_HEAD = struct.Struct("<4sHHIII")
_CRC = struct.Struct("<I")
BLOCK_HEADER_BYTES = _HEAD.size + _CRC.size
# Of any version: the checksum of the meta comes last.
HEAD_AT_MOST_BYTES = BLOCK_HEADER_BYTES + _CRC.size
NO_MATCH = "a block's content does not match its checksum"
_of_thread = threading.local()
# Of zstd: level 3 takes 1.7 times as long, and makes planes smaller by 1 to 7 percent.
_LEVEL = 1


class Extent(NamedTuple):
    """What the records of a bank reach over: ticks from its origin, steps, ids of the stages that any of them is in.

    `first_step` is `records.NO_STEP` where none has a step. Of no records: nothing but that.
    """

    first: int
    last: int
    first_step: int
    last_step: int
    stages: tuple[int, ...]


NOTHING = Extent(0, 0, records.NO_STEP, records.NO_STEP, ())


class Payload(NamedTuple):
    """The uncompressed parts of a records block, the numbers of records and of attributes, and what they reach over."""

    texts: bytes
    planes: Buffer
    attributes: Buffer
    n: int
    m: int
    extent: Extent = NOTHING


class Content(NamedTuple):
    """What becomes the content of a records block: texts as they are stored, planes, attributes, one after another."""

    stream: Buffer  # all of it
    texts: bytes  # the texts as they lay in the bank
    text_bytes: int  # how much of `stream` the stored texts are
    # n, m, extent: as in a `Payload`
    n: int
    m: int
    extent: Extent = NOTHING


class Head(NamedTuple):
    """A block's header, and where its parts lie in its file."""

    version: int
    kind: int
    crc: int
    offset: int
    meta_at: int
    payload_at: int
    end: int


class Block(NamedTuple):
    """One whole block, its payload still compressed. It begins at `offset` of its file, its payload at `payload_at`."""

    kind: int
    meta: dict[str, Any]
    payload: bytes
    offset: int
    payload_at: int = 0


class BlockDamage(NamedTuple):
    """A part of a sealed file that could not be read, and why. Offsets in bytes."""

    offset: int
    size: int
    reason: str


def file_header() -> bytes:
    """The first 16 bytes of a sealed file."""
    return _FILE.pack(FILE_MAGIC, VERSION, 0, 0)


def pack_block(kind: int, meta: dict[str, Any], payload: bytes = b"") -> bytes:
    """One block, ready to be appended."""
    text = json.dumps(meta, separators=(",", ":")).encode()
    head = _HEAD.pack(BLOCK_MAGIC, APART, kind, len(text), len(payload), zlib.crc32(payload))
    return head + _CRC.pack(zlib.crc32(head)) + _CRC.pack(zlib.crc32(text)) + text + payload


def scan_blocks(data: Buffer) -> Iterator[Block | BlockDamage]:
    """Every whole block of a sealed file, and every stretch that is none, in file order.
    Raises FormatError: these bytes are no sealed file at all; NewerVersionError: written by a newer mstxkit.
    """
    check_file_header(data)
    at = FILE_HEADER_BYTES
    while at < len(data):
        block = _block_at(data, at)
        block = _widen_damage(data, block) if isinstance(block, BlockDamage) else block
        yield block
        at = block.offset + block.size if isinstance(block, BlockDamage) else block.payload_at + len(block.payload)


def check_file_header(data: Buffer) -> None:
    """Are these the first bytes of a sealed file?
    Raises FormatError: these bytes are no sealed file at all; NewerVersionError: written by a newer mstxkit.
    """
    if len(data) < FILE_HEADER_BYTES or bytes(data[:8]) != FILE_MAGIC:
        raise FormatError("not a sealed file of mstxkit", 0)
    version = _FILE.unpack_from(data)[1]
    if version > VERSION:
        raise NewerVersionError(f"sealed file of format {version}; this mstxkit reads up to {VERSION}: upgrade it", 8)
    if bytes(data[:FILE_HEADER_BYTES]) != file_header():
        raise FormatError("the header of this sealed file is damaged", 8)


def head_of(data: Buffer, offset: int, file_bytes: int) -> Head | BlockDamage:
    """What the header of a block says, or why there is none, in a file of so many bytes.
    `data`: the bytes from `offset` on, `HEAD_AT_MOST_BYTES` of them where the file has so many.
    """
    if len(data) < BLOCK_HEADER_BYTES:
        return BlockDamage(offset, file_bytes - offset, "file ends inside a block's header")
    head = bytes(data[: _HEAD.size])
    magic, version, kind, meta_bytes, payload_bytes, crc = _HEAD.unpack(head)
    if magic != BLOCK_MAGIC or _CRC.unpack_from(data, _HEAD.size)[0] != zlib.crc32(head):
        return BlockDamage(offset, BLOCK_HEADER_BYTES, "damaged block header")
    meta_at = offset + (BLOCK_HEADER_BYTES if version == JOINT else HEAD_AT_MOST_BYTES)
    parsed = Head(version, kind, crc, offset, meta_at, meta_at + meta_bytes, meta_at + meta_bytes + payload_bytes)
    if parsed.end > file_bytes:
        return BlockDamage(offset, file_bytes - offset, "file ends inside a block")
    if version > APART:
        reason = f"block of format {version}, written by a newer mstxkit: upgrade this one"
        return BlockDamage(offset, parsed.end - offset, reason)
    return parsed


def meta_of(data: Buffer, head: Head) -> dict[str, Any] | BlockDamage:
    """What a block says about itself.
    `data`: the block's bytes up to its payload; all of them where one checksum holds for both.
    """
    text = data[head.meta_at - head.offset : head.payload_at - head.offset]
    size = head.end - head.offset
    if head.version == JOINT:
        is_as_summed = zlib.crc32(data[head.meta_at - head.offset : size]) == head.crc
    else:
        is_as_summed = zlib.crc32(text) == _CRC.unpack_from(data, BLOCK_HEADER_BYTES)[0]
    if not is_as_summed:
        return BlockDamage(head.offset, size, NO_MATCH)
    try:
        meta = json.loads(bytes(text))
    except (ValueError, RecursionError):  # a checksum that holds does not say who wrote it
        meta = None
    return meta if isinstance(meta, dict) else BlockDamage(head.offset, size, "a block's content is no JSON object")


def _block_at(data: Buffer, at: int) -> Block | BlockDamage:
    head = head_of(data[at : at + HEAD_AT_MOST_BYTES], at, len(data))
    if isinstance(head, BlockDamage):
        return head
    meta = meta_of(data[at : head.end], head)
    payload = bytes(data[head.payload_at : head.end])
    if isinstance(meta, BlockDamage):
        return meta
    if not is_payload(payload, head):
        return BlockDamage(at, head.end - at, NO_MATCH)
    return Block(head.kind, meta, payload, at, head.payload_at)


def is_payload(payload: Buffer, head: Head) -> bool:
    """Is it as it was written? Where one checksum holds for meta and payload, `meta_of` has said so."""
    return head.version == JOINT or zlib.crc32(payload) == head.crc


def _widen_damage(data: Buffer, damage: BlockDamage) -> BlockDamage:
    """Extend a damaged stretch to where the next block's magic stands, or to the end of the file.

    A block whose header holds ends where it says, unless bytes of it are missing: then no block stands there.
    """
    end = damage.offset + damage.size
    may_end_here = end == len(data) or bytes(data[end : end + len(BLOCK_MAGIC)]) == BLOCK_MAGIC
    if may_end_here and damage.reason.startswith(("a block's content", "block of format")):
        return damage
    following = bytes(data).find(BLOCK_MAGIC, damage.offset + 1)
    return damage._replace(size=(following if following >= 0 else len(data)) - damage.offset)


def encode_bank(raw: bytes, text: bytes, salt: int) -> Payload:
    """The payload parts of a bank's records: those whose check bits fail are left out.

    The C engine's `encode_bank` gives the same bytes, a hundred times faster and without the GIL.
    """
    words: list[int] = []
    attributes: list[int] = []
    before = n = 0
    has_owner = False  # an attribute whose range is damaged must not be shown as another range's
    whole = len(raw) // records.RECORD_BYTES * records.RECORD_BYTES
    for index, (w0, w1, w2) in enumerate(records.WORDS.iter_unpack(raw[:whole])):
        if not records.is_whole(w0, w1, w2, salt, index):
            has_owner = False
            continue
        if records.kind_of(w2) == records.ATTRIBUTE:
            if has_owner:
                attributes += (w0, w1, n - 1)
            continue
        has_owner = True
        words += ((w0 - before) & records.U64, w1, w2 & records.LOW_52)
        before = w0
        n += 1
    planes = to_planes(words)
    kept = livefile.without_checksums(text)
    return Payload(kept, planes, to_planes(attributes), n, len(attributes) // 3, _extent_of(words))


def _extent_of(words: list[int]) -> Extent:
    """Of records as they are encoded: each first word is its difference to that of the record before."""
    w0s = [w0 & records.U64 for w0 in accumulate(words[0::3])]
    rows = [records.unpack_record(*each) for each in zip(w0s, words[1::3], words[2::3])]
    if not rows:
        return NOTHING
    steps = [record.step for record in rows if record.step != records.NO_STEP] or [records.NO_STEP]
    first, last = min(record.end - record.duration for record in rows), max(record.end for record in rows)
    return Extent(first, last, min(steps), max(steps), tuple(sorted({record.stage for record in rows})))


def to_planes(words: list[int]) -> bytes:
    """Records of three words as 24 byte planes."""
    numbers = array("Q", words)
    if sys.byteorder == "big":
        numbers.byteswap()
    raw = numbers.tobytes()
    return b"".join(raw[k :: records.RECORD_BYTES] for k in range(records.RECORD_BYTES))


def split_stream(stream: bytes, meta: Mapping[str, Any]) -> Payload:
    """Cut a records block's uncompressed stream into its parts; planes and attributes stay where they are in it.
    Raises FormatError: the meta does not say how long they are, the stream is not as long as it says, or texts that are
    stored as columns are none.
    """
    for name in ("records", "attributes", "text_bytes"):
        if not isinstance(meta.get(name), int) or meta[name] < 0:
            raise FormatError(f"a block whose {name!r} is no size: {str(meta.get(name))[:40]}")
    n, m, text_bytes = meta["records"], meta["attributes"], meta["text_bytes"]
    planes_end = text_bytes + n * records.RECORD_BYTES
    if len(stream) != planes_end + m * records.RECORD_BYTES:
        raise FormatError("a block whose content is not as long as it says")
    texts = text_columns.read_texts(stream[:text_bytes])
    view = memoryview(stream)
    return Payload(texts, view[text_bytes:planes_end], view[planes_end:], n, m)


def compress_stream(stream: Buffer) -> tuple[str, bytes]:
    """(codec, bytes): zstd where the `zstandard` package is installed, else zlib. Both release the GIL."""
    try:
        import zstandard
    except ImportError:
        return "zlib", zlib.compress(stream, 6)
    if not hasattr(_of_thread, "packer"):
        _of_thread.packer = zstandard.ZstdCompressor(level=_LEVEL)  # its tables are made once, not for each block
    return "zstd", _of_thread.packer.compress(stream)


def decompress_stream(codec: str, payload: bytes, limit_bytes: int = 1 << 30) -> bytes:
    """Undo `compress_stream`.
    Raises FormatError: an unknown codec, one that is not installed, damaged content, or one larger than the limit.
    """
    try:
        if codec == "zlib":
            unpacker = zlib.decompressobj()
            stream = unpacker.decompress(payload, limit_bytes + 1)  # 0 would mean that there is no limit
            if not unpacker.eof or len(stream) > limit_bytes:
                raise FormatError("a block's content ends early or is too large")
            return stream
        if codec == "zstd":
            return _decompress_zstd(payload, limit_bytes)
    except zlib.error as exc:
        raise FormatError(f"a block's content cannot be uncompressed: {exc}") from exc
    raise FormatError(f"a block compressed with {codec!r}, which this mstxkit does not know")


def _decompress_zstd(payload: bytes, limit_bytes: int) -> bytes:
    try:
        import zstandard
    except ImportError as exc:
        raise FormatError("a block compressed with zstd: pip install zstandard") from exc
    try:
        # The decompressor allocates what a frame claims, whatever its limit says.
        if zstandard.frame_content_size(payload) > limit_bytes:
            raise FormatError("a block's content is too large")
        if not hasattr(_of_thread, "unpacker"):  # to make one costs as much as to unpack a small block
            _of_thread.unpacker = zstandard.ZstdDecompressor()
        return bytes(_of_thread.unpacker.decompress(payload, max_output_size=limit_bytes))
    except zstandard.ZstdError as exc:
        raise FormatError(f"a block's content cannot be uncompressed: {exc}") from exc
