"""What numpy decodes is what the one-record-at-a-time definition of the format says."""

from __future__ import annotations

from typing import Any

import pytest
from builders import packing
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from mstxkit.reading import decode  # noqa: E402
from mstxkit.store import livefile, records, segment  # noqa: E402

SALT = 0xFEDC_BA98_7654_3210

rows = st.builds(
    records.Record,
    end=st.integers(0, records.LOW_48), duration=st.integers(0, (1 << 51) - 1), site=st.integers(1, 0xFFFF),
    stage=st.integers(0, 0xFFFF), step=st.integers(0, records.NO_STEP), track=st.integers(0, 0xFFFF),
    depth=st.integers(0, 255), error=st.booleans(), kind=st.sampled_from([records.RANGE, records.MARK]),
)  # fmt: skip
attribute = st.tuples(st.integers(0, records.U64), st.integers(0, 2**32 - 1), st.integers(0, 255))
banks = st.lists(st.tuples(rows, st.lists(attribute, max_size=3)), max_size=12)


def raw_of(bank: list[Any]) -> bytes:
    raw = b""
    for record, attributes in bank:
        raw += packing.record(record, SALT, len(raw) // records.RECORD_BYTES)
        for value, key, value_type in attributes:
            raw += packing.attribute(value, key, value_type, SALT, len(raw) // records.RECORD_BYTES)
    return raw


def expected(bank: list[Any]) -> list[Any]:
    """Durations as they are stored: long ones exact to 4096 ticks."""
    kept = [records.unpack_record(0, 0, records.duration_bits(record.duration)).duration for record, _ in bank]
    return [
        (r.end + 5, d, r.site, r.stage, r.track, r.step, r.depth, r.error, r.kind == records.MARK)
        for (r, _), d in zip(bank, kept)
    ]


def decoded(columns: decode.Columns) -> list[Any]:
    fields = ("end", "duration", "site", "stage", "track", "step", "depth", "error", "is_mark")
    return list(zip(*(getattr(columns, field).tolist() for field in fields)))


def owned(bank: list[Any]) -> list[Any]:
    return [(v, k, t, row) for row, (_, attributes) in enumerate(bank) for v, k, t in attributes]


@given(banks)
def test_a_sealed_block_decodes_to_the_records_that_were_packed(bank: list[Any]) -> None:
    columns = decode.from_payloads([(segment.encode_bank(raw_of(bank), b"", SALT), 5)])

    assert decoded(columns) == expected(bank)
    assert list(zip(*(c.tolist() for c in columns.attributes))) == owned(bank)


@given(st.lists(banks, min_size=1, max_size=4), st.integers(0, 0xFFFF), st.booleans())
def test_blocks_that_are_decoded_together_are_what_each_is_by_itself(some: list[Any], stage: int, all_of: bool) -> None:
    """With origins of their own; an attribute that says that it is of a row beyond its block is nobody's."""
    blocks = [(segment.encode_bank(raw_of(bank), b"", SALT), 1 << 40 | number) for number, bank in enumerate(some)]
    blocks = [(with_stray(payload), origin) for payload, origin in blocks]

    def choose(site: Any, stages: Any, step: Any) -> Any:
        return None if all_of else stages() >= stage

    together = decode.from_payloads(blocks, choose)
    apart = [decode.from_payloads([block], choose) for block in blocks]
    before = np.cumsum([0, *(len(columns.end) for columns in apart)])
    attributes = [
        (v, k, t, owner + before[place])
        for place, columns in enumerate(apart)
        for v, k, t, owner in zip(*(c.tolist() for c in columns.attributes))
    ]

    assert decoded(together) == [row for columns in apart for row in decoded(columns)]
    assert list(zip(*(c.tolist() for c in together.attributes))) == attributes


def with_stray(payload: segment.Payload) -> segment.Payload:
    """The same, and first of all an attribute of a row that the block does not have."""
    planes = np.frombuffer(payload.attributes, np.uint8).reshape(24, payload.m)
    stray = np.array([7, 1, payload.n], "<u8").view(np.uint8).reshape(24, 1)
    return payload._replace(attributes=np.hstack([stray, planes]).tobytes(), m=payload.m + 1)


@given(banks)
def test_a_live_bank_decodes_to_the_same(bank: list[Any]) -> None:
    raw = raw_of(bank)
    live = livefile.BankCopy(0, 1, livefile.ACTIVE, SALT, 5, len(raw) // 24, 0, raw, b"")

    columns, lost = decode.from_bank(live)

    assert decoded(columns) == expected(bank)
    assert list(zip(*(c.tolist() for c in columns.attributes))) == owned(bank)
    assert lost == 0


@given(st.lists(st.tuples(*[st.integers(0, records.U64)] * 3), max_size=30), st.integers(0, records.U64))
def test_check_bits_are_judged_as_the_format_says(words: list[tuple[int, int, int]], salt: int) -> None:
    columns = (np.array(column, dtype=np.uint64) for column in (zip(*words) if words else ([], [], [])))

    whole = decode.is_whole(*columns, salt)

    assert whole.tolist() == [records.is_whole(*word, salt, index) for index, word in enumerate(words)]
