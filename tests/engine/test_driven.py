"""Coroutines, generators and async generators inside one range, on both engines."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Generator

import pytest
from builders.written_banks import Written


@pytest.fixture
def site(engine: Any) -> Any:
    return engine.intern("driven")


def test_a_generator_is_one_range_from_its_first_resume_to_its_end(engine: Any, recorded: Written, site: Any) -> None:
    def body() -> Generator[int, None, str]:
        recorded.tick(1)
        yield 1
        recorded.tick(2)
        yield 2
        recorded.tick(4)
        return "returned"

    driven = engine.driven(site, body())
    recorded.tick(1000)
    assert recorded.open == []
    first = next(driven)
    recorded.tick(100)
    second = next(driven)
    recorded.tick(100)
    with pytest.raises(StopIteration) as stopped:
        next(driven)

    assert (first, second, stopped.value.value) == (1, 2, "returned")
    found = recorded.one("driven")
    assert (found.start, found.duration, found.busy, found.error) == (1_001_000, 207, 7, False)


def test_nothing_is_begun_before_the_first_resume(engine: Any, recorded: Written, site: Any) -> None:
    def body() -> Generator[None, None, None]:
        yield

    never = engine.driven(site, body())
    never.close()
    dropped = engine.driven(site, body())
    del dropped
    gc.collect()

    assert recorded.ranges == []


def test_parked_ranges_are_still_shown_as_open(engine: Any, recorded: Written, site: Any) -> None:
    def body() -> Generator[None, None, None]:
        with engine.mstx_range("inner"):
            yield

    running = [engine.driven(site, body()) for _ in range(3)]
    for driven in running:
        next(driven)
    with engine.mstx_range("caller"), engine.mstx_range("deeper"):
        names = sorted(found.name for found in recorded.open)
    for driven in running:
        next(driven, None)

    assert names == ["caller", "deeper", *["driven"] * 3, *["inner"] * 3]
    assert recorded.open == []
    assert sorted(recorded.names) == names


def test_interleaved_generators_do_not_close_each_other(engine: Any, recorded: Written, site: Any) -> None:
    def body(ticks: int) -> Generator[None, None, None]:
        with engine.mstx_range(f"inner {ticks}"):
            recorded.tick(ticks)
            yield
            recorded.tick(ticks)

    first, second = engine.driven(site, body(1)), engine.driven(site, body(10))
    next(first)
    next(second)
    next(first, None)
    next(second, None)

    assert [(found.name, found.duration, found.busy) for found in recorded.ranges] == [
        ("inner 1", 12, None), ("driven", 12, 2), ("inner 10", 21, None), ("driven", 21, 20)
    ]  # fmt: skip


def test_an_exception_thrown_in_can_be_caught_inside(engine: Any, recorded: Written, site: Any) -> None:
    def body() -> Generator[str, None, None]:
        try:
            yield "first"
        except KeyError:
            yield "caught"

    driven = engine.driven(site, body())
    next(driven)
    caught = driven.throw(KeyError("x"))
    left = next(driven, "left")

    assert (caught, left) == ("caught", "left")
    assert recorded.one("driven").error is False


def test_a_generator_that_refuses_to_close_says_so(engine: Any, recorded: Written, site: Any) -> None:
    def body() -> Generator[int, None, None]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    driven = engine.driven(site, body())
    next(driven)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        driven.close()

    assert recorded.one("driven").error is True


def test_a_coroutine_is_awaited_in_its_range(engine: Any, recorded: Written, site: Any) -> None:
    async def body() -> str:
        recorded.tick(3)
        await asyncio.sleep(0)
        with engine.mstx_range("inner"):
            recorded.tick(4)
        return "returned"

    async def main() -> Any:
        return await engine.driven(site, body(), None, {"size": 5})

    assert asyncio.run(main()) == "returned"
    found = recorded.one("driven")
    assert (found.duration, found.busy, found.attributes, found.error) == (7, 7, {"size": 5}, False)
    assert recorded.one("inner").depth == 1


def test_interleaved_coroutines_have_busy_times_and_stages_of_their_own(engine: Any, recorded: Written) -> None:
    async def body(ticks: int) -> str | None:
        for _ in range(3):
            recorded.tick(ticks)
            await asyncio.sleep(0)
        return engine.current_stage()  # type: ignore[no-any-return]

    async def main() -> list[str | None]:
        sites = [engine.intern(f"work {number}", f"stage {number}") for number in (1, 10)]
        return await asyncio.gather(*(engine.driven(site, body(n)) for site, n in zip(sites, (1, 10))))

    stages = asyncio.run(main())

    assert stages == ["stage 1", "stage 10"]
    assert {found.name: found.busy for found in recorded.ranges} == {"work 1": 3, "work 10": 30}
    assert len({found.track for found in recorded.ranges}) == 2
    assert {found.depth for found in recorded.ranges} == {0}


def test_anything_awaitable_can_be_driven(engine: Any, recorded: Written, site: Any) -> None:
    class Awaitable:
        def __await__(self) -> Any:
            return (yield from asyncio.sleep(0, "mine").__await__())

    async def main() -> Any:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, 5)
        return await engine.driven(site, future), await engine.driven(site, Awaitable())

    assert asyncio.run(main()) == (5, "mine")
    assert recorded.names == ["driven", "driven"]


def test_what_cannot_be_driven_is_a_type_error(engine: Any, site: Any) -> None:
    with pytest.raises(TypeError):
        engine.driven(site, 3)


def test_off_at_the_first_resume_nothing_is_recorded(engine: Any, recorded: Written, site: Any) -> None:
    def body() -> Generator[int, None, None]:
        yield 1
        yield 2

    engine.set_recording(False)
    driven = engine.driven(site, body())
    first = next(driven)
    engine.set_recording(True)

    assert [first, *driven] == [1, 2]
    assert recorded.ranges == []


def test_a_span_that_was_never_driven_is_nothing(engine: Any, recorded: Written, site: Any) -> None:
    span = engine.opened(site)
    span.close(False)
    del span
    gc.collect()

    assert recorded.ranges == []


def test_the_slots_of_what_was_driven_are_free_again(engine: Any, recorded: Written, site: Any) -> None:
    small = Written(engine, slot_count=8)

    def body() -> Generator[None, None, None]:
        with engine.mstx_range("inner"):
            yield

    for _ in range(100):
        for _ in engine.driven(site, body()):
            with engine.mstx_range("caller"):
                pass

    assert engine.counters()["slots_overflowed"] == 0
    assert len(small.ranges) == 300
