"""Sealed files: blocks of columnar, compressed, checksummed records, as pure encode and decode.

Shared by sealer, adoption and reader. Layout and guarantees: `docs/internals/format.md`, section "Sealed file".
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from typing import Any, Iterator, NamedTuple

from ..errors import FormatError, NewerVersionError
from . import records
from .livefile import Buffer

FILE_MAGIC = b"MSTXSEAL"
BLOCK_MAGIC = b"MXB1"
VERSION = 1
FILE_HEADER_BYTES = 16
RECORDS, OPEN_RANGES, END = 1, 2, 3

_FILE = struct.Struct("<8sHHI")
_HEAD = struct.Struct("<4sHHIII")
_CRC = struct.Struct("<I")
BLOCK_HEADER_BYTES = _HEAD.size + _CRC.size


class Payload(NamedTuple):
    """The uncompressed parts of a records block, and the numbers of records and of attributes."""

    texts: bytes
    planes: bytes
    attributes: bytes
    n: int
    m: int


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
    head = _HEAD.pack(BLOCK_MAGIC, VERSION, kind, len(text), len(payload), zlib.crc32(payload, zlib.crc32(text)))
    return head + _CRC.pack(zlib.crc32(head)) + text + payload


def scan(data: Buffer) -> Iterator[Block | BlockDamage]:
    """Every whole block of a sealed file, and every stretch that is none, in file order.

    Raises:
        FormatError: these bytes are no sealed file at all.
        NewerVersionError: written by a newer mstxkit.
    """
    _check_file_header(data)
    at = FILE_HEADER_BYTES
    while at < len(data):
        block = _block_at(data, at)
        block = _widen(data, block) if isinstance(block, BlockDamage) else block
        yield block
        at = block.offset + block.size if isinstance(block, BlockDamage) else block.payload_at + len(block.payload)


def _check_file_header(data: Buffer) -> None:
    if len(data) < FILE_HEADER_BYTES or bytes(data[:8]) != FILE_MAGIC:
        raise FormatError("not a sealed file of mstxkit", 0)
    version = _FILE.unpack_from(data)[1]
    if version > VERSION:
        raise NewerVersionError(f"sealed file of format {version}; this mstxkit reads up to {VERSION}: upgrade it", 8)
    if bytes(data[:FILE_HEADER_BYTES]) != file_header():
        raise FormatError("the header of this sealed file is damaged", 8)


def _block_at(data: Buffer, at: int) -> Block | BlockDamage:
    if len(data) - at < BLOCK_HEADER_BYTES:
        return BlockDamage(at, len(data) - at, "file ends inside a block's header")
    head = bytes(data[at : at + _HEAD.size])
    magic, version, kind, meta_bytes, payload_bytes, crc = _HEAD.unpack(head)
    if magic != BLOCK_MAGIC or _CRC.unpack_from(data, at + _HEAD.size)[0] != zlib.crc32(head):
        return BlockDamage(at, BLOCK_HEADER_BYTES, "damaged block header")
    first = at + BLOCK_HEADER_BYTES
    payload_at, end = first + meta_bytes, first + meta_bytes + payload_bytes
    if end > len(data):
        return BlockDamage(at, len(data) - at, "file ends inside a block")
    if version > VERSION:
        return BlockDamage(at, end - at, f"block of format {version}, written by a newer mstxkit: upgrade this one")
    if zlib.crc32(data[first:end]) != crc:
        return BlockDamage(at, end - at, "a block's content does not match its checksum")
    try:
        meta = json.loads(bytes(data[first:payload_at]))
    except (ValueError, RecursionError):  # a checksum that holds does not say who wrote it
        meta = None
    if not isinstance(meta, dict):
        return BlockDamage(at, end - at, "a block's content is no JSON object")
    return Block(kind, meta, bytes(data[payload_at:end]), at, payload_at)


def _widen(data: Buffer, damage: BlockDamage) -> BlockDamage:
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
    return Payload(text, to_planes(words), to_planes(attributes), n, len(attributes) // 3)


def to_planes(words: list[int]) -> bytes:
    """Records of three words as 24 byte planes."""
    numbers = array("Q", words)
    if sys.byteorder == "big":
        numbers.byteswap()
    raw = numbers.tobytes()
    return b"".join(raw[k :: records.RECORD_BYTES] for k in range(records.RECORD_BYTES))


def join(payload: Payload) -> bytes:
    """The parts of a records block as one stream, to be compressed."""
    return payload.texts + payload.planes + payload.attributes


def split(stream: bytes, meta: dict[str, Any]) -> Payload:
    """Cut a records block's uncompressed stream into its parts.

    Raises:
        FormatError: the meta does not say how long they are, or the stream is not as long as it says.
    """
    n, m, text_bytes = (_size(meta, name) for name in ("records", "attributes", "text_bytes"))
    planes_end = text_bytes + n * records.RECORD_BYTES
    if len(stream) != planes_end + m * records.RECORD_BYTES:
        raise FormatError("a block whose content is not as long as it says")
    return Payload(stream[:text_bytes], stream[text_bytes:planes_end], stream[planes_end:], n, m)


def _size(meta: dict[str, Any], name: str) -> int:
    size = meta.get(name)
    if not isinstance(size, int) or size < 0:
        raise FormatError(f"a block whose {name!r} is no size: {str(size)[:40]}")
    return size


def compress(stream: bytes) -> tuple[str, bytes]:
    """(codec, bytes): zstd where the `zstandard` package is installed, else zlib. Both release the GIL."""
    try:
        import zstandard
    except ImportError:
        return "zlib", zlib.compress(stream, 6)
    return "zstd", zstandard.ZstdCompressor(level=3).compress(stream)


def decompress(codec: str, payload: bytes, limit_bytes: int = 1 << 30) -> bytes:
    """Undo `compress`.

    Raises:
        FormatError: an unknown codec, one that is not installed, damaged content, or one larger than the limit.
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
        return bytes(zstandard.ZstdDecompressor().decompress(payload, max_output_size=limit_bytes))
    except zstandard.ZstdError as exc:
        raise FormatError(f"a block's content cannot be uncompressed: {exc}") from exc
