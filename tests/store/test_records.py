"""One record: what is packed is unpacked, what is damaged is not taken, and page, Python and C agree on every bit."""

from __future__ import annotations

import itertools
import math
import random
import struct
from typing import Any

import pytest
from builders import format_page, packing
from hypothesis import example, given
from hypothesis import strategies as st

from mstxkit.store import records
from mstxkit.store.records import WORDS, Record

SALT = 0x1234_5678_9ABC_DEF0
words = st.integers(0, records.U64)
SCALED_FROM, SATURATES_AT = 1 << 40, 1 << 52

record = st.builds(
    Record,
    end=st.integers(0, records.LOW_48), duration=st.integers(0, records.DURATION_MAX), site=st.integers(1, 0xFFFF),
    stage=st.integers(0, 0xFFFF), step=st.integers(0, records.NO_STEP), track=st.integers(0, records.TRACK_MAX),
    depth=st.integers(0, records.DEPTH_MAX), error=st.booleans(), kind=st.sampled_from([records.RANGE, records.MARK]),
)  # fmt: skip

SAMPLES = [
    Record(0, 0, 1, 0, 0, 0, 0, False, records.RANGE),
    Record(123_456_789, 4_321, 7, 3, 12, 2, 4, True, records.RANGE),
    Record(5, 0, 9, 0, records.NO_STEP, 1, 0, False, records.MARK),
    Record(records.LOW_48, 1 << 51, 0xFFFF, 0xFFFF, records.NO_STEP, 0xFFFF, 255, True, records.MARK),
]


def whole(raw: bytes, salt: int = SALT, index: int = 0) -> bool:
    return records.is_whole(*WORDS.unpack(raw), salt, index)


def with_bit_flipped(raw: bytes, bit: int) -> bytes:
    return (int.from_bytes(raw, "little") ^ 1 << bit).to_bytes(len(raw), "little")


@given(record, words, st.integers(0, 1 << 24))
def test_a_record_comes_back_as_it_was_packed(given_record: Record, salt: int, index: int) -> None:
    raw = packing.record(given_record, salt, index)

    assert len(raw) == records.RECORD_BYTES
    assert whole(raw, salt, index)
    assert records.unpack_record(*WORDS.unpack(raw)) == given_record


@pytest.mark.parametrize("depth", [256, 1_000, 1 << 20])
def test_depth_saturates(depth: int) -> None:
    raw = packing.record(SAMPLES[0]._replace(depth=depth), SALT, 0)

    assert records.unpack_record(*WORDS.unpack(raw)) == SAMPLES[0]._replace(depth=255)


def stored(ticks: int) -> int:
    """A duration after it went through a record."""
    return records.unpack_record(0, 0, records.duration_bits(ticks)).duration


@given(st.integers(0, SCALED_FROM - 1))
@example(SCALED_FROM - 1)
def test_a_duration_below_2_to_the_40_is_exact(ticks: int) -> None:
    assert stored(ticks) == ticks


@given(st.integers(SCALED_FROM, SATURATES_AT - 1))
@example(SCALED_FROM)
@example(SATURATES_AT - 1)
def test_a_scaled_duration_is_rounded_down_by_less_than_4096_ticks(ticks: int) -> None:
    assert records.duration_bits(ticks) & records.SCALED
    assert 0 <= ticks - stored(ticks) < 4096


@given(st.integers(SATURATES_AT, 1 << 70))
@example(SATURATES_AT)
def test_a_duration_beyond_2_to_the_52_stays_at_the_largest(ticks: int) -> None:
    assert stored(ticks) == SATURATES_AT - 4096


def test_a_clock_that_went_backwards_gives_a_duration_of_zero() -> None:
    assert stored(-1) == stored(-(1 << 60)) == 0


@given(words, st.integers(0, 0xFFFF_FFFF), st.integers(0, 255), words, st.integers(0, 1 << 24))
def test_an_attribute_comes_back_as_it_was_packed(value: int, key: int, value_type: int, salt: int, index: int) -> None:
    w0, w1, w2 = WORDS.unpack(packing.attribute(value, key, value_type, salt, index))

    assert records.is_whole(w0, w1, w2, salt, index)
    assert records.kind_of(w2) == records.ATTRIBUTE
    assert (w0, w1 & 0xFFFF_FFFF, w1 >> 32 & 0xFF) == (value, key, value_type)


def through(value: object) -> Any:
    """A value that needs no text, after it went through an attribute."""
    found = packing.value_bits(value)
    assert found is not None
    return records.value_of(*found, {})


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.booleans())
@example(-(1 << 63))
@example((1 << 63) - 1)
@example(-1)
@example(True)
def test_ints_and_bools_come_back_with_their_type(value: int) -> None:
    assert through(value) == value
    assert type(through(value)) is type(value)


@given(st.floats())
@example(math.nan)
@example(-math.inf)
@example(-0.0)
@example(5e-324)
def test_floats_come_back_bit_for_bit(value: float) -> None:
    assert struct.pack("<d", through(value)) == struct.pack("<d", value)


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 10**400, "text", b"bytes", [], object(), 1j])
def test_what_needs_a_text_has_no_bits_of_its_own(value: object) -> None:
    assert packing.value_bits(value) is None


def test_none_comes_back_as_none() -> None:
    assert packing.value_bits(None) == (records.NULL, 0)
    assert through(None) is None


@pytest.mark.parametrize("value_type", [records.TEXT, records.OTHER])
def test_a_text_is_found_by_its_id(value_type: int) -> None:
    assert records.value_of(value_type, 3, {3: "three"}) == "three"
    assert records.value_of(value_type, 4, {3: "three"}) is None


def test_busy_ticks_are_a_plain_number() -> None:
    assert records.value_of(records.BUSY, records.U64, {}) == records.U64


@given(st.integers(0, 255), words)
def test_no_type_and_no_bits_raise(value_type: int, bits: int) -> None:
    known = {records.INT, records.FLOAT, records.BOOL, records.BUSY}

    assert (records.value_of(value_type, bits, {}) is None) is (value_type not in known)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize(("salt", "index"), [(SALT, 0), (0, 1), (records.U64, 77_777)])
def test_every_single_flipped_bit_is_caught(sample: Record, salt: int, index: int) -> None:
    raw = packing.record(sample, salt, index)

    passed = [bit for bit in range(192) if whole(with_bit_flipped(raw, bit), salt, index)]

    assert whole(raw, salt, index)
    assert passed == []


def test_every_single_flipped_bit_of_an_attribute_is_caught() -> None:
    raw = packing.attribute(0xDEAD_BEEF_0000_0001, 5, records.INT, SALT, 9)

    assert [bit for bit in range(192) if whole(with_bit_flipped(raw, bit), SALT, 9)] == []


@given(words, st.integers(0, 1 << 24))
@example(0, 0)
def test_a_record_that_was_never_written_never_passes(salt: int, index: int) -> None:
    assert not records.is_whole(0, 0, 0, salt, index)


@given(words, words, words, words, st.integers(0, 1 << 24))
def test_check_bits_fit_their_twelve_bits_and_are_never_zero(w0: int, w1: int, w2: int, salt: int, index: int) -> None:
    assert 1 <= records.check_record(w0, w1, w2, salt, index) <= records.CHECK_PRIME < 1 << 12


def test_a_record_misplaced_by_few_places_never_passes() -> None:
    for sample, index in itertools.product(SAMPLES, (0, 5, 2_047)):
        w0, w1, w2 = WORDS.unpack(packing.record(sample, SALT, index))

        assert [i for i in range(2_048) if records.is_whole(w0, w1, w2, SALT, i)] == [index]


# 409,300 tries at 1 in 4093 give 100 on average, with a standard deviation of 10.
TRIES, EXPECTED, FIVE_DEVIATIONS = 100 * records.CHECK_PRIME, 100, 50


def passes(judged: Any) -> int:
    """How many of TRIES random draws pass. The seed is fixed: this number is always the same."""
    draw = random.Random(20).getrandbits
    return sum(judged(draw) for _ in range(TRIES))


def a_record_of_an_earlier_bank(draw: Any) -> bool:
    w0, w1, w2, index = draw(64), draw(64), draw(52), draw(17)
    w2 |= records.check_record(w0, w1, w2, draw(64), index) << records.CHECK_SHIFT
    return records.is_whole(w0, w1, w2, draw(64), index)


def a_record_from_far_away(draw: Any) -> bool:
    w0, w1, w2, salt, index = draw(64), draw(64), draw(52), draw(64), draw(20)
    w2 |= records.check_record(w0, w1, w2, salt, index) << records.CHECK_SHIFT
    return records.is_whole(w0, w1, w2, salt, index ^ 1 << 13 ^ draw(13))


def random_bytes(draw: Any) -> bool:
    return records.is_whole(draw(64), draw(64), draw(64), draw(64), draw(17))


@pytest.mark.parametrize("judged", [a_record_of_an_earlier_bank, a_record_from_far_away, random_bytes])
def test_arbitrary_damage_passes_with_the_odds_that_the_page_states(judged: Any) -> None:
    assert "passes with odds of 1 in 4093" in format_page.text()
    assert records.CHECK_PRIME == 4093
    assert abs(passes(judged) - EXPECTED) < FIVE_DEVIATIONS


ALL_ONES = {
    "end": {"end": records.LOW_48},
    "stage": {"stage": 0xFFFF},
    "site": {"site": 0xFFFF},
    "track": {"track": 0xFFFF},
    "step": {"step": 0xFFFF_FFFF},
    "duration": {"duration": records.DURATION_MAX},
    "depth": {"depth": 0xFF},
    "error": {"error": True},
    "kind": {"kind": 3},
}


def bits_on_the_page() -> dict[str, int]:
    """Field -> its bits as a mask over the 192 bits of a record."""
    found, word = {}, 0
    for name, bits, field in format_page.tables("Words of a record")[0]:
        word = int(name[1:]) if name else word
        low, _, high = bits.partition("–")
        width = int(high or low) - int(low) + 1
        found[field.split("`")[1]] = ((1 << width) - 1) << 64 * word + int(low)
    return found


def bits_in_code(**fields: Any) -> int:
    nothing = Record(0, 0, 0, 0, 0, 0, 0, False, 0)._replace(**fields)
    return int.from_bytes(packing.record(nothing, SALT, 0), "little") & ~(0xFFF << 128 + records.CHECK_SHIFT)


def test_every_field_lies_where_the_page_says() -> None:
    code = {name: bits_in_code(**fields) for name, fields in ALL_ONES.items()}
    code["scaled"] = records.SCALED << 128
    code["check"] = 0xFFF << 128 + records.CHECK_SHIFT

    assert bits_on_the_page() == code
    assert sum(code.values()) == (1 << 192) - 1


def test_the_types_of_attributes_are_those_of_the_page() -> None:
    page = dict(row[0].split() for row in format_page.tables("Words of a record")[1])

    assert {name.upper(): int(number) for number, name in page.items()} == {
        name: getattr(records, name) for name in ("INT", "FLOAT", "BOOL", "TEXT", "OTHER", "NULL", "BUSY")
    }


def test_the_c_engine_has_the_same_constants() -> None:
    c = format_page.c_constants()
    renamed = {
        **{f"KIND_{name}": getattr(records, name) for name in ("RANGE", "MARK", "ATTRIBUTE")},
        **{f"TYPE_{name}": getattr(records, name) for name in ("INT", "FLOAT", "BOOL", "TEXT", "OTHER", "BUSY")},
        "FLAG_ERROR": records.ERROR,
        "FLAG_SCALED": records.SCALED,
    }
    same = ("RECORD_BYTES", "STAGE_MAX", "TRACK_MAX", "ATTRIBUTE_LIMIT", "SITE_LIMIT", "NO_STEP", "LOW_52")
    same += ("DURATION_MAX", "KIND_SHIFT", "CHECK_PRIME")
    python = {**renamed, **{name: getattr(records, name) for name in same}}

    assert {name: c[name] for name in python} == python
