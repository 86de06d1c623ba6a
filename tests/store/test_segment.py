"""Sealed files: what is sealed is read back, and of a damaged file only what is as it was written."""

from __future__ import annotations

import itertools
import json
import struct
import sys
import zlib
from typing import Any, Callable, NamedTuple

import pytest
from builders import format_page, packing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mstxkit.errors import FormatError, NewerVersionError
from mstxkit.store import records, segment
from mstxkit.store.records import ATTRIBUTE, MARK, RANGE, Record
from mstxkit.store.segment import Block, BlockDamage

SALT = 0xFEDC_BA98_7654_3210
HEADER = segment.FILE_HEADER_BYTES

Content = tuple[int, Any, bytes]


def content_of(block: Block) -> Content:
    return block.kind, block.meta, block.payload


BLOCKS: list[Content] = [
    (segment.RECORDS, {"bank": 1}, b"payload of the first"),
    (segment.RECORDS, {"bank": 2}, b"payload of the second"),
    (segment.OPEN_RANGES, {}, b"[]"),
    (segment.END, {"ended": "exit"}, b""),
]
PACKED = [segment.pack_block(*block) for block in BLOCKS]
WHOLE = segment.file_header() + b"".join(PACKED)
# Where each block begins, and the end of the file.
BEGINS = list(itertools.accumulate(map(len, PACKED), initial=HEADER))


def scanned(data: bytes) -> tuple[list[Content], list[BlockDamage]]:
    """Blocks and damage of a file; together they must cover it without a gap."""
    found, at = list(segment.scan_blocks(data)), HEADER
    for one in found:
        assert one.offset == at
        at += one.size if isinstance(one, BlockDamage) else one.payload_at + len(one.payload) - one.offset
    assert at == max(len(data), HEADER)
    return [content_of(b) for b in found if isinstance(b, Block)], [d for d in found if isinstance(d, BlockDamage)]


# Whole files


def test_blocks_come_back_in_their_order_and_know_where_they_are() -> None:
    found = [block for block in segment.scan_blocks(WHOLE) if isinstance(block, Block)]

    assert [content_of(block) for block in found] == BLOCKS
    assert [block.offset for block in found] == BEGINS[:-1]
    assert [WHOLE[block.payload_at :][: len(block.payload)] for block in found] == [payload for *_, payload in BLOCKS]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
contents = st.tuples(
    st.integers(0, 0xFFFF), st.dictionaries(st.text(), json_values, max_size=4), st.binary(max_size=99)
)


@given(st.lists(contents, max_size=4))
def test_any_blocks_come_back(blocks: list[Content]) -> None:
    assert scanned(segment.file_header() + b"".join(segment.pack_block(*one) for one in blocks)) == (blocks, [])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_scanned(kind: Callable[[bytes], bytes]) -> None:
    damaged = WHOLE[: BEGINS[1] + 30] + WHOLE[BEGINS[2] :]

    assert scanned(kind(damaged)) == scanned(damaged)


def test_a_file_with_nothing_but_its_header_is_whole() -> None:
    assert scanned(segment.file_header()) == ([], [])


# Foreign and newer files


@pytest.mark.parametrize("begin", [b"", b"MSTX", b"MSTXSEAL", b"MSTXLIVE", b"PK\3\4", b"MXB1"])
@pytest.mark.parametrize("padding", [0, 4, 400])
def test_what_is_no_sealed_file_is_refused(begin: bytes, padding: int) -> None:
    with pytest.raises(FormatError):
        scanned(begin + bytes(padding))


@pytest.mark.parametrize("version", [2, 0xFFFF])
def test_a_file_of_a_newer_version_is_named_as_one(version: int) -> None:
    with pytest.raises(NewerVersionError, match=f"sealed file of format {version}; .* upgrade"):
        scanned(WHOLE[:8] + struct.pack("<H", version) + WHOLE[10:])


def head(version: int = 1, meta_bytes: int = 0, payload_bytes: int = 0, crc: int = 0, magic: bytes = b"MXB1") -> bytes:
    """The header of a block, with a checksum of its own that holds."""
    raw = struct.pack("<4sHHIII", magic, version, 1, meta_bytes, payload_bytes, crc)
    return raw + struct.pack("<I", zlib.crc32(raw))


def between(damaged: bytes) -> bytes:
    """A file in which something stands between the first block and the second."""
    return WHOLE[: BEGINS[1]] + damaged + WHOLE[BEGINS[1] :]


def test_a_block_of_a_newer_version_is_passed_over_and_named_as_one() -> None:
    newer = head(segment.APART + 1, 3, 40, 0) + b"?" * 47

    blocks, damage = scanned(between(newer))

    assert blocks == BLOCKS
    assert [(one.offset, one.size) for one in damage] == [(BEGINS[1], len(newer))]
    assert "block of format 3" in damage[0].reason and "newer" in damage[0].reason


@pytest.mark.parametrize("meta_bytes", [1 << 20, (1 << 32) - 1])
@pytest.mark.parametrize("payload_bytes", [0, (1 << 32) - 1])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_huge_claimed_sizes_are_damage_and_hide_no_other_block(
    meta_bytes: int, payload_bytes: int, version: int
) -> None:
    blocks, damage = scanned(between(head(version, meta_bytes, payload_bytes)))

    assert blocks == BLOCKS
    assert damage == [BlockDamage(BEGINS[1], segment.BLOCK_HEADER_BYTES, "file ends inside a block")]


@pytest.mark.parametrize(
    "meta", [b"", b"5", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 50_000], ids=range(8)
)
def test_a_meta_that_is_no_json_object_is_damage_though_its_checksum_holds(meta: bytes) -> None:
    blocks, damage = scanned(between(head(1, len(meta), 0, zlib.crc32(meta)) + meta))

    assert blocks == BLOCKS
    assert [one.reason for one in damage] == ["a block's content is no JSON object"]


# Damage


def test_a_file_cut_anywhere_gives_exactly_the_blocks_that_are_whole() -> None:
    for size in range(len(WHOLE) + 1):
        if size < HEADER:
            with pytest.raises(FormatError):
                scanned(WHOLE[:size])
            continue
        blocks, damage = scanned(WHOLE[:size])
        whole = [end <= size for end in BEGINS[1:]]

        assert blocks == BLOCKS[: sum(whole)]
        assert [(one.offset, one.size) for one in damage] == (
            [] if size in BEGINS else [(BEGINS[sum(whole)], size - BEGINS[sum(whole)])]
        )


def test_any_flipped_bit_costs_its_own_block_and_no_other() -> None:
    for bit in range(HEADER * 8, len(WHOLE) * 8):
        altered = bytearray(WHOLE)
        altered[bit // 8] ^= 1 << bit % 8
        (hit,) = (n for n in range(len(BLOCKS)) if BEGINS[n] <= bit // 8 < BEGINS[n + 1])

        blocks, damage = scanned(bytes(altered))

        assert blocks == BLOCKS[:hit] + BLOCKS[hit + 1 :]
        assert [(one.offset, one.size) for one in damage] == [(BEGINS[hit], len(PACKED[hit]))]


def test_any_flipped_bit_of_the_file_header_is_refused() -> None:
    for bit in range(HEADER * 8):
        altered = bytearray(WHOLE)
        altered[bit // 8] ^= 1 << bit % 8

        with pytest.raises(FormatError):
            scanned(bytes(altered))


def test_bytes_missing_anywhere_cost_only_the_blocks_they_were_in() -> None:
    """A block that is shorter than it says must not hide the one after it."""
    for at, missing in itertools.product(range(HEADER, len(WHOLE)), (1, 7, 30)):
        hit = [at < end and at + missing > begin for begin, end in zip(BEGINS, BEGINS[1:])]

        blocks, damage = scanned(WHOLE[:at] + WHOLE[at + missing :])

        assert blocks == [block for block, is_hit in zip(BLOCKS, hit) if not is_hit]
        assert bool(damage) is not (at in BEGINS and min(at + missing, len(WHOLE)) in BEGINS)


def test_bytes_more_anywhere_cost_only_the_block_they_are_in() -> None:
    for at, more in itertools.product(range(HEADER, len(WHOLE) + 1), (b"\0", b"MXB", b"MXB1", bytes(40))):
        data = WHOLE[:at] + more + WHOLE[at:]

        blocks, damage = scanned(data)

        assert blocks == [block for block, packed in zip(BLOCKS, PACKED) if packed in data]
        assert len(blocks) >= len(BLOCKS) - 1
        assert damage


@given(st.lists(st.tuples(st.integers(HEADER, len(WHOLE) - 1), st.binary(min_size=1, max_size=30)), max_size=5))
def test_no_damage_alters_a_block_that_is_still_given(edits: list[tuple[int, bytes]]) -> None:
    altered = bytearray(WHOLE)
    for at, patch in edits:
        altered[at : at + len(patch)] = patch

    blocks, _ = scanned(bytes(altered))

    left = [block for block, packed in zip(BLOCKS, PACKED) if packed in altered]
    assert all(block in BLOCKS for block in blocks)
    assert [block for block in left if block not in blocks] == []


fragments = st.lists(
    st.binary(max_size=30)
    | st.sampled_from([*PACKED, b"MXB1", segment.file_header(), head(), head(2), PACKED[0][:40]]),
    max_size=6,
).map(b"".join)


@given(st.binary(max_size=100))
@example(b"")
def test_random_bytes_raise_the_packages_own_error_only(data: bytes) -> None:
    with pytest.raises(FormatError):
        scanned(data)


@given(fragments)
def test_random_bytes_after_a_header_give_no_block_that_was_not_written(data: bytes) -> None:
    blocks, damage = scanned(segment.file_header() + data)

    assert all(block in BLOCKS for block in blocks)
    assert bool(blocks or damage) is bool(data)


# Codecs

STREAM = bytes(range(256)) * 40


def without_zstandard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)


def packed_with(codec: str, stream: bytes) -> bytes:
    if codec == "zlib":
        return zlib.compress(stream)
    zstandard = pytest.importorskip("zstandard")
    return bytes(zstandard.ZstdCompressor().compress(stream))


codecs = pytest.mark.parametrize("codec", ["zlib", "zstd"])


@given(st.binary(max_size=3_000))
@example(b"")
def test_what_is_compressed_is_uncompressed(stream: bytes) -> None:
    assert segment.decompress_stream(*segment.compress_stream(stream)) == stream


def test_zstd_is_used_where_it_is_installed() -> None:
    pytest.importorskip("zstandard")

    assert segment.compress_stream(STREAM)[0] == "zstd"


def test_zlib_is_used_where_zstandard_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    without_zstandard(monkeypatch)

    codec, packed = segment.compress_stream(STREAM)

    assert codec == "zlib"
    assert segment.decompress_stream(codec, packed) == STREAM


def test_a_zstd_block_without_zstandard_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without_zstandard(monkeypatch)

    with pytest.raises(FormatError, match="pip install zstandard"):
        segment.decompress_stream("zstd", b"anything")


@codecs
@pytest.mark.parametrize("size", [0, 1, 255, len(STREAM)])
def test_a_stream_as_large_as_the_limit_is_taken_and_one_byte_more_is_not(codec: str, size: int) -> None:
    fits, too_large = packed_with(codec, STREAM[:size]), packed_with(codec, (STREAM + b"!")[: size + 1])

    assert segment.decompress_stream(codec, fits, size) == STREAM[:size]
    with pytest.raises(FormatError):
        segment.decompress_stream(codec, too_large, size)


@codecs
@pytest.mark.parametrize("limit", [0, 1, 100])
def test_a_bomb_is_refused(codec: str, limit: int) -> None:
    with pytest.raises(FormatError):
        segment.decompress_stream(codec, packed_with(codec, bytes(1 << 20)), limit)


def test_a_zstd_frame_that_does_not_say_its_size_is_held_to_the_limit() -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(STREAM)

    assert segment.decompress_stream("zstd", packed, len(STREAM)) == STREAM
    with pytest.raises(FormatError):
        segment.decompress_stream("zstd", packed, len(STREAM) - 1)


@pytest.mark.parametrize("claimed", [1 << 31, 1 << 62, (1 << 64) - 3])
def test_a_zstd_frame_that_claims_a_huge_size_is_refused_before_anything_is_allocated(claimed: int) -> None:
    pytest.importorskip("zstandard")

    with pytest.raises(FormatError):
        segment.decompress_stream("zstd", b"\x28\xb5\x2f\xfd\xc0\x00" + struct.pack("<Q", claimed))


@codecs
def test_a_payload_cut_anywhere_is_refused(codec: str) -> None:
    packed = packed_with(codec, b"a short stream, and a short stream")

    for size in range(len(packed)):
        with pytest.raises(FormatError):
            segment.decompress_stream(codec, packed[:size])


@codecs
def test_no_flipped_bit_of_a_payload_raises_anything_else(codec: str) -> None:
    packed = packed_with(codec, b"a short stream, and a short stream")
    refused = 0
    for bit in range(8 * len(packed)):
        altered = bytearray(packed)
        altered[bit // 8] ^= 1 << bit % 8
        try:
            segment.decompress_stream(codec, bytes(altered), 1 << 16)
        except FormatError:
            refused += 1

    assert refused


@given(st.sampled_from(["zlib", "zstd"]), st.binary(max_size=60))
def test_random_payloads_are_refused(codec: str, payload: bytes) -> None:
    with pytest.raises(FormatError):
        segment.decompress_stream(codec, payload, 1 << 16)


@pytest.mark.parametrize("codec", ["lz4", "", "ZLIB", "None"])
def test_an_unknown_codec_is_named(codec: str) -> None:
    with pytest.raises(FormatError, match=f"compressed with '{codec}'"):
        segment.decompress_stream(codec, zlib.compress(STREAM))


# Payloads


@given(st.binary(max_size=50), st.integers(0, 5), st.integers(0, 5), st.data())
def test_a_stream_is_split_where_it_was_joined(texts: bytes, n: int, m: int, data: Any) -> None:
    planes, attributes = (data.draw(st.binary(min_size=24 * k, max_size=24 * k)) for k in (n, m))
    payload = segment.Payload(texts, planes, attributes, n, m)

    assert (
        segment.split_stream(b"".join(payload[:3]), {"records": n, "attributes": m, "text_bytes": len(texts)})
        == payload
    )


SIZES = {"records": 1, "attributes": 1, "text_bytes": 2}


@pytest.mark.parametrize("size", [0, 49, 51, 500])
def test_a_stream_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(FormatError, match="not as long as it says"):
        segment.split_stream(bytes(size), SIZES)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [None, -1, 1.5, float("nan"), float("inf"), "1", [], {}, 10**400])
def test_a_meta_whose_sizes_are_none_is_refused(name: str, value: Any) -> None:
    with pytest.raises(FormatError):
        segment.split_stream(bytes(50), {**SIZES, name: value})


def test_a_negative_size_is_not_made_good_by_another() -> None:
    with pytest.raises(FormatError):
        segment.split_stream(b"", {"records": -1, "attributes": 1, "text_bytes": 0})


@pytest.mark.parametrize("name", SIZES)
def test_a_meta_without_a_size_is_refused(name: str) -> None:
    with pytest.raises(FormatError):
        segment.split_stream(bytes(50), {key: value for key, value in SIZES.items() if key != name})


# Banks


class Written(NamedTuple):
    """A record as it lies in a bank. `flipped`: the bit of it that is damaged."""

    words: tuple[int, int, int]
    flipped: int | None

    @property
    def is_attribute(self) -> bool:
        return records.kind_of(self.words[2]) == ATTRIBUTE


u64 = st.integers(0, records.U64)
record = st.builds(
    Record,
    end=st.integers(0, records.LOW_48), duration=st.integers(0, 1 << 52), site=st.integers(1, 0xFFFF),
    stage=st.integers(0, 0xFFFF), step=st.integers(0, records.NO_STEP), track=st.integers(0, 0xFFFF),
    depth=st.integers(0, 255), error=st.booleans(), kind=st.sampled_from([RANGE, MARK]),
)  # fmt: skip
# Words without their check bits: those depend on the place, which is not known here.
row_words = record.map(lambda one: _plain(packing.record(one, 0, 0)))
attribute_words = st.tuples(u64, st.integers(0, 0xFFFF_FFFF), st.integers(0, 255)).map(
    lambda one: _plain(packing.attribute(*one, 0, 0))
)
written = st.builds(Written, row_words | attribute_words, st.none() | st.none() | st.none() | st.integers(0, 191))
banks = st.lists(written, max_size=25)


def _plain(raw: bytes) -> tuple[int, int, int]:
    w0, w1, w2 = records.WORDS.unpack(raw)
    return w0, w1, w2 & records.LOW_52


def raw_of(bank: list[Written], salt: int) -> bytes:
    """A bank's bytes, with check bits and then the damage."""
    raw = b""
    for index, ((w0, w1, w2), flipped) in enumerate(bank):
        w2 |= records.check_record(w0, w1, w2, salt, index) << records.CHECK_SHIFT
        number = int.from_bytes(records.WORDS.pack(w0, w1, w2), "little")
        raw += (number if flipped is None else number ^ 1 << flipped).to_bytes(24, "little")
    return raw


def rows_of(payload: segment.Payload) -> list[tuple[int, int, int]]:
    """The words of a payload's records, their times as they were before planing."""
    found, before = [], 0
    for delta, w1, w2 in packing.from_planes(payload.planes):
        before = before + delta & records.U64
        found.append((before, w1, w2))
    return found


def owned(bank: list[Written]) -> list[tuple[int, int, int]]:
    """(value, w1, index of its owner among the kept records) of each attribute: all from its range to it is whole."""
    found, rows, is_sure = [], 0, False
    for (w0, w1, w2), flipped in bank:
        if flipped is not None:
            is_sure = False
        elif records.kind_of(w2) != ATTRIBUTE:
            rows, is_sure = rows + 1, True
        elif is_sure:
            found.append((w0, w1, rows - 1))
    return found


@given(banks, u64, st.binary(max_size=20))
def test_every_whole_record_of_a_bank_comes_back_and_no_damaged_one(bank: Any, salt: int, text: bytes) -> None:
    payload = segment.encode_bank(raw_of(bank, salt), text, salt)

    expected = [one.words for one in bank if one.flipped is None and not one.is_attribute]
    assert rows_of(payload) == expected
    assert [records.unpack_record(*words) for words in rows_of(payload)] == [
        records.unpack_record(*words) for words in expected
    ]
    assert (payload.texts, payload.n) == (text, len(expected))


@given(banks, u64)
def test_an_attribute_is_given_to_its_own_range_or_to_none(bank: Any, salt: int) -> None:
    payload = segment.encode_bank(raw_of(bank, salt), b"", salt)

    assert list(packing.from_planes(payload.attributes)) == owned(bank)
    assert payload.m == len(owned(bank))


def test_attributes_of_a_damaged_range_are_not_given_to_the_one_before() -> None:
    first, second = (_plain(packing.record(Record(n, 1, n, 0, 0, 0, 0, False, RANGE), 0, 0)) for n in (1, 2))
    attributes = [_plain(packing.attribute(n, 1, records.INT, 0, 0)) for n in (10, 20)]
    bank = [Written(first, None), Written(attributes[0], None), Written(second, 70), Written(attributes[1], None)]

    payload = segment.encode_bank(raw_of(bank, SALT), b"", SALT)

    assert rows_of(payload) == [first]
    assert [value for value, *_ in packing.from_planes(payload.attributes)] == [10]


def test_places_that_were_taken_and_never_filled_are_left_out() -> None:
    word = _plain(packing.record(Record(5, 1, 1, 0, 0, 0, 0, False, RANGE), 0, 0))
    raw = raw_of([Written(word, None), Written(word, None)], SALT)

    payload = segment.encode_bank(raw[:24] + bytes(24), b"", SALT)

    assert (payload.n, rows_of(payload)) == (1, [word])


def test_a_bank_with_another_salt_gives_next_to_nothing() -> None:
    """A stale bank of 2,000 records: at 1 in 4093, one of them may pass. The salts are fixed."""
    words = [_plain(packing.record(Record(n, 1, 1, 0, n, 0, 0, False, RANGE), 0, 0)) for n in range(2_000)]
    raw = raw_of([Written(one, None) for one in words], SALT)

    assert segment.encode_bank(raw, b"", SALT).n == 2_000
    assert segment.encode_bank(raw, b"", SALT ^ 0x5555_0000_5555_0000).n <= 3


@given(st.lists(st.tuples(u64, u64, u64), max_size=20))
def test_planes_are_undone(words: list[tuple[int, int, int]]) -> None:
    planes = segment.to_planes(list(itertools.chain.from_iterable(words)))

    assert list(packing.from_planes(planes)) == words
    for k in range(24):  # plane k holds byte k of every record, in order
        column = bytes(records.WORDS.pack(*one)[k] for one in words)
        assert planes[k * len(words) : (k + 1) * len(words)] == column


# The same in C


@pytest.fixture(scope="module")
def encode_left() -> Callable[[bytes, bytes, int], tuple[bytes, bytes, bytes, int, int]]:
    try:
        from mstxkit.engine.native import hot
    except ImportError as exc:
        pytest.skip(f"the C engine is not built for this interpreter: {exc}")
    return hot.encode_left


@given(banks, u64, st.binary(max_size=20))
def test_the_c_engine_encodes_a_bank_to_the_same_bytes(encode_left: Any, bank: Any, salt: int, text: bytes) -> None:
    raw = raw_of(bank, salt)

    assert encode_left(raw, text, salt) == tuple(segment.encode_bank(raw, text, salt))


@given(st.binary(max_size=300), st.binary(max_size=9), u64)
@example(b"\0" * 23, b"", 0)
@example(b"", b"", records.U64)
def test_the_c_engine_takes_any_bytes_as_python_does(encode_left: Any, raw: bytes, text: bytes, salt: int) -> None:
    assert encode_left(raw, text, salt) == tuple(segment.encode_bank(raw, text, salt))


@settings(max_examples=10)
@given(st.lists(st.tuples(u64, u64, u64, st.integers(0, 9)), min_size=300, max_size=400), u64)
def test_the_c_engine_agrees_on_larger_banks_of_any_kinds(encode_left: Any, rows: Any, salt: int) -> None:
    bank = [Written((w0, w1, w2 & records.LOW_52), 64 if luck == 0 else None) for w0, w1, w2, luck in rows]
    raw = raw_of(bank, salt)

    assert encode_left(raw, b"", salt) == tuple(segment.encode_bank(raw, b"", salt))


# The page


def test_a_block_is_laid_out_as_the_page_says() -> None:
    meta, payload = {"bank": 7}, b"payload"
    raw, text = segment.pack_block(segment.END, meta, payload), json.dumps(meta, separators=(",", ":")).encode()
    *fixed, rest = format_page.tables("Sealed file")[0]
    values, at = {}, 0
    for size, field in fixed:
        values[format_page.subject(field)] = int.from_bytes(raw[at : at + int(size)], "little")
        at += int(size)

    assert at == segment.HEAD_AT_MOST_BYTES
    assert rest == ["…", "meta (JSON, UTF-8), payload"]
    assert raw[at:] == text + payload
    assert values == {
        "magic": int.from_bytes(segment.BLOCK_MAGIC, "little"),
        "version": segment.APART,
        "kind": segment.END,
        "meta bytes": len(text),
        "payload bytes": len(payload),
        "crc32 of the payload": zlib.crc32(payload),
        "crc32 of the 20 bytes above": zlib.crc32(raw[:20]),
        "crc32 of the meta": zlib.crc32(text),
    }


def test_magics_versions_and_kinds_are_those_of_the_page() -> None:
    cells = [field for _, field in format_page.tables("Sealed file")[0]]

    assert "16-byte file header: magic `MSTXSEAL`, u16 version = 1, u16 0, u32 0." in format_page.text()
    assert segment.file_header() == b"MSTXSEAL" + struct.pack("<HHI", 1, 0, 0)
    assert "magic `MXB1`" in cells and segment.BLOCK_MAGIC == b"MXB1"
    assert f"version = {segment.APART}" in cells
    assert "kind: 1 records, 2 open ranges, 3 end of process, 4 index" in cells
    assert (segment.RECORDS, segment.OPEN_RANGES, segment.END, segment.INDEX) == (1, 2, 3, 4)
