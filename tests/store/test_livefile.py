"""The live file: what is written is read, what is torn or foreign is not taken; every offset is that of the page."""

from __future__ import annotations

import itertools
import json
import struct
import zlib
from typing import Any

import pytest
from builders import format_page
from hypothesis import example, given
from hypothesis import strategies as st

from mstxkit.errors import FormatError, NewerVersionError
from mstxkit.store import livefile, records
from mstxkit.store.livefile import Anchor, Layout

SALT, NONCE = 0x1234_5678_9ABC_DEF0, 0xA5A5_0000_1234_0001
SMALL = Layout(4, 2, 4096)
ROOM = SMALL.bank_bytes - livefile.BANK_HEADER_BYTES

u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
anything = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=60)


@pytest.fixture
def view() -> memoryview:
    return laid_out(SMALL)


def laid_out(layout: Layout, nonce: int = NONCE, native: bool = True) -> memoryview:
    view = memoryview(bytearray(layout.total_bytes))
    livefile.lay_out(view, layout, nonce, native)
    return view


def number(view: memoryview, offset: int, size: int) -> int:
    return int.from_bytes(view[offset : offset + size], "little")


# Header


@given(st.integers(0, 70), st.integers(1, 3), st.integers(1, 3), u64, st.booleans())
def test_a_header_comes_back_as_it_was_laid_out(slots: int, banks: int, pages: int, nonce: int, native: bool) -> None:
    layout = Layout(slots, banks, 4096 * pages)
    header = livefile.read_header(laid_out(layout, nonce, native))

    assert header == (livefile.BEING_MADE, layout, nonce, 0, native, 0.0)


@given(st.integers(0, 1 << 20), st.integers(1, 64), st.integers(1, 1 << 20))
def test_slots_and_banks_lie_behind_each_other_on_pages(slots: int, banks: int, pages: int) -> None:
    layout = Layout(slots, banks, 4096 * pages)

    assert layout.banks_at % 4096 == 0
    assert livefile.HEADER_BYTES + slots * livefile.SLOT_BYTES <= layout.banks_at
    assert layout.bank_at(banks) == layout.total_bytes


@pytest.mark.parametrize("state", [livefile.BEING_MADE, livefile.RECORDING, livefile.CLOSED])
def test_the_state_is_what_was_last_set(view: memoryview, state: int) -> None:
    livefile.set_state(view, livefile.CLOSED)
    livefile.set_state(view, state)

    assert livefile.read_header(view).state == state


def test_a_live_file_that_is_cut_anywhere_is_refused(view: memoryview) -> None:
    for size in [*range(livefile.HEADER_BYTES + 8), SMALL.total_bytes - 1]:
        with pytest.raises(FormatError):
            livefile.read_header(view[:size])


@pytest.mark.parametrize("begin", [b"", b"MSTXLIV", b"mstxlive", b"MSTXSEAL", b"\xff"])
@pytest.mark.parametrize("padding", [0, 20_000])
def test_a_foreign_file_is_refused(begin: bytes, padding: int) -> None:
    content = begin + bytes(padding)

    with pytest.raises(FormatError, match="not a live file"):
        livefile.read_header(content)


@pytest.mark.parametrize("version", [2, 0xFFFF])
def test_a_newer_version_is_named_as_one(view: memoryview, version: int) -> None:
    struct.pack_into("<H", view, 8, version)

    with pytest.raises(NewerVersionError, match=f"live file of format {version}; .* upgrade"):
        livefile.read_header(view)


@pytest.mark.parametrize(
    ("offset", "code", "value"),
    [
        (12, "<I", 4096), (12, "<I", 0),
        (16, "<I", 0xFFFF_FFFF), (16, "<I", 4000), (20, "<I", 0xFFFF_FFFF), (20, "<I", 3),
        (24, "<Q", 0), (24, "<Q", 128), (24, "<Q", 8192), (24, "<Q", (1 << 64) - 1),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_the_file_are_refused(view: memoryview, offset: int, code: str, value: int) -> None:
    struct.pack_into(code, view, offset, value)

    with pytest.raises(FormatError, match="sizes"):
        livefile.read_header(view)


@given(st.binary(max_size=80), st.integers(0, 120))
def test_no_damage_to_a_header_gives_sizes_beyond_the_file(patch: bytes, at: int) -> None:
    view = laid_out(SMALL)
    view[at : at + len(patch)] = patch

    try:
        header = livefile.read_header(view)
    except FormatError:
        return
    assert header.layout.total_bytes <= len(view)
    assert len(livefile.read_slots(view, header)) <= header.layout.slot_count
    banks = [livefile.read_bank(view, header.layout, index) for index in range(header.layout.bank_count)]
    assert banks == [None] * header.layout.bank_count


# Counters and heartbeat


@given(st.lists(st.tuples(st.sampled_from(livefile.COUNTERS), st.integers(0, 1 << 62)), max_size=8))
def test_counters_add_up_by_name(added: list[tuple[str, int]]) -> None:
    view = laid_out(SMALL)
    for name, amount in added:
        livefile.add_to_counter(view, name, amount)

    expected = {name: sum(n for other, n in added if other == name) & records.U64 for name in livefile.COUNTERS}
    assert livefile.read_counters(view) == expected


def test_there_is_no_heartbeat_before_the_first(view: memoryview) -> None:
    assert livefile.heartbeat_ns(view) == 0


# Anchors


def anchor(n: int) -> Anchor:
    return Anchor(n * 1000, n * 100, n * 100 + 7, n % 5)


@pytest.mark.parametrize("written", [0, 1, 2, 63, 64, 65, 127, 128, 1_000])
def test_the_first_anchor_stays_and_the_last_63_go_round(view: memoryview, written: int) -> None:
    for n in range(written):
        livefile.write_anchor(view, anchor(n))

    expected = list(range(written)) if written <= 64 else [0, *range(written - 63, written)]
    assert livefile.read_anchors(view) == [anchor(n) for n in expected]


@pytest.mark.parametrize("written", [0, 1, 2, 63, 64, 65, 127, 128, 1_000])
def test_the_newest_anchor_is_the_one_that_was_written_last(view: memoryview, written: int) -> None:
    for n in range(written):
        livefile.write_anchor(view, anchor(n))

    assert livefile.newest_anchor(view) == (anchor(written - 1) if written else None)


@given(st.lists(st.builds(Anchor, u64, u64, u64, u64), max_size=70))
def test_anchors_of_any_numbers_come_back_by_their_ticks_and_none_is_invented(written: list[Anchor]) -> None:
    view = laid_out(SMALL)
    for one in written:
        livefile.write_anchor(view, one)

    found = livefile.read_anchors(view)

    assert set(found) <= set(written)
    assert found == sorted(found)
    assert bool(found) is bool(written)


def test_an_anchor_half_overwritten_is_left_out_and_the_others_are_not(view: memoryview) -> None:
    for n in range(64):
        livefile.write_anchor(view, anchor(n))
    torn = livefile.ANCHORS_AT + livefile.ANCHOR_BYTES
    struct.pack_into("<Q", view, torn, anchor(64).ticks)  # anchor 64 takes the place of anchor 1, and has come so far

    assert livefile.read_anchors(view) == [anchor(0), *(anchor(n) for n in range(2, 64))]


# Identity

IDENTITY = {
    "run": "ab" * 16,
    "host": "node-1",
    "boot": "c" * 36,
    "pid": 4321,
    "pidns": 7,
    "start": "5eed",
    "rank": None,
}


def copy_at(which: int) -> int:
    return livefile.IDENTITY_AT + which * livefile.IDENTITY_BYTES


@given(
    st.dictionaries(
        st.text(), st.text() | st.none() | st.booleans() | st.integers() | st.lists(u16, max_size=3), max_size=6
    )
)
def test_an_identity_comes_back(identity: dict[str, Any]) -> None:
    view = laid_out(SMALL)
    livefile.write_identity(view, {"rank": 0})
    livefile.write_identity(view, identity)

    found = livefile.read_identity(view)

    assert found == identity or len(json.dumps(identity)) > livefile.IDENTITY_BYTES - 8


def test_there_is_no_identity_before_the_first(view: memoryview) -> None:
    assert livefile.read_identity(view) == {}


def test_identities_are_written_to_the_copies_in_turn(view: memoryview) -> None:
    for rank in range(5):
        before = bytes(view[copy_at(0) : copy_at(2)])
        livefile.write_identity(view, {"rank": rank})
        after = bytes(view[copy_at(0) : copy_at(2)])
        half = livefile.IDENTITY_BYTES

        assert livefile.read_identity(view) == {"rank": rank}
        assert (before[:half] == after[:half]) is not (before[half:] == after[half:])


@pytest.mark.parametrize("writes", [2, 3])
def test_a_torn_copy_falls_back_to_the_other(view: memoryview, writes: int) -> None:
    for rank in range(writes):
        livefile.write_identity(view, {**IDENTITY, "rank": rank})
    valid = number(view, livefile.IDENTITY_WHICH_AT, 4)

    for offset in range(8 + len(json.dumps(IDENTITY)) - 4):  # its length, its checksum, every byte of its text
        view[copy_at(valid) + offset] ^= 0x10
        assert livefile.read_identity(view)["rank"] == writes - 2
        view[copy_at(valid) + offset] ^= 0x10


def test_with_both_copies_torn_there_is_none(view: memoryview) -> None:
    for rank in range(2):
        livefile.write_identity(view, {"rank": rank})
        view[copy_at(1 - rank) + 10] ^= 1

    assert livefile.read_identity(view) == {}


@pytest.mark.parametrize("raw", [b"{", b"5", b"[]", b"null", b"\xff\xfe", b"[" * 2_000, b'{"a":' * 400], ids=range(7))
def test_a_copy_that_is_no_json_object_falls_back_to_the_other(view: memoryview, raw: bytes) -> None:
    livefile.write_identity(view, IDENTITY)
    livefile.write_identity(view, IDENTITY)
    at = copy_at(number(view, livefile.IDENTITY_WHICH_AT, 4))
    struct.pack_into("<II", view, at, len(raw), zlib.crc32(raw))
    view[at + 8 : at + 8 + len(raw)] = raw

    assert livefile.read_identity(view) == IDENTITY


@pytest.mark.parametrize("character", ["r", "ü", "\U0001f600", "\udc80", "\x00"])
def test_an_oversized_identity_is_cut_and_still_says_who_it_is(view: memoryview, character: str) -> None:
    role = character * 3_000
    livefile.write_identity(view, {**IDENTITY, "role": role, "rank": 3})

    found = livefile.read_identity(view)

    assert {key: found[key] for key in IDENTITY} == {**IDENTITY, "rank": 3}
    assert found["role"] == role[:64]


def test_an_identity_with_too_much_in_it_leaves_out_what_is_longest(view: memoryview) -> None:
    livefile.write_identity(view, {**IDENTITY, "digits": 10**3_000, "many": ["x"] * 5_000})

    assert livefile.read_identity(view) == IDENTITY


@given(st.dictionaries(anything, st.text() | st.lists(anything) | st.integers(), min_size=1), st.integers(1, 5_000))
def test_an_identity_of_any_size_is_readable_and_stays_in_its_copy(identity: dict[str, Any], times: int) -> None:
    view = laid_out(SMALL)
    livefile.write_identity(view, {"rank": 1})
    other = bytes(view[copy_at(1) : copy_at(2)])
    livefile.write_identity(view, {key * times: value for key, value in identity.items()})

    assert bytes(view[copy_at(1) : copy_at(2)]) == other
    assert "rank" not in livefile.read_identity(view) or "rank" in identity
    assert bytes(view[copy_at(2) :]) == bytes(SMALL.total_bytes - copy_at(2))


# Slots


def put_slot(view: memoryview, place: int, slot: livefile.Slot, nonce: int = NONCE) -> int:
    """Open a slot as an engine does; its offset."""
    w1 = slot.site | slot.track << 16 | slot.step << 32
    w2 = slot.stage | slot.depth << 16 | slot.thread << 32
    at = livefile.HEADER_BYTES + place * livefile.SLOT_BYTES
    livefile.SLOT.pack_into(view, at, slot.start, w1, w2, livefile.slot_mark(slot.start, w1, w2, nonce))
    return at


slots = st.builds(livefile.Slot, u64, u16, u16, u32, u16, st.integers(0, 255), u32)


@given(st.dictionaries(st.integers(0, 3), slots), u64)
@example({0: livefile.Slot(0, 0, 0, 0, 0, 0, 0)}, 0)
def test_open_ranges_come_back_and_free_slots_do_not(opened: dict[int, livefile.Slot], nonce: int) -> None:
    view = laid_out(SMALL, nonce)
    for place, slot in opened.items():
        put_slot(view, place, slot, nonce)

    found = livefile.read_slots(view, livefile.read_header(view))

    assert found == [opened[place] for place in sorted(opened)]


def test_a_slot_with_any_bit_flipped_is_not_shown(view: memoryview) -> None:
    at = put_slot(view, 1, livefile.Slot(123_456, 7, 2, 9, 3, 1, 4_321))
    header = livefile.read_header(view)
    assert len(livefile.read_slots(view, header)) == 1

    for bit in range(8 * livefile.SLOT_BYTES):
        view[at + bit // 8] ^= 1 << bit % 8
        assert livefile.read_slots(view, header) == []
        view[at + bit // 8] ^= 1 << bit % 8


def test_a_slot_of_another_process_is_not_shown(view: memoryview) -> None:
    put_slot(view, 0, livefile.Slot(1, 2, 3, 4, 5, 6, 7), nonce=NONCE + 2)

    assert livefile.read_slots(view, livefile.read_header(view)) == []


def test_a_slot_is_gone_once_its_mark_is_zero(view: memoryview) -> None:
    at = put_slot(view, 0, livefile.Slot(1, 2, 3, 4, 5, 6, 7))
    struct.pack_into("<Q", view, at + 24, 0)

    assert livefile.read_slots(view, livefile.read_header(view)) == []


# Banks


def fill(view: memoryview, index: int, raw: bytes, text: bytes, seq: int = 1) -> int:
    """Activate a bank and write into it as an engine does; its offset."""
    at, end = SMALL.bank_at(index), SMALL.bank_at(index + 1)
    livefile.activate_bank(view, SMALL, index, seq, SALT, 77, 99)
    view[at + livefile.BANK_HEADER_BYTES : at + livefile.BANK_HEADER_BYTES + len(raw)] = raw
    view[end - len(text) : end] = text
    struct.pack_into("<QQ", view, at + 32, len(raw) // records.RECORD_BYTES, len(text))
    return at


@given(st.integers(0, 100), st.binary(max_size=1_000), st.integers(0, 1), st.integers(1, records.U64))
def test_a_bank_comes_back_with_all_that_is_in_it(count: int, text: bytes, index: int, seq: int) -> None:
    view = laid_out(SMALL)
    raw = bytes(k * 7 & 0xFF for k in range(count * records.RECORD_BYTES))
    fill(view, index, raw, text, seq)

    bank = livefile.read_bank(view, SMALL, index)

    assert bank is not None
    assert (bank.seq, bank.state, bank.salt, bank.origin, bank.activated_ns) == (seq, livefile.ACTIVE, SALT, 77, 99)
    assert (bank.raw, bank.text) == (raw, text)
    assert livefile.read_bank(view, SMALL, 1 - index) is None


def test_a_bank_may_be_filled_to_its_last_byte(view: memoryview) -> None:
    records_of_it = bytes(ROOM // 24 * 24)
    fill(view, 0, records_of_it, bytes(ROOM % 24))

    assert livefile.read_bank(view, SMALL, 0) is not None


def test_activating_a_bank_forgets_what_was_in_it(view: memoryview) -> None:
    fill(view, 1, bytes(48), bytes(24))
    livefile.activate_bank(view, SMALL, 1, 2, SALT, 5, 6)

    bank = livefile.read_bank(view, SMALL, 1)

    assert bank is not None
    assert (bank.seq, bank.raw, bank.text) == (2, b"", b"")
    assert number(view, livefile.ACTIVE_BANK_AT, 4) == 1


@pytest.mark.parametrize(
    ("offset", "code", "value"),
    [
        (0, "<Q", 0), (8, "<I", livefile.FREE), (8, "<I", 3), (8, "<I", 0xFFFF_FFFF),
        (32, "<Q", ROOM // 24 + 1), (32, "<Q", (1 << 64) - 1), (40, "<Q", ROOM + 1), (40, "<Q", ROOM - 24),
        (40, "<Q", (1 << 64) - 1),
    ],
)  # fmt: skip
def test_a_bank_that_is_unused_or_says_what_cannot_be_is_not_read(
    view: memoryview, offset: int, code: str, value: int
) -> None:
    at = fill(view, 0, bytes(48), b"")
    struct.pack_into(code, view, at + offset, value)

    assert livefile.read_bank(view, SMALL, 0) is None


@pytest.mark.parametrize("offset", [0, 16], ids=["sequence number", "salt"])
def test_a_bank_that_is_recycled_while_it_is_copied_is_not_read(view: memoryview, offset: int) -> None:
    class Recycled(bytearray):
        """The process activates the bank anew just when its bytes are copied."""

        def __getitem__(self, key: Any) -> Any:
            copied = super().__getitem__(key)
            struct.pack_into("<Q", self, SMALL.bank_at(0) + offset, 12345)
            return copied

    fill(view, 0, bytes(48), bytes(24))

    assert livefile.read_bank(Recycled(view), SMALL, 0) is None


# Texts


def side_table(entries: list[tuple[int, int, bytes]], salt: int = SALT) -> bytes:
    """Entries in the order in which they were written: each lies below the one before."""
    return b"".join(livefile.pack_text(*entry, salt) for entry in reversed(entries))


names = st.text(max_size=40)
ids = u16.filter(bool)


@given(
    st.dictionaries(ids, st.builds(livefile.SiteText, names, names, u16), max_size=4),
    st.dictionaries(ids, names, max_size=4),
    st.dictionaries(u32, names, max_size=4),
    st.dictionaries(u16, st.builds(livefile.TrackText, u64, st.booleans(), names, st.just(False)), max_size=4),
    u64,
    st.randoms(use_true_random=False),
)
def test_text_entries_come_back(sites: Any, stages: Any, texts: Any, tracks: Any, salt: int, order: Any) -> None:
    entries = [
        *(
            (livefile.SITE, i, livefile.site_payload(s.name.encode(), s.domain.encode(), s.own_stage))
            for i, s in sites.items()
        ),
        *((livefile.STAGE, i, key.encode()) for i, key in stages.items()),
        *((livefile.TEXT, i, text.encode()) for i, text in texts.items()),
        *((livefile.TRACK, i, livefile.track_payload(*track[:3])) for i, track in tracks.items()),
    ]
    order.shuffle(entries)

    for known_salt in (salt, None):
        assert livefile.read_texts(side_table(entries, salt), known_salt) == ((sites, stages, texts, tracks), 0)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 4096])
def test_text_entries_keep_to_words(length: int) -> None:
    assert len(livefile.pack_text(livefile.TEXT, 1, bytes(length), SALT)) % 8 == 0


def test_a_flipped_bit_of_a_text_ends_the_reading_there() -> None:
    entries = [(livefile.TEXT, n, b"text %d, long enough" % n) for n in range(1, 4)]
    good = {n: payload.decode() for _, n, payload in entries}
    raw = side_table(entries)
    size = len(raw) // 3

    for place, offset in itertools.product(range(3), range(len(entries[0][2]))):
        damaged = bytearray(raw)
        damaged[len(raw) - (place + 1) * size + offset] ^= 1 << offset % 8
        texts, unread = livefile.read_texts(bytes(damaged), SALT)

        assert texts.texts == {n: good[n] for n in range(1, place + 1)}
        assert unread == len(raw) - place * size


def test_texts_of_an_earlier_bank_in_the_same_place_are_not_read() -> None:
    raw = side_table([(livefile.TEXT, 1, b"stale")], salt=SALT ^ 1)

    assert livefile.read_texts(raw, SALT) == (({}, {}, {}, {}), len(raw))


def test_a_text_of_an_unknown_kind_is_passed_over() -> None:
    raw = side_table([(livefile.TEXT, 1, b"a"), (99, 2, b"from the future"), (livefile.TEXT, 3, b"c")])

    assert livefile.read_texts(raw, SALT)[0].texts == {1: "a", 3: "c"}


def test_a_track_that_several_threads_had_is_shared() -> None:
    entries = [
        (livefile.TRACK, 1, livefile.track_payload(7, False, "first")),
        (livefile.TRACK, 2, livefile.track_payload(7, True, "first")),
        (livefile.TRACK, 1, livefile.track_payload(8, False, "second")),
        (livefile.TRACK, 2, livefile.track_payload(7, True, "first")),
    ]

    tracks = livefile.read_texts(side_table(entries), SALT)[0].tracks

    assert tracks == {1: (8, False, "second", True), 2: (7, True, "first", False)}


@pytest.mark.parametrize("kind", [livefile.SITE, livefile.TRACK])
def test_an_entry_too_short_for_its_kind_is_passed_over(kind: int) -> None:
    raw = side_table([(kind, 1, b"short"), (livefile.TEXT, 2, b"next")])

    assert livefile.read_texts(raw, SALT) == (({}, {}, {2: "next"}, {}), 0)


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    entries = [(livefile.SITE, 1, livefile.site_payload(b"a\xff", b"\xfe", 0)), (livefile.STAGE, 2, b"\x80")]

    texts, _ = livefile.read_texts(side_table(entries), SALT)

    assert (texts.sites, texts.stages) == ({1: ("a\ufffd", "\ufffd", 0)}, {2: "\ufffd"})


@given(st.binary(max_size=200), st.none() | u64)
def test_no_bytes_raise_as_texts(raw: bytes, salt: int | None) -> None:
    _, unread = livefile.read_texts(raw, salt)

    assert 0 <= unread <= len(raw)


# The page


def filled_header() -> tuple[memoryview, dict[str, int]]:
    """A header with a number of its own in every field, and those numbers by the page's names for the fields."""
    layout = Layout(5, 3, 3 * 4096)
    view = laid_out(layout)
    livefile.set_state(view, livefile.CLOSED)
    struct.pack_into("<I4xd", view, livefile.CLOCK_AT, 3, 2.5)
    struct.pack_into("<Q", view, livefile.HEARTBEAT_AT, 4_001)
    for n, name in enumerate(livefile.COUNTERS):
        livefile.add_to_counter(view, name, 5_001 + n)
    for n in range(70):
        livefile.write_anchor(view, anchor(n))
    livefile.activate_bank(view, layout, 2, 1, SALT, 0, 0)
    livefile.write_identity(view, IDENTITY)
    livefile.write_exit_status(view, 7)
    header = livefile.read_header(view)
    return view, {
        "magic": int.from_bytes(livefile.MAGIC, "little"), "version": livefile.VERSION, "state": header.state,
        "header bytes": livefile.HEADER_BYTES, "slot count": 5, "bank count": 3, "bank bytes": 3 * 4096,
        "offset of slots": livefile.HEADER_BYTES, "offset of bank 0": layout.banks_at, "nonce": NONCE,
        "clock": header.clock, "1 native hot path": int(header.native),
        "nominal ticks per ns": struct.unpack("<Q", struct.pack("<d", header.ticks_per_ns))[0],
        "heartbeat": livefile.heartbeat_ns(view), **counters_by_page(livefile.read_counters(view)),
        "index of the active bank": 2, "which identity copy is valid": 1, "exit": 256 + 7, "anchors ever written": 70,
    }  # fmt: skip


def counters_by_page(counters: dict[str, int]) -> dict[str, int]:
    return {
        "records dropped": counters["dropped"],
        "open slots that overflowed": counters["slots_overflowed"],
        "ranges that lost attributes": counters["attributes_lost"],
        "ranges given the catch-all name": counters["names_capped"],
        "texts cut to their limit": counters["texts_cut"],
        "faults inside mstxkit": counters["faults"],
        "records evicted by the disk quota": counters["evicted"],
        "calls coalesced": counters["coalesced"],
        "hot-path cost estimate": counters["own_cost_ns"],
    }


def test_every_field_of_the_header_lies_where_the_page_says() -> None:
    view, expected = filled_header()
    rows = {format_page.subject(field): (int(at), size) for at, size, field in format_page.tables("Live file")[0]}
    large = {name: rows.pop(name) for name in ("anchors", "identity copies")}

    assert {name: number(view, at, int(size)) for name, (at, size) in rows.items()} == expected
    assert large == {
        "anchors": (livefile.ANCHORS_AT, f"{livefile.ANCHOR_ENTRIES} × {livefile.ANCHOR_BYTES}"),
        "identity copies": (livefile.IDENTITY_AT, f"2 × {livefile.IDENTITY_BYTES}"),
    }


def test_the_offsets_with_a_name_are_those_of_the_page() -> None:
    page = {format_page.subject(field): int(at) for at, _, field in format_page.tables("Live file")[0]}

    assert {
        "state": livefile.STATE_AT,
        "clock": livefile.CLOCK_AT,
        "heartbeat": livefile.HEARTBEAT_AT,
        "records dropped": livefile.COUNTERS_AT,
        "index of the active bank": livefile.ACTIVE_BANK_AT,
        "which identity copy is valid": livefile.IDENTITY_WHICH_AT,
        "exit": livefile.EXIT_AT,
        "anchors ever written": livefile.ANCHOR_COUNT_AT,
        "anchors": livefile.ANCHORS_AT,
        "identity copies": livefile.IDENTITY_AT,
    }.items() <= page.items()


def test_the_fields_of_the_header_do_not_overlap() -> None:
    rows = [(int(at), format_page.size_bytes(size)) for at, size, _ in format_page.tables("Live file")[0]]
    ends = [at + size for at, size in rows]

    assert all(end <= at for end, (at, _) in zip(ends, rows[1:]))
    assert ends[-1] == livefile.HEADER_BYTES


def test_every_field_of_a_bank_lies_where_the_page_says(view: memoryview) -> None:
    at = fill(view, 0, bytes(3 * 24), bytes(16), seq=5)
    rows = format_page.tables("Live file")[1]

    assert {format_page.subject(field): number(view, at + int(offset), int(size)) for offset, size, field in rows} == {
        "sequence number": 5,
        "state": livefile.ACTIVE,
        "salt": SALT,
        "origin ticks": 77,
        "records written": 3,
        "text bytes used": 16,
        "CLOCK_MONOTONIC ns of activation": 99,
    }


def test_the_states_clocks_and_kinds_are_those_of_the_page() -> None:
    header, bank, texts = format_page.tables("Live file")
    cells = [field for *_, field in header + bank]
    kinds = {name: int(number) for number, name in (row[0].split() for row in texts)}

    assert "state: 0 being made, 1 recording, 2 closed" in cells
    assert (livefile.BEING_MADE, livefile.RECORDING, livefile.CLOSED) == (0, 1, 2)
    assert "state: 0 free, 1 active, 2 full" in cells
    assert (livefile.FREE, livefile.ACTIVE, livefile.FULL) == (0, 1, 2)
    assert "clock: 1 CLOCK_MONOTONIC ns, 2 TSC, 3 cntvct_el0, 4 fake" in cells
    assert livefile.CLOCKS == {1: "monotonic", 2: "tsc", 3: "cntvct", 4: "fake"}
    assert kinds == {name: getattr(livefile, name.upper()) for name in ("site", "stage", "text", "track")}
    assert f"header of {livefile.BANK_HEADER_BYTES} bytes" in format_page.text()
    assert f"**Slots** ({livefile.SLOT_BYTES} bytes each)" in format_page.text()


def test_the_c_engine_has_the_same_offsets() -> None:
    c = format_page.c_constants()
    header = {format_page.subject(field): int(at) for at, _, field in format_page.tables("Live file")[0]}
    bank = {format_page.subject(field): int(at) for at, _, field in format_page.tables("Live file")[1]}
    expected = {
        "AT_SLOT_COUNT": header["slot count"], "AT_BANK_COUNT": header["bank count"],
        "AT_BANK_BYTES": header["bank bytes"], "AT_SLOTS": header["offset of slots"],
        "AT_BANKS": header["offset of bank 0"], "AT_HEARTBEAT": header["heartbeat"],
        "AT_COUNTERS": header["records dropped"], "AT_ACTIVE": header["index of the active bank"],
        "AT_ANCHOR_COUNT": header["anchors ever written"], "AT_ANCHORS": header["anchors"],
        "BANK_SEQ": bank["sequence number"], "BANK_STATE": bank["state"], "BANK_SALT": bank["salt"],
        "BANK_ORIGIN": bank["origin ticks"], "BANK_COUNT": bank["records written"],
        "BANK_TEXT": bank["text bytes used"], "BANK_SINCE": bank["CLOCK_MONOTONIC ns of activation"],
        "BANK_FREE": livefile.FREE, "BANK_ACTIVE": livefile.ACTIVE, "BANK_FULL": livefile.FULL,
        "TEXT_SITE": livefile.SITE, "TEXT_STAGE": livefile.STAGE, "TEXT_TEXT": livefile.TEXT,
        "TEXT_TRACK": livefile.TRACK, "TRAILER_BYTES": livefile.TRAILER.size,
        "COUNTER_COUNT": len(livefile.COUNTERS),
        **{name: getattr(livefile, name) for name in (
            "HEADER_BYTES", "SLOT_BYTES", "BANK_HEADER_BYTES", "ANCHOR_BYTES", "ANCHOR_ENTRIES",
        )},
        **{name.upper(): n for n, name in enumerate(livefile.COUNTERS[:6])},
    }  # fmt: skip

    assert {name: c[name] for name in expected} == expected
