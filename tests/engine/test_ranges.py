"""A range from begin to end: rules 1 to 5 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
from builders.written_banks import NONCE, Written

from mstxkit.store import livefile


def test_nested_ranges_have_their_times_and_depths(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("outer"):
        recorded.tick(10)
        with engine.mstx_range("inner"):
            recorded.tick(5)
        recorded.tick(1)

    inner, outer = recorded.ranges
    assert (inner.name, inner.depth, inner.start, inner.duration) == ("inner", 1, 1_000_010, 5)
    assert (outer.name, outer.depth, outer.start, outer.duration) == ("outer", 0, 1_000_000, 16)
    assert inner.track == outer.track


@pytest.mark.parametrize("times", [1, 2, 3, 50])
def test_a_range_is_recorded_each_time_it_is_passed(engine: Any, recorded: Written, times: int) -> None:
    for _ in range(times):
        with engine.mstx_range("x"):
            recorded.tick(3)
            with engine.mstx_range("y"):
                recorded.tick(2)

    assert recorded.names == ["y", "x"] * times
    assert {(found.depth, found.duration) for found in recorded.ranges} == {(0, 5), (1, 2)}
    assert recorded.open == []


def test_an_open_range_is_in_a_slot_and_leaves_it(engine: Any, recorded: Written) -> None:
    for _ in range(3):
        with engine.mstx_range("outer"), engine.mstx_range("inner"):
            inside = [(found.name, found.depth, found.start, found.thread) for found in recorded.open]

    thread = threading.get_native_id()
    assert inside == [("outer", 0, 1_000_000, thread), ("inner", 1, 1_000_000, thread)]
    assert recorded.open == []
    assert engine.counters()["open"] == 0


def test_leaving_by_generator_exit_is_no_error(engine: Any, recorded: Written) -> None:
    def generator() -> Any:
        with engine.mstx_range("in a generator"):
            yield

    running = generator()
    next(running)
    running.close()

    assert recorded.one("in a generator").error is False


@pytest.mark.parametrize("end", [StopIteration, StopAsyncIteration])
def test_the_end_of_an_iterator_is_no_error(engine: Any, recorded: Written, end: type[Exception]) -> None:
    with pytest.raises(end), engine.mstx_range("next"):
        raise end

    assert recorded.one("next").error is False


def test_an_async_with_is_the_same_range(engine: Any, recorded: Written) -> None:
    async def main() -> None:
        async with engine.mstx_range("x", size=3) as entered:
            entered.set(more=4)
            recorded.tick(2)

    asyncio.run(main())

    assert recorded.one("x").duration == 2
    assert recorded.one("x").attributes == {"size": 3, "more": 4}


@pytest.mark.parametrize("is_on", [True, False])
def test_an_exit_stack_enters_and_leaves_ranges(engine: Any, recorded: Written, is_on: bool) -> None:
    engine.set_recording(is_on)
    for _ in range(3):
        with ExitStack() as stack:
            stack.enter_context(engine.mstx_range("first"))
            stack.enter_context(engine.mstx_range("second", n=1))

    assert recorded.names == ["second", "first"] * 3 * is_on


def test_an_exception_through_an_exit_stack_is_an_error(engine: Any, recorded: Written) -> None:
    with pytest.raises(ValueError), ExitStack() as stack:
        stack.enter_context(engine.mstx_range("x"))
        raise ValueError

    assert recorded.one("x").error


def test_a_cancelled_task_leaves_an_async_exit_stack_in_reverse_order(engine: Any, recorded: Written) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(engine.mstx_range("outer"))
            await stack.enter_async_context(engine.mstx_range("inner"))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())

    assert [(found.name, found.depth, found.error) for found in recorded.ranges] == [
        ("inner", 1, True), ("outer", 0, True)
    ]  # fmt: skip


def test_a_range_off_at_its_begin_is_never_recorded(engine: Any, recorded: Written) -> None:
    engine.set_recording(False)
    with engine.mstx_range("plain"), engine.mstx_range("full", n=1), engine.stage("stage"):
        engine.set_recording(True)

    assert recorded.ranges == []
    assert recorded.open == []
    assert engine.counters()["faults"] == 0


def test_a_range_made_while_off_and_entered_while_on_is_recorded(engine: Any, recorded: Written) -> None:
    engine.set_recording(False)
    kept, full = engine.mstx_range("kept"), engine.mstx_range("full", n=1)
    engine.set_recording(True)
    for _ in range(2):
        with kept, full:
            recorded.tick(1)

    assert recorded.names == ["full", "kept"] * 2


def test_two_tasks_share_a_range_made_while_off(engine: Any, recorded: Written) -> None:
    """Each leaves its own entry, in whatever order."""

    async def work(number: int, order: list[asyncio.Event]) -> None:
        with shared:
            order[number].set()
            await order[2 + number].wait()
            recorded.tick(10)

    async def main() -> None:
        order = [asyncio.Event() for _ in range(4)]
        tasks = [asyncio.ensure_future(work(number, order)) for number in (0, 1)]
        await order[1].wait()
        order[2].set()
        await tasks[0]
        order[3].set()
        await tasks[1]

    engine.set_recording(False)
    shared = engine.mstx_range("shared")
    engine.set_recording(True)
    asyncio.run(main())

    assert sorted(found.duration for found in recorded.ranges) == [10, 20]
    assert recorded.open == []


def test_many_ranges_inside_one_of_an_earlier_file_do_not_use_up_the_slots(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("of the earlier file"):
        following = Written(engine, slot_count=8)
        for step in range(50):
            engine.step(step)
            with engine.mstx_range("a"), engine.mstx_range("b"):
                pass

    assert engine.counters()["slots_overflowed"] == 0
    assert len(following.ranges) == 100


def test_a_range_ended_out_of_order_leaves_the_others(engine: Any, recorded: Written) -> None:
    a, b, c = (engine.mstx_range(name) for name in "abc")
    for entered in (a, b, c):
        entered.__enter__()
    b.__exit__(None, None, None)
    still_open = [(found.name, found.depth) for found in recorded.open]
    a.__exit__(None, None, None)
    with engine.mstx_range("d"):
        pass
    c.__exit__(None, None, None)
    with engine.mstx_range("e"):
        pass

    assert still_open == [("a", 0), ("c", 2)]
    assert [(found.name, found.depth) for found in recorded.ranges] == [
        ("b", 1),
        ("a", 0),
        ("d", 1),
        ("c", 2),
        ("e", 0),
    ]
    assert recorded.open == []


@pytest.mark.parametrize(
    ("ticks", "written"),
    [
        ((1 << 40) - 1, (1 << 40) - 1),
        (1 << 40, 1 << 40),
        ((1 << 40) + 5000, ((1 << 40) + 5000) // 4096 * 4096),
        (1 << 47, 1 << 47),
        ((1 << 52) - 1, (1 << 52) - 4096),
        (1 << 52, (1 << 52) - 4096),
        (1 << 60, (1 << 52) - 4096),
    ],
)
@pytest.mark.parametrize("passed_before", [0, 3])
def test_long_ranges_are_exact_to_their_scale(
    engine: Any, recorded: Written, ticks: int, written: int, passed_before: int
) -> None:
    for _ in range(passed_before):
        with engine.mstx_range("long"):
            pass
    with engine.mstx_range("long"):
        recorded.tick(ticks)

    assert recorded.ranges[-1].duration == written
    assert recorded.ranges[-1].depth == 0


def test_an_end_beyond_what_a_bank_can_say_goes_into_a_new_bank(engine: Any, recorded: Written) -> None:
    with engine.stage("s"), engine.mstx_range("x"):
        pass
    recorded.tick(1 << 48)
    with engine.stage("s"), engine.mstx_range("x"):
        recorded.tick(3)

    assert [(found.name, found.stage, found.duration) for found in recorded.ranges] == [
        ("x", "s", 0), ("s", "s", 0), ("x", "s", 3), ("s", "s", 3)
    ]  # fmt: skip
    assert len(recorded.banks) == 2


@pytest.mark.parametrize("passed_before", [0, 3])
def test_a_clock_that_goes_back_never_raises(engine: Any, recorded: Written, passed_before: int) -> None:
    for _ in range(passed_before):
        with engine.mstx_range("x"):
            pass
    with engine.mstx_range("x"):
        recorded.tick(-500_000)
    with engine.mstx_range("x"):
        pass

    assert engine.counters()["open"] == 0


def test_set_reaches_the_innermost_entry_that_is_open(engine: Any, recorded: Written) -> None:
    for _ in range(2):
        with engine.mstx_range("x") as entered:
            entered.set(a=1)
            with entered:
                entered.set(b=2)
            entered.set(c=3)
        entered.set(d=4)

    assert [found.attributes for found in recorded.ranges] == [{"b": 2}, {"a": 1, "c": 3}] * 2


def test_a_range_called_with_a_function_decorates_it(engine: Any) -> None:
    def function() -> None: ...

    plain = engine.mstx_range("plain")(function)
    full = engine.mstx_range("full", stage="s", domain="d", stream=7, size=3)(function)

    assert plain == (("plain", None, "default", None, None), function)
    assert full == (("full", "s", "d", 7, {"size": 3}), function)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_range_says_what_it_is(engine: Any, recorded: Written, is_on: bool) -> None:
    engine.set_recording(is_on)
    plain, full = engine.mstx_range("plain"), engine.mstx_range("full", stage="s", domain="d")

    assert (plain.name, plain.stage, plain.domain) == ("plain", None, "default")
    assert (full.name, full.stage, full.domain) == ("full", "s", "d")
    assert isinstance(plain, engine.Range)
    assert isinstance(full, engine.Range)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_name_may_be_given_by_keyword(engine: Any, recorded: Written, is_on: bool) -> None:
    engine.set_recording(is_on)
    with engine.mstx_range(name="x", n=1):
        pass
    with pytest.raises(TypeError):
        engine.mstx_range()

    assert recorded.names == ["x"] * is_on


def test_a_nonsense_argument_to_a_range_is_a_type_error(engine: Any) -> None:
    with pytest.raises(TypeError):
        engine.mstx_range("x")(3)


def test_a_range_that_somebody_holds_is_not_handed_out_again(engine: Any, recorded: Written) -> None:
    held = []
    for number in range(40):
        with engine.mstx_range("x") as entered:
            held.append(entered)
            entered.set(number=number)
    with engine.mstx_range("x"):
        held[0].set(is_lost=True)

    assert len({id(entered) for entered in held}) == 40
    assert [found.attributes for found in recorded.ranges] == [*({"number": number} for number in range(40)), {}]


def test_what_is_set_in_one_entry_is_not_in_the_next(engine: Any, recorded: Written) -> None:
    again = engine.mstx_range("again", given=1)
    with again:
        again.set(first=True)
    with again:
        pass

    assert [found.attributes for found in recorded.ranges] == [{"given": 1, "first": True}, {"given": 1}]


def test_an_inner_entry_has_all_that_was_given(engine: Any, recorded: Written) -> None:
    given = {f"key{number}": number for number in range(10)}
    twice = engine.mstx_range("twice", **given)
    with twice:
        twice.set(outer=True)
        with twice:
            pass

    assert [found.attributes for found in recorded.ranges] == [given, {**given, "outer": True}]


def test_the_file_carries_the_slot_mark_that_a_reader_asks_for(engine: Any, recorded: Written) -> None:
    for _ in range(3):
        with engine.mstx_range("x"):
            slots = livefile.read_slots(recorded.view, livefile.read_header(recorded.view))

    assert livefile.read_header(recorded.view).nonce == NONCE
    assert len(slots) == 1


def test_a_range_can_be_referred_to_weakly(engine: Any, recorded: Written) -> None:
    """Also one that is made anew of what another one was."""
    for number in range(3):
        gone: list[object] = []
        made = engine.mstx_range("x", n=number)
        reference, other = weakref.ref(made, gone.append), weakref.ref(made)
        with made:
            assert reference() is made is other()
        del made
        gc.collect()
        assert (reference(), other(), gone) == (None, None, [reference])
