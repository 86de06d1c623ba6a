"""The hooks of `set_watch`: with what and when they are told of a range, whatever its life, on both engines."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, AsyncIterator, Iterator

import pytest
from builders.watcher import Mine, Watcher, generator, marked, once
from builders.written_banks import Written

from mstxkit import mstx_timer
from mstxkit.engine.choose import engine as chosen

# ---- may it move ----


async def nothing() -> None:
    """What is awaited."""


@pytest.mark.parametrize("kind", ["stage", "marked"])
def test_async_with_may_move_and_with_may_not(engine: Any, recorded: Written, watcher: Watcher, kind: str) -> None:
    name = f"{kind} async"
    if kind == "marked":
        marked(engine, name)
    make = engine.stage if kind == "stage" else engine.mstx_range

    async def body() -> None:
        async with make(name):
            await asyncio.sleep(0)
        with make(name):
            pass

    asyncio.run(body())

    assert watcher.entries == [(name, True), (name, False)]
    assert watcher.ends == [(name, False)] * 2
    assert recorded.names == [name] * 2


def test_async_with_may_move_also_for_an_object_made_while_nobody_watched(
    engine: Any, recorded: Written, watcher: Watcher
) -> None:
    engine.watch(False)
    marked(engine, "made before")
    with engine.mstx_range("made before") as warm:
        pass
    engine.set_recording(False)
    made_off = engine.mstx_range("made before")
    engine.set_recording(True)
    engine.watch(True)

    async def body() -> None:
        for made in (warm, made_off):
            async with made, made:
                pass

    asyncio.run(body())

    assert watcher.entries == [("made before", True)] * 4
    assert watcher.ends == [("made before", False)] * 4
    assert recorded.names == ["made before"] * 5


def test_async_with_inside_the_same_object_that_began_unwatched(
    engine: Any, recorded: Written, watcher: Watcher
) -> None:
    """Each end is of its own entry: the inner one is told, the outer one is not."""
    engine.watch(False)
    marked(engine, "inside itself")
    for _ in range(3):
        with engine.mstx_range("inside itself"):
            pass

    async def body() -> list[Any]:
        async with same:
            recorded.tick(1)
        return list(watcher.told)

    with engine.mstx_range("inside itself") as same:
        engine.watch(True)
        recorded.tick(5)
        with pytest.raises(StopIteration) as stopped:
            body().send(None)  # on no event loop: in the context that began it

    assert stopped.value.value == [("entered", "inside itself", True), ("left", "inside itself", False)]
    assert watcher.told == stopped.value.value
    assert [found.duration for found in recorded.ranges] == [0, 0, 0, 1, 6]


def test_driven_bodies_may_move_and_are_told_once(engine: Any, recorded: Written, watcher: Watcher) -> None:
    list(engine.driven(engine.intern("driven stage", "d"), generator()))
    list(engine.driven(marked(engine, "driven mark"), generator()))
    asyncio.run(awaited(engine.driven(engine.intern("coroutine", "d"), nothing())))

    names = ["driven stage", "driven mark", "coroutine"]
    assert watcher.told == [told for name in names for told in (("entered", name, True), ("left", name, False))]
    assert recorded.names == names


async def awaited(thing: Any) -> Any:
    return await thing


def test_a_span_may_move_and_is_told_at_its_first_drive_and_at_its_close(engine: Any, watcher: Watcher) -> None:
    span = engine.opened(engine.intern("span", "span"))
    untouched = engine.opened(engine.intern("span", "span"))
    before = list(watcher.told)
    asyncio.run(awaited(span.drive(nothing())))
    driven = list(watcher.told)
    asyncio.run(awaited(span.drive(nothing())))
    span.close(True)
    untouched.close(False)

    assert (before, driven) == ([], [("entered", "span", True)])
    assert watcher.told == [("entered", "span", True), ("left", "span", True)]


def test_decorated_functions_are_told_by_kind() -> None:
    watcher = Watcher(chosen)

    @mstx_timer("sync", stage="decorated")
    def plain() -> None:
        pass

    @mstx_timer("async", stage="decorated")
    async def coroutine() -> None:
        pass

    @mstx_timer("generator", stage="decorated")
    def many() -> Iterator[int]:
        yield from generator()

    @mstx_timer("async generator", stage="decorated")
    async def async_many() -> AsyncIterator[int]:
        yield 1

    async def body() -> None:
        await coroutine()
        async for _ in async_many():
            pass

    watcher.set()
    try:
        plain()
        list(many())
        asyncio.run(body())
    finally:
        watcher.clear()

    assert watcher.entries == [("sync", False), ("generator", True), ("async", True), ("async generator", True)]
    assert watcher.ends == [(name, False) for name, _ in watcher.entries]


# ---- the order of things ----


def listen(engine: Any, told: list[Any]) -> None:
    engine.set_sink(
        0, lambda message, domain: told.append(f"begin {message}") or 1, lambda token, domain: told.append("end")
    )


def test_the_hook_is_told_before_the_sinks_and_after_them(engine: Any, recorded: Written, watcher: Watcher) -> None:
    listen(engine, watcher.told)
    with engine.stage("s"):
        pass

    assert watcher.told == [("entered", "s", False), "begin s", "end", ("left", "s", False)]


@pytest.mark.parametrize("kind", ["with", "driven"])
def test_the_hooks_are_outside_of_the_range(engine: Any, recorded: Written, watcher: Watcher, kind: str) -> None:
    written_at_end: list[list[str]] = []
    watcher.at_entry = lambda: recorded.tick(1_000)
    watcher.at_end = lambda: (recorded.tick(1_000), written_at_end.append(recorded.names), engine.current_stage())

    def body() -> Iterator[int]:
        recorded.tick(7)
        yield 1

    if kind == "driven":
        list(engine.driven(engine.intern("outside", "s"), body()))
    else:
        with engine.mstx_range("outside", stage="s"):
            list(body())

    assert (recorded.one("outside").start, recorded.one("outside").duration) == (1_001_000, 7)
    assert written_at_end == [["outside"]]


def test_at_either_hook_the_stage_is_not_current(engine: Any, recorded: Written, watcher: Watcher) -> None:
    current: list[str | None] = []
    watcher.at_entry = watcher.at_end = lambda: current.append(engine.current_stage())
    with engine.stage("outer"), engine.stage("inner"):
        pass

    assert current == [None, "outer", "outer", None]


def test_a_sink_that_the_hook_sets_sees_the_range_that_begins(engine: Any, watcher: Watcher) -> None:
    watcher.at_entry = lambda: listen(engine, watcher.told)
    watcher.at_end = lambda: engine.clear_sink(0)
    with engine.stage("s"):
        pass
    with engine.mstx_range("afterwards"):
        pass

    assert watcher.told == [("entered", "s", False), "begin s", "end", ("left", "s", False)]


def test_a_sink_that_the_hook_clears_does_not(engine: Any, recorded: Written, watcher: Watcher) -> None:
    listen(engine, watcher.told)
    watcher.at_entry = lambda: engine.clear_sink(0)
    with engine.stage("s"):
        pass

    assert watcher.told == [("entered", "s", False), ("left", "s", False)]
    assert recorded.names == ["s"]


def test_the_hook_may_start_and_stop_the_recorder(engine: Any, recorded: Written, watcher: Watcher) -> None:
    engine.set_recording(False)
    watcher.at_entry = lambda: engine.set_recording(True)
    watcher.at_end = lambda: engine.set_recording(False)
    with engine.stage("s"):
        pass
    with engine.mstx_range("afterwards"):
        pass

    assert recorded.names == ["s"]


def test_the_step_that_the_hook_sets_is_that_of_the_range(engine: Any, recorded: Written, watcher: Watcher) -> None:
    engine.step(3)
    watcher.at_entry = lambda: engine.step(9)
    with engine.stage("s"):
        pass

    assert recorded.one("s").step == 9


def test_a_hook_that_switches_all_off_is_told_of_the_end_all_the_same(engine: Any, watcher: Watcher) -> None:
    watcher.at_entry = lambda: engine.watch(False)
    with engine.stage("s"):
        inside = engine.current_stage()
        on = engine.recording()

    assert (inside, on) == ("s", False)
    assert watcher.told == [("entered", "s", False), ("left", "s", False)]


def test_ranges_of_a_hook_are_recorded_too(engine: Any, recorded: Written, watcher: Watcher) -> None:
    def by_name(name: str) -> None:
        with engine.mstx_range(name):
            pass

    watcher.at_entry = lambda: by_name("of the hook")
    watcher.at_end = lambda: by_name("of the hook at its end")
    with engine.stage("s"):
        pass

    assert [(found.name, found.depth) for found in recorded.ranges] == [
        ("of the hook", 0), ("s", 0), ("of the hook at its end", 0)
    ]  # fmt: skip


# ---- did it fail ----


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
def test_a_body_that_raises_has_failed(engine: Any, recorded: Written, watcher: Watcher, error: Any) -> None:
    with pytest.raises(error), engine.stage("s"):
        raise error

    assert watcher.ends == [("s", True)]
    assert recorded.one("s").error


@pytest.mark.parametrize("error", [GeneratorExit, StopIteration, StopAsyncIteration])
def test_the_end_of_an_iterator_is_no_failure(engine: Any, watcher: Watcher, error: Any) -> None:
    with pytest.raises(error), engine.stage("s"):
        raise error

    assert watcher.ends == [("s", False)]


@pytest.mark.parametrize("kind", ["coroutine", "generator", "throw", "with"])
def test_a_hook_at_the_end_leaves_the_exception_of_the_body_as_it_is(engine: Any, watcher: Watcher, kind: str) -> None:
    """It raises and catches exceptions of its own, and asks for attributes that are not there."""
    site, mine = engine.intern("raising", "raising"), Mine("of the body")

    def busy() -> None:
        with pytest.raises(KeyError):
            raise KeyError
        assert not hasattr(site, "no such attribute")

    async def fails() -> None:
        raise mine

    def generated() -> Iterator[int]:
        yield 1
        raise mine

    watcher.at_end = busy
    with pytest.raises(Mine) as caught:
        if kind == "with":
            with engine.timed(site):
                raise mine
        elif kind == "coroutine":
            asyncio.run(awaited(engine.driven(site, fails())))
        else:
            driven = engine.driven(site, generated())
            next(driven)
            driven.throw(mine) if kind == "throw" else next(driven)

    assert caught.value is mine
    assert watcher.ends == [("raising", True)]


def test_a_generator_that_returns_keeps_its_value(engine: Any, watcher: Watcher) -> None:
    def body() -> Any:
        yield 1
        return "value"

    def outer() -> Any:
        got = yield from engine.driven(engine.intern("returns", "returns"), body())
        return got

    running = outer()
    next(running)
    with pytest.raises(StopIteration) as stopped:
        next(running)

    assert stopped.value.value == "value"
    assert watcher.ends == [("returns", False)]


def test_a_closed_generator_has_not_failed(engine: Any, watcher: Watcher) -> None:
    driven = engine.driven(engine.intern("closed", "closed"), generator())
    next(driven)
    driven.close()

    assert watcher.ends == [("closed", False)]


# ---- the life of a range ----


def test_an_object_entered_while_open_is_told_each_time(engine: Any, recorded: Written, watcher: Watcher) -> None:
    again = engine.stage("again", key=1)
    with pytest.raises(Mine), again:
        with again, again:
            pass
        raise Mine

    assert watcher.entries == [("again", False)] * 3
    assert watcher.ends == [("again", False)] * 2 + [("again", True)]
    assert recorded.names == ["again"] * 3


def test_an_object_is_told_anew_each_time_it_is_entered(engine: Any, recorded: Written, watcher: Watcher) -> None:
    again = engine.stage("again")
    for on in (True, False, True):
        engine.watch(on)
        with again:
            pass

    assert watcher.told == [("entered", "again", False), ("left", "again", False)] * 2


def test_a_range_thrown_away_while_open_has_failed(engine: Any, recorded: Written, watcher: Watcher) -> None:
    thrown_away = engine.stage("thrown away")
    thrown_away.__enter__()
    del thrown_away
    gc.collect()  # on the twin its functions refer to it
    driven = engine.driven(engine.intern("driven away", "d"), generator())
    next(driven)
    del driven

    # A generator that is thrown away is closed first: it has ended, and not failed.
    assert watcher.ends[0] == ("thrown away", True)
    assert [name for name, _ in watcher.ends] == ["thrown away", "driven away"]


def test_an_exit_without_an_entry_is_told_nobody(engine: Any, watcher: Watcher) -> None:
    engine.stage("never entered").__exit__(None, None, None)

    assert watcher.told == []


# ---- limits ----


@pytest.fixture
def limited(engine: Any) -> Iterator[Any]:
    """A boundary that can be limited; without limits again afterwards."""
    site = marked(engine, "limited boundary")
    yield site
    engine.limit(site)
    engine.throttle(site, False)


@pytest.mark.parametrize(
    "limits", [{"coalesce": True}, {"max_depth": 0}, {"max_per_s": 2}, {"max_depth": 3, "max_per_s": 1}], ids=str
)
def test_every_call_of_a_limited_site_is_told(
    engine: Any, recorded: Written, watcher: Watcher, limited: Any, limits: dict[str, Any]
) -> None:
    engine.limit(limited, **limits)
    before = engine.counters()["coalesced"]
    for _ in range(300):
        once(engine, limited)
    engine.flush_coalesced()

    assert watcher.told == [("entered", "limited boundary", False), ("left", "limited boundary", False)] * 300
    assert engine.counters()["coalesced"] - before == 300 - limits.get("max_per_s", 0)


def test_a_throttled_site_in_use_is_told_while_somebody_watches(
    engine: Any, recorded: Written, watcher: Watcher, limited: Any
) -> None:
    engine.watch(False)
    engine.throttle(limited, True)
    for _ in range(50):
        once(engine, limited)
    engine.watch(True)
    for _ in range(50):
        once(engine, limited)
    engine.watch(False)
    once(engine, limited)
    engine.flush_coalesced()

    assert len(watcher.entries) == len(watcher.ends) == 50
    assert engine.counters()["coalesced"] == 101


def test_a_coalesced_call_that_fails_is_told_so(engine: Any, recorded: Written, watcher: Watcher, limited: Any) -> None:
    engine.limit(limited, coalesce=True)
    with pytest.raises(Mine), engine.timed(limited):
        raise Mine
    list(engine.driven(limited, generator()))

    assert watcher.told == [
        ("entered", "limited boundary", False), ("left", "limited boundary", True),
        ("entered", "limited boundary", True), ("left", "limited boundary", False),
    ]  # fmt: skip


def test_a_limit_that_the_hook_sets_holds_for_the_call_that_begins(
    engine: Any, recorded: Written, watcher: Watcher, limited: Any
) -> None:
    watcher.at_entry = lambda: engine.limit(limited, coalesce=True)
    once(engine, limited)

    assert recorded.names == []
    assert len(watcher.ends) == 1


def test_the_hooks_time_is_not_what_the_site_costs(engine: Any, recorded: Written, watcher: Watcher) -> None:
    """A profiler's start takes seconds: no reason to throttle anything."""
    watcher.at_entry = watcher.at_end = lambda: recorded.tick(1_000_000_000)
    site = marked(engine, "dear hooks")
    for coalesce in (False, True):
        engine.limit(site, coalesce=coalesce)
        for _ in range(300):
            once(engine, site)
    engine.limit(site)

    assert [(calls, ns) for found, calls, ns, _ in engine.site_costs() if found is site] == [(600, 0)]
