"""Banks, slots and texts: rules 7 and 9 of docs/internals/engine.md and what the sealer calls, on both engines."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from builders.fresh_engine import run_fresh
from builders.written_banks import NONCE, Written, read_bank

from mstxkit.store import livefile, segment


def fill(engine: Any, recorded: Written) -> int:
    """Pass ranges until the active bank changes; how many were recorded before."""
    before, count = recorded.banks[-1].seq, 0
    while recorded.banks[-1].seq == before:
        with engine.mstx_range("filler"):
            pass
        count += 1
    return count - 1


def test_attach_writes_into_bank_0_and_says_so_in_the_header(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x"):
        pass

    (bank,) = recorded.banks
    assert (bank.place, bank.state) == (0, livefile.ACTIVE)
    assert bank.seq >= 1
    assert bank.origin <= 1_000_000
    assert livefile.read_header(recorded.view).native is engine.NATIVE


@pytest.mark.parametrize("damaged", [b"", b"x" * 8192, None])
def test_what_is_no_live_file_is_refused(engine: Any, damaged: bytes | None) -> None:
    view = memoryview(bytearray(damaged if damaged is not None else 1 << 16))

    with pytest.raises(ValueError):
        engine.attach(view, NONCE)
    engine.set_recording(True)
    assert not engine.recording()


def test_recording_needs_a_live_file(engine: Any) -> None:
    engine.set_recording(True)

    assert not engine.recording()
    assert not engine.is_on(engine.intern("x"))


def test_rotate_hands_the_bank_on_and_takes_the_next(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("first"):
        pass
    rotated = engine.rotate()
    with engine.mstx_range("second"):
        pass

    assert rotated is True
    first, second = recorded.banks
    assert (first.place, first.state) == (0, livefile.FULL)
    assert (second.place, second.state, second.seq) == (1, livefile.ACTIVE, first.seq + 1)
    assert [[found.name for found in read_bank(bank)] for bank in recorded.banks] == [["first"], ["second"]]
    assert recorded.banks[0].salt != recorded.banks[1].salt


def test_an_empty_bank_is_not_rotated(engine: Any, recorded: Written) -> None:
    assert engine.rotate() is False
    assert engine.full_bank() == -1


def test_detached_there_is_nothing_to_rotate_or_to_seal(engine: Any) -> None:
    assert engine.rotate() is False
    assert engine.full_bank() == -1
    with pytest.raises(ValueError):
        engine.encode_bank(0)
    with pytest.raises(ValueError):
        engine.release_bank(0)


@pytest.mark.parametrize("index", [-1, 4, 1000])
def test_a_bank_that_is_not_there_is_refused(engine: Any, recorded: Written, index: int) -> None:
    with pytest.raises(ValueError):
        engine.encode_bank(index)
    with pytest.raises(ValueError):
        engine.encode_into(index, bytearray(1 << 16), 0)
    with pytest.raises(ValueError):
        engine.bank_texts(index)
    with pytest.raises(ValueError):
        engine.release_bank(index)


def test_a_full_bank_is_rotated_by_itself(engine: Any, small: Written) -> None:
    count = fill(engine, small)

    assert count > 50
    assert [len(read_bank(bank)) for bank in small.banks] == [count, 1]
    assert engine.full_bank() == 0
    assert engine.counters()["dropped"] == 0


def test_full_banks_are_sealed_oldest_first(engine: Any, small: Written) -> None:
    order = []
    for _ in range(10):
        fill(engine, small)
        order.append(engine.full_bank())
        engine.release_bank(engine.full_bank())

    assert order == [0, 1, 2] * 3 + [0]
    assert engine.full_bank() == -1


def test_without_a_free_bank_records_are_dropped_and_counted(engine: Any, small: Written) -> None:
    fill(engine, small)
    fill(engine, small)
    while engine.counters()["dropped"] == 0:
        with engine.mstx_range("filler"):
            pass
    kept = len(small.ranges)
    for _ in range(9):
        with engine.mstx_range("plain"), engine.mstx_range("full", n=1):
            pass

    assert engine.counters()["dropped"] == 19
    assert len(small.ranges) == kept
    assert small.open == []


def test_after_drops_a_freed_bank_is_used_at_once(engine: Any, small: Written) -> None:
    while engine.counters()["dropped"] == 0:
        with engine.mstx_range("filler"):
            pass
    engine.release_bank(engine.full_bank())
    for _ in range(3):
        with engine.mstx_range("again"):
            pass

    assert small.names[-3:] == ["again"] * 3
    assert engine.counters()["dropped"] == 1


def test_the_active_bank_is_not_released(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x"):
        engine.release_bank(0)

    assert recorded.names == ["x"]


def test_what_does_not_even_fit_into_an_empty_bank_loses_attributes_not_the_range(engine: Any, small: Written) -> None:
    with engine.mstx_range("x", small=1, large="y" * 4096):
        pass

    assert small.one("x").attributes == {"small": 1}
    assert engine.counters()["attributes_lost"] == 1
    assert engine.counters()["dropped"] == 0


def test_open_ranges_are_named_in_a_new_bank(engine: Any, recorded: Written) -> None:
    for _ in range(3):
        with engine.mstx_range("outer"):
            pass
    with engine.mstx_range("outer"), engine.stage("stage"), engine.mstx_range("inner", domain="d"):
        engine.mark("so that there is something to rotate")
        assert engine.rotate()
        inside = [(found.name, found.stage) for found in recorded.open]

    assert inside == [("outer", None), ("stage", "stage"), ("inner", "stage")]
    assert recorded.names[-3:] == ["inner", "stage", "outer"]


def test_a_range_is_named_at_its_begin(engine: Any, recorded: Written) -> None:
    for _ in range(3):
        with engine.mstx_range("x"):
            names = [found.name for found in recorded.open]
        engine.rotate()

    assert names == ["x"]


def test_what_begins_while_another_thread_hands_the_bank_on_is_named(
    both: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the twin may wait for the GIL between what the bank is told of it and the mark in its slot."""
    twin = next(engine for engine in both if not engine.NATIVE)
    recorded = Written(twin)
    for _ in range(2):
        with twin.mstx_range("x"):
            pass
    slot_mark = livefile.slot_mark

    def meanwhile(*arguments: Any) -> int:
        assert twin.rotate()
        twin.release_bank(twin.full_bank())
        return slot_mark(*arguments)

    with ExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr(livefile, "slot_mark", meanwhile)
            stack.enter_context(twin.mstx_range("x"))
        assert [found.name for found in recorded.open] == ["x"]


def busy(engine: Any, recorded: Written, seed: int) -> None:
    """Ranges, marks and attributes of all kinds, the same for the same seed."""
    chosen = random.Random(seed)
    for number in range(300):
        recorded.tick(chosen.randrange(1 << chosen.randrange(1, 34)))
        engine.step(number // 50)
        with engine.stage(f"stage {number % 3}"), engine.mstx_range(f"range {number % 7}"):
            recorded.tick(chosen.randrange(1000))
            engine.mark("mark", number=number)
        with engine.mstx_range("full", domain="d", text=f"text {number % 5}", ratio=chosen.random()):
            pass


def test_encode_bank_gives_what_the_format_says(engine: Any, recorded: Written) -> None:
    busy(engine, recorded, seed=1)
    engine.rotate()
    bank = recorded.banks[0]

    encoded = engine.encode_bank(bank.place)
    assert encoded == tuple(segment.encode_bank(bank.raw, bank.text, bank.salt))
    assert encoded == engine.encode_left(bank.raw, bank.text, bank.salt)
    assert (encoded[3], encoded[4]) == (1200, 900)


def into(engine: Any, index: int, at: int, damaged: int = 0) -> tuple[bytes, tuple[Any, ...]]:
    """What is encoded into room from `at` on, and what is said of it; only room of as many records is touched."""
    room = bytearray(b"\xa5" * (at + 64 * 1024))
    n, m, extent = engine.encode_into(index, room, at)
    end = at + 24 * (n + m)
    assert set(room[:at] + room[end + 24 * damaged :]) == {0xA5}
    return bytes(room[at:end]), (n, m, tuple(extent))


@pytest.mark.parametrize("ranges", [*range(1, 18), 300])
def test_a_bank_encoded_into_room_has_the_same_bytes(engine: Any, recorded: Written, ranges: int) -> None:
    for number in range(ranges):
        recorded.tick(number)
        with engine.mstx_range(f"range {number % 3}", **({"number": number} if number % 2 else {})):
            recorded.tick(7)
    engine.rotate()
    bank = recorded.banks[0]

    texts, planes, attributes, *said = engine.encode_bank(bank.place)
    assert into(engine, bank.place, at=13) == (planes + attributes, (*said[:2], tuple(said[2])))
    assert engine.bank_texts(bank.place) == texts


def test_of_a_damaged_bank_the_rest_is_encoded_into_room(engine: Any, recorded: Written) -> None:
    busy(engine, recorded, seed=3)
    engine.rotate()
    bank = recorded.banks[0]
    first = recorded.layout.bank_at(bank.place) + livefile.BANK_HEADER_BYTES
    recorded.view[first + 24 * 5 + 3] ^= 1
    recorded.view[first + 24 * 40 + 20] ^= 64

    encoded = segment.encode_bank(recorded.banks[0].raw, bank.text, bank.salt)
    found, said = into(engine, bank.place, at=1, damaged=2100 - encoded.n - encoded.m)
    assert found == encoded.planes + encoded.attributes
    assert said == (encoded.n, encoded.m, tuple(encoded.extent))
    assert 2000 < encoded.n + encoded.m < 2100


@pytest.mark.parametrize("at", [-1, 100, 1 << 40])
def test_room_that_is_too_small_is_refused(engine: Any, recorded: Written, at: int) -> None:
    busy(engine, recorded, seed=1)
    engine.rotate()

    with pytest.raises(ValueError, match="no room"):
        engine.encode_into(recorded.banks[0].place, bytearray(1000), at)


def test_encode_leaves_out_what_is_torn(engine: Any, recorded: Written) -> None:
    busy(engine, recorded, seed=2)
    engine.rotate()
    bank = recorded.banks[0]
    raw = bytearray(bank.raw)
    raw[24 * 5 + 3] ^= 1
    raw[24 * 9 + 20] ^= 64

    encoded = engine.encode_left(bytes(raw), bank.text, bank.salt)
    assert encoded == tuple(segment.encode_bank(bytes(raw), bank.text, bank.salt))
    assert encoded[3] == 1199


@pytest.mark.parametrize("raw", [b"", bytes(24), b"\xff" * 240, b"\x01" * 25])
def test_encode_takes_any_bytes(engine: Any, raw: bytes) -> None:
    if len(raw) % 24:
        raw = raw[: len(raw) // 24 * 24]

    assert engine.encode_left(raw, b"", 5) == tuple(segment.encode_bank(raw, b"", 5))


def test_wait_sleeps_until_woken_or_until_time_is_up(engine: Any) -> None:
    engine.wait(0)
    engine.wake()
    engine.wake()

    assert engine.wait(10) is True
    assert engine.wait(0.001) is False


def test_a_full_bank_wakes_the_sealer(engine: Any, small: Written) -> None:
    engine.wait(0)
    fill(engine, small)

    assert engine.wait(10) is True


def test_wait_is_woken_from_another_thread(engine: Any) -> None:
    engine.wait(0)
    woken: list[bool] = []
    sleeper = threading.Thread(target=lambda: woken.append(engine.wait(60)))
    sleeper.start()
    engine.wake()
    sleeper.join(30)

    assert woken == [True]


def test_who_waits_for_records_is_woken_by_the_first_one(engine: Any, small: Written) -> None:
    """A heartbeat sees it: nothing is called at a record."""
    engine.start_heartbeat(0.05)
    with engine.mstx_range("before"):
        pass
    engine.wait(0)
    woken: list[bool] = []
    sleeper = threading.Thread(target=lambda: woken.append(engine.wait_for_records(60 if engine.NATIVE else 0.6)))
    sleeper.start()
    sleeper.join(0.15)
    was_asleep = sleeper.is_alive()
    with engine.mstx_range("first"):
        pass
    sleeper.join(30)
    engine.stop_heartbeat()

    assert (was_asleep, woken) == (True, [engine.NATIVE])
    assert engine.wait_for_records(0.001) is False


def test_open_ranges_leave_slots_to_stages(engine: Any, recorded: Written) -> None:
    """Else a death inside of a stage would be one inside of nothing."""
    with ExitStack() as stack:
        for number in range(300):
            stack.enter_context(engine.mstx_range(f"request {number}"))
        stack.enter_context(engine.stage("actor_update"))
        stack.enter_context(engine.mstx_range("x"))
        opened = [found.name for found in recorded.open]

    assert sorted(opened) == sorted(["actor_update", *(f"request {number}" for number in range(240))])
    assert engine.counters()["slots_overflowed"] == 61
    assert engine.counters()["open"] == 0


def test_slots_of_what_has_ended_are_free_for_others(engine: Any, small: Written) -> None:
    for number in range(50):
        with engine.mstx_range(f"name {number % 20}"), engine.mstx_range(f"inner {number % 20}"):
            pass
        while engine.full_bank() >= 0:
            engine.release_bank(engine.full_bank())

    assert engine.counters()["slots_overflowed"] == 0


def test_counters_are_those_of_the_header(engine: Any, small: Written) -> None:
    while engine.counters()["dropped"] == 0:
        with engine.mstx_range("filler"):
            pass
    engine.count_fault()
    engine.count_fault()

    header = livefile.read_counters(small.view)
    counters = engine.counters()
    assert (header["dropped"], header["faults"]) == (1, 2)
    assert {key: header[key] for key in counters if key in header} == {
        key: value for key, value in counters.items() if key in header
    }
    assert set(counters) == {
        "dropped", "slots_overflowed", "attributes_lost", "names_capped", "texts_cut", "faults", "coalesced",
        "summaries_lost", "sites", "open",
    }  # fmt: skip


def test_detach_lets_go_of_the_buffer(engine: Any) -> None:
    written = Written(engine)
    with engine.mstx_range("x"):
        pass
    with engine.mstx_range("x"):
        engine.detach()
    buffer = written.view.obj
    written.view.release()
    buffer.clear()  # refused while anybody still looks at it

    assert len(buffer) == 0
    assert not engine.recording()


def test_recording_may_stop_and_begin_again_while_a_long_text_of_an_end_is_cut(engine: Any) -> None:
    """The text is cut in Python, where another thread may come to run."""
    program = """
        from mstxkit.host import names

        def cut(text):
            if len(text) > 4096:
                engine.detach()
                if is_attached_anew:
                    second.append(Written(engine))
                    held.__enter__()
            return names.utf8(text)

        held, second = engine.mstx_range("held"), []
        engine.set_hooks(names.describe_site, cut, faults.note_fault, None)
        for is_attached_anew in (False, True):
            Written(engine)
            with engine.mstx_range("x", text="x" * 5000):
                pass
        result = [[found.name for found in second[0].open], second[0].names]
        """

    assert run_fresh(engine, program) == [["held"], []]


def test_detach_twice_is_nothing(engine: Any) -> None:
    engine.detach()
    engine.detach()

    assert engine.counters()["open"] == 0
