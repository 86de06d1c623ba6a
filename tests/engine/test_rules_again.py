"""What begins again at a place where it was before is written as it was the first time, on both engines.

Each test does what is odd at once, or only after it has warmed its places.
"""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any, Callable, Iterator

import pytest
from builders.forked_child import in_child
from builders.threads import elsewhere
from builders.written_banks import Written, read_bank

TIMES = 3

# (engine) -> a range of its own at each call, by kind.
MAKERS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda engine: engine.mstx_range("x"),
    "attributes": lambda engine: engine.mstx_range("x", n=1, who="me"),
    "stage": lambda engine: engine.stage("s"),
    "stage with attributes": lambda engine: engine.stage("s", n=1),
    "timed": lambda engine: engine.timed(engine.intern("x"), None, {"n": 1}),
    "timed stage": lambda engine: engine.timed(engine.intern("s", "s")),
}


class Maker:
    """Makes ranges of one kind, at a place where none has been or some have."""

    def __init__(self, engine: Any, recorded: Written, kind: str, times: int) -> None:
        self._engine, self._recorded, self._kind, self._times = engine, recorded, kind, times
        self.stage = "s" if "stage" in kind else None
        warm(self, times)

    def __call__(self) -> Any:
        return MAKERS[self._kind](self._engine)

    @property
    def ranges(self) -> list[Any]:
        """Those that have ended since."""
        return self._recorded.ranges[self._times :]


@pytest.fixture(params=[(kind, times) for kind in MAKERS for times in (0, TIMES)], ids=str)
def make(request: pytest.FixtureRequest, engine: Any, recorded: Written) -> Maker:
    return Maker(engine, recorded, *request.param)


def warm(made: Callable[[], Any], times: int = TIMES) -> None:
    for _ in range(times):
        with made():
            pass


# ---- what ends it ----


@pytest.mark.parametrize("odd", [[1], 1 << 70, object(), {"a": 1}], ids=["list", "large", "object", "dict"])
def test_an_odd_value_after_plain_ones_is_no_failure_of_the_range(engine: Any, recorded: Written, odd: Any) -> None:
    for _ in range(TIMES):
        with engine.mstx_range("x", k=None, new="text", odd=odd):
            pass
        with engine.stage("s", n=1, odd=odd):
            pass

    assert [found.error for found in recorded.ranges] == [False] * 2 * TIMES
    assert [found.attributes["odd"] for found in recorded.ranges] == [type(odd).__name__] * 2 * TIMES


def test_no_room_for_a_text_is_no_failure_of_the_range(engine: Any, small: Written) -> None:
    found = []
    for number in range(200):
        with engine.mstx_range("x", n=number, text=f"text {number} " * 9):
            pass
        with engine.stage("s", n=number, text=f"{number} of a stage " * 9):
            pass
        while engine.full_bank() >= 0:
            (full,) = [bank for bank in small.banks if bank.place == engine.full_bank()]
            found += read_bank(full)
            engine.release_bank(full.place)

    assert [one.error for one in found] == [False] * len(found)
    assert [one.attributes["n"] for one in found] == [number // 2 for number in range(len(found))]
    assert len(found) > 300
    assert engine.counters()["attributes_lost"] == engine.counters()["dropped"] == 0


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_what_raises_has_failed_and_its_exception_goes_on(
    engine: Any, make: Maker, recorded: Written, kind: type[BaseException]
) -> None:
    for _ in range(2):
        raised = kind("mine")
        with pytest.raises(kind) as caught, make():
            raise raised
        assert caught.value is raised and raised.__context__ is None
        assert engine.current_stage() is None
    with make():
        pass

    assert [found.error for found in make.ranges] == [True, True, False]
    assert recorded.open == []


def test_one_that_ends_on_another_thread_is_over_everywhere(engine: Any, recorded: Written, make: Maker) -> None:
    entered = make()
    entered.__enter__()
    elsewhere(entered.__exit__, None, None, None)
    stage = engine.current_stage()
    engine.carry(0)  # what is copied from this context is not told
    with make():
        pass

    assert stage is None
    assert [(found.depth, found.error) for found in make.ranges] == [(0, False)] * 2
    assert {found.track for found in recorded.ranges} == {recorded.ranges[0].track}
    assert recorded.open == []


def test_one_that_ends_out_of_order_leaves_the_other(engine: Any, recorded: Written, make: Maker) -> None:
    for _ in range(TIMES):
        first, second = make(), engine.stage("second")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert engine.current_stage() == "second"
        second.__exit__(None, None, None)
        assert engine.current_stage() is None

    assert [found.error for found in make.ranges] == [False] * 2 * TIMES
    assert recorded.open == []


def test_a_stage_that_ends_first_is_not_that_of_what_begins_in_what_is_left(engine: Any, recorded: Written) -> None:
    for _ in range(TIMES):
        stage, inner = engine.stage("s"), engine.mstx_range("inner", n=1)
        stage.__enter__()
        inner.__enter__()
        stage.__exit__(None, None, None)
        assert engine.current_stage() is None
        with engine.mstx_range("later", n=1):
            pass
        inner.__exit__(None, None, None)

    found = [(found.name, found.stage, found.depth) for found in recorded.ranges if found.name != "s"]
    assert found == [("later", None, 1), ("inner", "s", 1)] * TIMES


def test_one_that_ends_in_another_context_is_over(engine: Any, recorded: Written, make: Maker) -> None:
    async def ends(entered: Any) -> None:
        entered.__exit__(None, None, None)

    async def main() -> list[Any]:
        entered = make()
        entered.__enter__()
        await asyncio.ensure_future(ends(entered))
        with make():
            inside = engine.current_stage()
        return [engine.current_stage(), inside]

    for _ in range(TIMES):
        after, inside = asyncio.run(main())
        assert after is None
        assert inside in (None, "s")
    assert engine.current_stage() is None
    assert [found.error for found in recorded.ranges] == [False] * len(recorded.ranges)
    assert recorded.open == []


def test_a_task_that_is_cancelled_in_it_leaves_it(engine: Any, recorded: Written, make: Maker) -> None:
    async def waits() -> None:
        with make():
            await asyncio.sleep(60)

    async def main() -> Any:
        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return engine.current_stage()

    for _ in range(TIMES):
        assert asyncio.run(main()) is None
    assert [found.error for found in make.ranges] == [True] * TIMES


def test_tasks_created_after_a_stage_are_outside_of_it(engine: Any, recorded: Written, make: Maker) -> None:
    async def asks() -> Any:
        return engine.current_stage()

    async def main() -> list[Any]:
        with make():
            inside = asyncio.ensure_future(asks())
        outside = asyncio.ensure_future(asks())
        return [await inside, await outside]

    for _ in range(TIMES):
        inside, outside = asyncio.run(main())
        assert inside == ("s" if "s" in recorded.names else None)
        assert outside is None


def test_one_thrown_away_while_open_is_ended_and_left(engine: Any, recorded: Written, make: Maker) -> None:
    lost = make()
    lost.__enter__()
    del lost
    gc.collect()
    with engine.mstx_range("after"):
        stage = engine.current_stage()

    assert stage is None
    assert [(found.error, found.depth) for found in make.ranges] == [(True, 0), (False, 0)]
    assert recorded.open == []


# ---- the same object again ----


def test_one_object_may_be_inside_of_itself(engine: Any, recorded: Written, make: Maker) -> None:
    for _ in range(TIMES):
        entered = make()
        with entered:
            recorded.tick(1)
            with entered, entered:
                recorded.tick(2)
        with entered:
            recorded.tick(4)

    assert [(found.depth, found.duration) for found in make.ranges] == [(2, 2), (1, 2), (0, 3), (0, 4)] * TIMES
    assert engine.current_stage() is None
    assert recorded.open == []


def test_one_that_somebody_holds_is_nobody_elses(engine: Any, recorded: Written) -> None:
    for _ in range(TIMES):
        held = [engine.mstx_range("x", n=number) for number in range(5)]
        for one in held:
            with one:
                pass
        others = [engine.mstx_range("x", n=number + 10) for number in range(5)]
        for one in (*held, *others):
            with one:
                pass

    numbers = [found.attributes["n"] for found in recorded.ranges]
    assert numbers == [*range(5), *range(5), *range(10, 15)] * TIMES


def test_recursion_has_a_depth_of_its_own_each(engine: Any, recorded: Written, make: Maker) -> None:
    def inside(more: int) -> None:
        with make():
            recorded.tick(1)
            if more:
                inside(more - 1)

    for _ in range(2):
        inside(300)

    assert [found.duration for found in make.ranges] == 2 * [*range(1, 302)]
    assert [found.depth for found in make.ranges] == 2 * [min(level, 255) for level in range(300, -1, -1)]


def test_each_exit_without_an_entry_is_one_fault(engine: Any, recorded: Written, make: Maker) -> None:
    faults = engine.counters()["faults"]
    once = make()
    with once:
        pass
    once.__exit__(None, None, None)
    once.__exit__(ValueError, ValueError(), None)
    make().__exit__(None, None, None)
    with once:
        pass

    assert engine.counters()["faults"] == faults + 3
    assert len(make.ranges) == 2


# ---- attributes ----


@pytest.mark.parametrize("count", [*range(1, 10), 12, 64])
def test_any_number_of_attributes(engine: Any, recorded: Written, count: int) -> None:
    values = {f"k{number}": number for number in range(count)}
    for _ in range(TIMES):
        with engine.mstx_range("x", **values), engine.stage("s", **values):
            pass
        for _ in engine.driven(engine.intern("body"), iter_once(), None, values):
            pass
        engine.mark("m", **values)

    assert [found.attributes for found in recorded.ranges + recorded.marks] == [values] * 4 * TIMES


def iter_once() -> Iterator[None]:
    yield


VALUES: list[Any] = [
    0, -1, (1 << 63) - 1, -(1 << 63), 1 << 63, -(1 << 63) - 1, 1 << 200, True, False, None, 0.0, -0.0, float("inf"),
    float("nan"), 5e-324, "", "text", "ключ", "\ud800", "a\0b", "x" * 5000, b"bytes", 1j,
]  # fmt: skip


def test_a_value_of_any_kind_is_written_as_the_other_engine_does(both: list[Any]) -> None:
    native, twin = (all_values(engine) for engine in both)

    assert repr(native) == repr(twin)


def all_values(engine: Any) -> list[Any]:
    to = Written(engine, bank_count=16)
    for _ in range(TIMES):
        for value in VALUES:
            with engine.mstx_range("x", before=1, value=value, after="z"), engine.stage("s", value=value):
                pass
            for _ in engine.driven(engine.intern("body"), iter_once(), None, {"value": value}):
                pass
    return [(found.name, found.error, found.attributes) for found in to.ranges]


@pytest.mark.parametrize("change", ["more", "fewer", "others", "none"])
def test_attributes_that_change_while_it_is_open_are_those_at_its_end(
    engine: Any, recorded: Written, change: str
) -> None:
    changed = {"more": {"a": 1, "b": 2}, "fewer": {"a": 1}, "others": {"z": "z"}, "none": {}}[change]
    for _ in range(TIMES):
        for way in ("timed", "driven"):
            values: dict[str, Any] = {"a": 1, "c": 3} if change == "fewer" else {"a": 1}
            site = engine.intern(way)
            if way == "timed":
                with engine.timed(site, None, values):
                    replace(values, changed)
            else:
                for _ in engine.driven(site, iter_once(), None, values):
                    replace(values, changed)

    assert [found.attributes for found in recorded.ranges] == [changed] * 2 * TIMES
    assert [found.error for found in recorded.ranges] == [False] * 2 * TIMES


def replace(values: dict[str, Any], others: dict[str, Any]) -> None:
    values.clear()
    values.update(others)


# ---- what happens in the middle ----


def test_a_rotation_in_the_middle_loses_nothing(engine: Any, recorded: Written, make: Maker) -> None:
    with make():
        pass
    with make():
        recorded.tick(10)
        engine.rotate()
        (opened,) = recorded.open
        recorded.tick(5)

    (found,) = [found for bank in recorded.banks[1:] for found in read_bank(bank)]
    assert (opened.name, opened.stage) == (found.name, found.stage)
    assert (found.start, found.duration) == (1_000_000, 15)
    assert (found.error, found.attributes) == (False, recorded.ranges[0].attributes)


def test_a_rotation_in_the_middle_of_the_end_is_no_failure(
    recorded: Written, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine.NATIVE:
        pytest.skip("the C engine ends a range under the GIL, in one piece")
    from mstxkit.engine.twin import banks

    values = {"n": 1, "text": "t"}
    for make in (lambda: engine.mstx_range("x", **values), lambda: engine.stage("s", **values)):
        warm(make)
        entered = make()
        entered.__enter__()
        with monkeypatch.context() as patched:
            patched.setattr(banks, "now", lambda now=banks.now: engine.rotate() and now())
            entered.__exit__(None, None, None)

    assert [found.error for found in recorded.ranges] == [False] * 2 * (TIMES + 1)
    assert [found.attributes for found in recorded.ranges] == [values] * 2 * (TIMES + 1)


def test_a_step_in_the_middle_is_that_of_the_next(engine: Any, recorded: Written, make: Maker) -> None:
    engine.step(1)
    with make():
        engine.step(2)
    with make():
        pass

    assert [found.step for found in make.ranges] == [1, 2]


def test_switched_off_in_the_middle_it_is_written_all_the_same(engine: Any, recorded: Written, make: Maker) -> None:
    with make():
        recorded.tick(7)
        engine.set_recording(False)
    with make():
        pass
    engine.set_recording(True)
    with make():
        pass

    assert [found.duration for found in make.ranges] == [7, 0]
    assert engine.current_stage() is None
    assert recorded.open == []


def test_detached_in_the_middle_it_writes_nothing(engine: Any, recorded: Written, make: Maker) -> None:
    with make(), make():
        engine.detach()
        before = bytes(recorded.view)
    with make():
        again = Written(engine)
    with make():
        pass

    assert bytes(recorded.view) == before
    assert len(again.ranges) == 1
    assert engine.current_stage() is None
    assert again.open == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_in_the_middle_is_the_parents(engine: Any, recorded: Written, make: Maker) -> None:
    entered = make()
    entered.__enter__()

    def child() -> bool:
        before = bytes(recorded.view)
        entered.__exit__(None, None, None)
        own = Written(engine)
        warm(make)
        whose = [(found.stage, found.thread) for found in own.ranges]
        is_own = bytes(recorded.view) == before and whose == [(make.stage, os.getpid())] * TIMES and own.open == []
        return is_own and engine.current_stage() is None

    silent = in_child(child)
    entered.__exit__(None, None, None)

    assert silent
    assert len(make.ranges) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_body_is_the_parents(engine: Any, recorded: Written) -> None:
    def body() -> Iterator[bool]:
        yield in_child(lambda: bytes(recorded.view) == at_begin and not engine.recording())
        yield True

    site = engine.intern("body")
    for _ in range(TIMES):
        for _ in engine.driven(site, iter_once(), None, {"n": 1}):
            pass
    suspended = iter(engine.driven(site, iter_once(), None, {"n": 1}))
    next(suspended)
    running = engine.driven(site, body(), None, {"n": 1})
    at_begin = b""

    def ends_in_child() -> bool:
        before = bytes(recorded.view)
        list(suspended)
        return bytes(recorded.view) == before

    ended_silently = in_child(ends_in_child)
    list(running)
    list(suspended)

    assert ended_silently
    assert [found.error for found in recorded.ranges] == [False] * (TIMES + 2)
    assert recorded.open == []


# ---- slots ----


def test_what_is_open_is_in_its_slot_for_who_finds_the_file_after_a_kill(
    engine: Any, recorded: Written, make: Maker
) -> None:
    seen: list[Any] = []

    def body() -> Iterator[None]:
        with make():
            seen.append(recorded.open)
            yield
            seen.append(recorded.open)

    engine.step(5)
    for _ in range(TIMES):
        recorded.tick(100)
        for _ in engine.driven(engine.intern("body"), body(), None, {"n": 1}):
            seen.append(recorded.open)  # parked: open, but of no depth that could be relied on

    name, begun = recorded.ranges[0].name, [found.start for found in recorded.ranges if found.name == "body"]
    for number, opened in enumerate(seen):
        assert {one.name for one in opened} == {"body", name}
        assert {(one.step, one.start) for one in opened} == {(5, begun[number // 3])}
    assert recorded.open == []


def test_what_has_no_slot_is_recorded_all_the_same(engine: Any, small: Written) -> None:
    for _ in range(2):
        with engine.stage("a", n=1), engine.stage("b"), engine.mstx_range("c", n=1), engine.mstx_range("d", n=1):
            assert len(small.open) == 4
            with engine.stage("e", n=1), engine.mstx_range("f", n=1):
                for _ in engine.driven(engine.intern("g"), iter_once()):
                    pass
    names = [found.name for found in small.ranges]

    assert names == ["g", "f", "e", "d", "c", "b", "a"] * 2
    assert engine.counters()["slots_overflowed"] == 6
    assert engine.counters()["open"] == 0


@pytest.mark.parametrize("at_once", [2, 100, 300])
def test_bodies_at_the_same_place_do_not_use_up_slots(engine: Any, recorded: Written, at_once: int) -> None:
    site = engine.intern("body")
    with engine.mstx_range("around"):
        for _ in range(20):
            bodies = [iter(engine.driven(site, iter_once())) for _ in range(at_once)]
            for body in (*bodies, *bodies):
                next(body, None)

        assert [found.name for found in recorded.open] == ["around"]
    for_ranges = recorded.layout.slot_count - recorded.layout.stage_slots
    assert engine.counters()["slots_overflowed"] == 20 * max(at_once + 1 - for_ranges, 0)
    assert {found.depth for found in recorded.ranges if found.name == "body"} == {1}


# ---- bodies ----


def test_a_body_resumed_after_what_is_around_it_moved_is_where_that_is(engine: Any, recorded: Written) -> None:
    def body() -> Iterator[Any]:
        for _ in range(4):
            with engine.mstx_range("inside", n=1):
                stage = engine.current_stage()
            yield stage

    for _ in range(TIMES):
        stage, around = engine.stage("s"), engine.mstx_range("around", n=1)
        stage.__enter__()
        around.__enter__()
        driven = iter(engine.driven(engine.intern("body"), body()))
        stages = [next(driven), next(driven)]
        stage.__exit__(None, None, None)
        stages += [next(driven), next(driven)]
        driven.close()
        around.__exit__(None, None, None)
        assert stages == ["s", "s", None, None]

    inside = [(found.stage, found.depth) for found in recorded.ranges if found.name == "inside"]
    assert inside == [("s", 3), ("s", 3), (None, 2), (None, 2)] * TIMES


def test_a_body_resumed_inside_of_at_step_is_in_that_step(engine: Any, recorded: Written) -> None:
    def body() -> Iterator[Any]:
        for _ in range(4):
            with engine.mstx_range("inside", n=1):
                pass
            yield

    engine.step(1)
    for _ in range(TIMES):
        driven = iter(engine.driven(engine.intern("body"), body()))
        next(driven), next(driven)
        with engine.at_step(7):
            next(driven)
        next(driven)
        driven.close()

    assert [found.step for found in recorded.ranges if found.name == "inside"] == [1, 1, 7, 1] * TIMES


def test_a_body_whose_await_switches_tasks_is_off_its_track(engine: Any, recorded: Written) -> None:
    site = engine.intern("body")

    async def body(ticks: int) -> int:
        for _ in range(3):
            recorded.tick(ticks)
            await asyncio.sleep(0)
        return ticks

    async def main() -> list[int]:
        with engine.mstx_range("around"):
            return [await engine.driven(site, body(5))] + list(
                await asyncio.gather(*[awaits(engine.driven(site, body(ticks))) for ticks in (10, 100)])
            )

    async def awaits(driven: Any) -> int:
        with engine.mstx_range("task"):
            return await driven  # type: ignore[no-any-return]

    for _ in range(TIMES):
        assert asyncio.run(main()) == [5, 10, 100]

    assert sorted(found.busy for found in recorded.ranges if found.name == "body") == sorted([15, 30, 300] * TIMES)
    assert engine.counters()["open"] == 0


def as_wrapped(driven: Any) -> Any:
    return (yield from driven)


@pytest.mark.parametrize("ending", ["throw", "caught", "close", "drop", "raise"])
def test_each_ending_of_a_body(engine: Any, recorded: Written, ending: str) -> None:
    def body() -> Iterator[int]:
        try:
            yield 1
        except KeyError:
            if ending != "caught":
                raise
        if ending == "raise":
            raise ValueError

    for _ in range(TIMES):
        driven = as_wrapped(engine.driven(engine.intern("body"), body(), None, {"n": 1}))
        next(driven)
        if ending == "throw":
            with pytest.raises(KeyError):
                driven.throw(KeyError())
        elif ending == "caught":
            with pytest.raises(StopIteration):
                driven.throw(KeyError())
        elif ending == "close":
            driven.close()
        elif ending == "raise":
            with pytest.raises(ValueError):
                next(driven)
        del driven

    is_error = ending in ("throw", "raise")
    assert [(found.error, found.attributes) for found in recorded.ranges] == [(is_error, {"n": 1})] * TIMES
    assert recorded.open == []


def test_what_is_counted_of_a_site_outlasts_its_file(engine: Any, recorded: Written) -> None:
    site = engine.intern("counted at detach")
    for _ in range(10):
        with engine.mstx_range("counted at detach", n=1):
            pass
    engine.detach()

    assert {found.name: calls for found, calls, _, _ in engine.site_costs()}[site.name] == 10
