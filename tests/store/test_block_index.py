"""The index of a sealed file: it says of each block what the block says; damage makes it none, never a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstxkit.errors import FormatError
from mstxkit.store import block_index, segment
from mstxkit.store.block_index import Growing, Indexed

FIELDS = {"bank": 7, "origin": 5, "records": 2, "attributes": 0, "text_bytes": 9, "codec": "zlib"}
ANCHOR = [1, 2, 3, 4]


def block(number: int = 1, size: int = 100, anchors: tuple[list[int], ...] = (ANCHOR,)) -> Indexed:
    clock = {"kind": 2, "ticks_per_ns": 3.0, "anchors": list(anchors)}
    meta = {**FIELDS, "bank": number, "extent": [1, 2, 3, 4], "stages": ["reward"], "identity": {"rank": 3}}
    return block_index.make_block(segment.RECORDS, {**meta, "clock": clock}, bytes(size), records=2)


def written(*blocks: Indexed) -> tuple[bytes, Growing]:
    """A file of these blocks, and the index that grew with it."""
    data, growing = segment.file_header(), Growing()
    for each in blocks:
        data += each.data
        growing.add(each, len(data))
    return data, growing


def read(data: bytes) -> block_index.FileIndex:
    size = block_index.size_by_trailer(data)
    offset = len(data) - size
    head = segment.head_of(data[offset:], offset, len(data))
    assert isinstance(head, segment.Head)
    return block_index.read_index(data[offset:], head)


def indexed(*blocks: Indexed) -> bytes:
    data, growing = written(*blocks)
    index = growing.written()
    assert index is not None
    return data + index.data


def test_it_says_of_each_block_what_the_block_says() -> None:
    end = block_index.make_block(segment.END, {"ended": "exit", "identity": {"rank": 3, "role": "actor"}})
    data = indexed(block(1), block(2, size=0), end)
    found = read(data)
    blocks = [one for one in segment.scan_blocks(data) if isinstance(one, segment.Block)]

    assert [(e.kind, e.payload_at, e.size) for e in found.entries] == [
        (one.kind, one.payload_at, len(one.payload)) for one in blocks[:-1]
    ]
    assert [dict(e.fields) for e in found.entries[:2]] == [
        {name: one.meta[name] for name in block_index.FIELDS} for one in blocks[:2]
    ]
    assert found.meta["identity"] == {"rank": 3, "role": "actor"}
    assert found.meta["clock"] == {"kind": 2, "ticks_per_ns": 3.0, "anchors": [ANCHOR]}
    assert found.meta["ended"] == "exit"


def test_the_last_one_speaks_of_all_before_it() -> None:
    data, growing = written(block(1))
    first = growing.written()
    assert first is not None
    data += first.data
    growing.add(first, len(data))
    data += block(2).data
    growing.add(block(2), len(data))
    last = growing.written()
    assert last is not None

    kinds = [entry.kind for entry in read(data + last.data).entries]
    assert kinds == [segment.RECORDS, segment.INDEX, segment.RECORDS]


def test_there_is_none_where_nothing_is_new_or_a_block_came_unnamed() -> None:
    data, growing = written(block(1))
    index = growing.written()
    assert index is not None
    growing.add(index, len(data + index.data))
    unnamed, moved = written(Indexed(block(1).data))[1], Growing()
    moved.add(block(1), 5000)  # somebody else wrote in between

    assert (growing.written(), unnamed.written(), moved.written(), Growing().written()) == (None, None, None, None)


def test_a_growing_file_gets_one_from_time_to_time_and_not_much_of_it_is_index() -> None:
    data, growing, of_indexes, longest_without = segment.file_header(), Growing(), 0, 0
    since = 0
    for number in range(300):
        data += block(number, size=400).data
        growing.add(block(number, size=400), len(data))
        since += 1
        index = growing.written() if growing.is_due else None
        if index is not None:
            data += index.data
            growing.add(index, len(data))
            of_indexes, longest_without, since = of_indexes + len(index.data), max(longest_without, since), 0

    assert 0 < of_indexes < len(data) / 8
    assert 8 <= longest_without < 300


def test_of_many_anchors_the_first_and_the_last_stay() -> None:
    many = tuple([tick, tick, tick, 1] for tick in range(3000))
    anchors = read(indexed(block(1, anchors=many[:1500]), block(2, anchors=many[1000:]))).meta["clock"]["anchors"]

    assert 256 <= len(anchors) <= 512
    assert (anchors[0], anchors[-1]) == ([0, 0, 0, 1], [2999, 2999, 2999, 1])


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_flipped_bit_is_always_caught(place: int, bit: int) -> None:
    whole = indexed(block(1), block(2))
    size = block_index.size_by_trailer(whole)
    data = bytearray(whole)
    data[len(data) - size + place % size] ^= 1 << bit

    with pytest.raises((FormatError, AssertionError)):
        read(bytes(data))


@pytest.mark.parametrize(
    "columns",
    [{}, [], 5, None, {"kind": [1]}, {"kind": 3}, {"kind": [1], "payload_at": [1 << 40], "size": [1], "crc": [1]}],
    ids=str,
)
def test_one_that_does_not_fit_its_file_is_none(columns: Any) -> None:
    import json
    import zlib

    content = zlib.compress(json.dumps([columns, []]).encode())
    meta = {"codec": "zlib"}
    size = len(segment.pack_block(segment.INDEX, meta)) + len(content) + block_index.TRAILER_BYTES
    trailer = size.to_bytes(4, "little") + block_index.MAGIC
    data = segment.file_header() + segment.pack_block(segment.INDEX, meta, content + trailer)

    if columns in ({}, {"kind": 3}):
        assert read(data).entries == []
    else:
        with pytest.raises(FormatError):
            read(data)
