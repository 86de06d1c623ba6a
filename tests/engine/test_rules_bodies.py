"""Coroutines, generators and async generators inside one range: `driven` and `opened`, on both engines."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from typing import Any, AsyncIterator, Iterator

import pytest
from builders.written_banks import Written


def driven(engine: Any, body: Any, name: str = "body", stage: str | None = None, **attributes: Any) -> Any:
    return engine.driven(engine.intern(name, stage), body, None, attributes or None)


def counting(recorded: Written, inner_ticks: int = 5) -> Iterator[int]:
    """Yields 0, 1 and 2, with some time before each."""
    for number in range(3):
        recorded.tick(inner_ticks)
        yield number


RESULTS = [None, 7, (), (1, 2), ValueError("value"), StopIteration(3), StopIteration, [], {"a": 1}]


@pytest.mark.parametrize("result", RESULTS, ids=repr)
def test_a_return_value_of_any_kind_comes_through_yield_from(engine: Any, recorded: Written, result: Any) -> None:
    """And what is sent, the other way."""

    def body() -> Any:
        got.append((yield 1))
        return result

    def outer() -> Any:
        got.append((yield from driven(engine, body())))

    got: list[Any] = []
    running = outer()
    assert next(running) == 1
    with pytest.raises(StopIteration):
        running.send("sent")

    assert got[0] == "sent" and got[1] is result
    assert recorded.one("body").error is False


@pytest.mark.parametrize("result", RESULTS, ids=repr)
def test_a_return_value_of_any_kind_comes_through_await(engine: Any, recorded: Written, result: Any) -> None:
    async def body() -> Any:
        await asyncio.sleep(0)
        return result

    async def main() -> Any:
        return await driven(engine, body())

    assert asyncio.run(main()) is result
    assert recorded.one("body").error is False


@pytest.mark.parametrize("result", RESULTS, ids=repr)
def test_a_return_value_is_that_of_stop_iteration(engine: Any, recorded: Written, result: Any) -> None:
    def body() -> Any:
        return result
        yield

    with pytest.raises(StopIteration) as stopped:
        driven(engine, body()).send(None)

    assert stopped.value.value is result


def test_an_iterator_without_send_is_driven_too(engine: Any, recorded: Written) -> None:
    assert list(driven(engine, [1, 2, 3])) == [1, 2, 3]
    assert recorded.one("body").error is False


def test_an_error_thrown_in_before_the_first_resume_goes_through(engine: Any, recorded: Written) -> None:
    with pytest.raises(KeyError):
        driven(engine, counting(recorded)).throw(KeyError("mine"))
    gc.collect()

    assert [found.error for found in recorded.ranges] in ([], [True])
    assert recorded.open == []


def test_a_body_that_raises_ends_with_error_and_its_own_exception(engine: Any, recorded: Written) -> None:
    def body() -> Any:
        yield 1
        raise raised

    raised = ValueError("mine")
    running = driven(engine, body())
    next(running)
    with pytest.raises(ValueError) as caught:
        next(running)

    assert caught.value is raised
    assert raised.__context__ is None
    assert recorded.one("body").error is True


def test_closed_early_is_no_error_and_runs_the_bodys_cleanup_inside(engine: Any, recorded: Written) -> None:
    def body() -> Any:
        try:
            yield 1
        finally:
            with engine.mstx_range("cleanup"):
                recorded.tick(3)

    running = driven(engine, body())
    next(running)
    recorded.tick(10)
    running.close()
    running.close()

    assert [(found.name, found.depth, found.error) for found in recorded.ranges] == [
        ("cleanup", 1, False), ("body", 0, False)
    ]  # fmt: skip
    assert recorded.one("body").busy == 3


def test_a_finished_body_stays_finished(engine: Any, recorded: Written) -> None:
    running = driven(engine, counting(recorded))
    list(running)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(running)
    running.close()

    assert len(recorded.ranges) == 1


def test_a_suspended_body_is_not_around_what_its_caller_does(engine: Any, recorded: Written) -> None:
    def body() -> Any:
        with engine.mstx_range("in body"):
            yield engine.current_stage()
            with engine.mstx_range("deeper"):
                yield engine.current_stage()

    for _ in range(2):
        with engine.stage("outer"):
            running = driven(engine, body(), stage="inner")
            seen = [next(running), engine.current_stage()]
            with engine.mstx_range("caller"):
                pass
            seen += [next(running), engine.current_stage()]
            assert list(running) == []

        assert seen == ["inner", "outer", "inner", "outer"]
    assert [(found.name, found.depth, found.stage) for found in recorded.ranges] == 2 * [
        ("caller", 1, "outer"), ("deeper", 3, "inner"), ("in body", 2, "inner"), ("body", 1, "inner"),
        ("outer", 0, "outer"),
    ]  # fmt: skip
    assert engine.counters()["open"] == 0


def test_a_generator_that_outlives_the_range_it_began_in(engine: Any, recorded: Written) -> None:
    running = driven(engine, counting(recorded))
    with engine.mstx_range("first caller"):
        next(running)
    with engine.mstx_range("second caller"), engine.mstx_range("inside"):
        next(running)
        with engine.mstx_range("beside"):
            pass
    list(running)
    with engine.mstx_range("after"):
        pass

    assert [(found.name, found.depth) for found in recorded.ranges] == [
        ("first caller", 0), ("beside", 2), ("inside", 1), ("second caller", 0), ("body", 1), ("after", 0)
    ]  # fmt: skip
    assert recorded.open == []


def test_a_stage_that_ends_while_its_body_is_suspended_is_over(engine: Any, recorded: Written) -> None:
    """Its body was inside of it again as it went on, and so was all that came after; tasks were of step 0."""

    def body() -> Iterator[Any]:
        stage = engine.stage("s")
        stage.__enter__()
        yield stage
        yield engine.current_stage()

    engine.step(7)
    going = driven(engine, body())
    next(going).__exit__(None, None, None)
    inherited = contextvars.copy_context().run(lambda: (engine.current_stage(), engine.current_step()))
    inside = next(going)
    going.close()

    assert (inherited, inside, engine.current_stage()) == ((None, 7), None, None)


def test_a_stage_of_a_body_that_goes_on_elsewhere_leaves_who_resumes_it_as_he_is(
    engine: Any, recorded: Written
) -> None:
    def body() -> Iterator[Any]:
        with engine.stage("inner"):
            yield engine.current_stage()
            yield engine.current_stage()
        yield engine.current_stage()

    with engine.stage("outer"):
        going = driven(engine, body())
        seen = [next(going)]
    seen += contextvars.copy_context().run(lambda: [next(going), next(going), engine.current_stage()])
    going.close()

    assert (seen, engine.current_stage()) == (["inner", "inner", None, None], None)


def test_the_stage_of_a_suspended_body_is_not_that_of_a_task_created_meanwhile(engine: Any, recorded: Written) -> None:
    async def task() -> None:
        with engine.mstx_range("task"):
            pass

    async def main() -> None:
        running = driven(engine, counting(recorded), stage="s")
        next(running)
        await asyncio.ensure_future(task())
        list(running)

    asyncio.run(main())

    assert recorded.one("task").stage is None
    assert recorded.one("body").stage == "s"


def test_a_task_created_inside_a_driven_stage_belongs_to_it(engine: Any, recorded: Written) -> None:
    async def task() -> None:
        with engine.mstx_range("task"):
            pass

    async def body() -> None:
        await asyncio.sleep(0)
        await asyncio.ensure_future(task())

    async def main() -> None:
        await driven(engine, body(), stage="s")
        with engine.mstx_range("after"):
            pass

    asyncio.run(main())

    assert recorded.one("task").stage == "s"
    assert recorded.one("after").stage is None


def test_nested_driven_bodies_are_suspended_together(engine: Any, recorded: Written) -> None:
    def inner() -> Any:
        recorded.tick(1)
        yield 1
        recorded.tick(2)

    def outer() -> Any:
        recorded.tick(10)
        yield from driven(engine, inner(), "inner")
        recorded.tick(20)

    for answer in driven(engine, outer(), "outer"):
        with engine.mstx_range("caller"):
            recorded.tick(1000 * answer)

    caller, inner_range, outer_range = recorded.ranges
    assert (caller.name, caller.depth) == ("caller", 0)
    assert (inner_range.depth, inner_range.busy, inner_range.duration) == (1, 3, 1003)
    assert (outer_range.depth, outer_range.busy, outer_range.duration) == (0, 33, 1033)


@pytest.mark.parametrize("where", ["sleep", "before"])
def test_a_cancelled_coroutine_ends_with_error(engine: Any, recorded: Written, where: str) -> None:
    async def body() -> None:
        await asyncio.Event().wait()

    async def task() -> None:
        await driven(engine, body())

    async def main() -> Any:
        running = asyncio.ensure_future(task())
        if where == "sleep":
            await asyncio.sleep(0)
        running.cancel()
        return await asyncio.gather(running, return_exceptions=True)

    (result,) = asyncio.run(main())

    assert isinstance(result, asyncio.CancelledError)
    assert [found.error for found in recorded.ranges] == ([True] if where == "sleep" else [])
    assert recorded.open == []


def test_dropped_while_suspended_it_ends_with_error_and_frees_what_it_held(engine: Any, recorded: Written) -> None:
    class Held: ...

    def body(held: Any) -> Any:
        with engine.mstx_range("inside"):
            yield 1

    held = Held()
    alive = weakref.ref(held)
    running = driven(engine, body(held))
    next(running)
    del held, running
    gc.collect()
    with engine.mstx_range("after"):
        pass

    assert [(found.name, found.error) for found in recorded.ranges] == [
        ("inside", False), ("body", True), ("after", False)
    ]  # fmt: skip
    assert recorded.one("after").depth == 0
    assert alive() is None
    assert recorded.open == []
    assert engine.counters()["open"] == 0


def test_a_generator_in_a_cycle_is_found_by_the_garbage_collector(engine: Any, recorded: Written) -> None:
    def body() -> Any:
        mine = {}
        mine["self"] = yield 1
        yield mine

    running = driven(engine, body())
    next(running)
    running.send(running)
    del running
    gc.collect()

    assert [found.name for found in recorded.ranges] == ["body"]
    assert recorded.open == []


def test_closed_in_another_task_it_ends_where_it_began(engine: Any, recorded: Written) -> None:
    async def begin() -> Any:
        running = driven(engine, counting(recorded), stage="s")
        next(running)
        return running

    async def close(running: Any) -> None:
        with engine.mstx_range("closer"):
            running.close()
            with engine.mstx_range("inside closer"):
                seen.append(engine.current_stage())

    async def main() -> None:
        running = await asyncio.ensure_future(begin())
        await asyncio.ensure_future(close(running))
        with engine.mstx_range("after"):
            seen.append(engine.current_stage())

    seen: list[Any] = []
    asyncio.run(main())

    assert [(found.name, found.error) for found in recorded.ranges] == [
        ("body", False), ("inside closer", False), ("closer", False), ("after", False)
    ]  # fmt: skip
    assert seen == [None, None]
    assert recorded.open == []


def test_resumed_in_another_task_each_piece_is_where_it_runs(engine: Any, recorded: Written) -> None:
    def body() -> Any:
        for number in range(3):
            with engine.mstx_range(f"piece {number}"):
                pass
            yield number

    async def resume(running: Any, name: str) -> None:
        with engine.mstx_range(name):
            next(running)

    async def main() -> None:
        running = driven(engine, body())
        for name in ("first", "second", "third"):
            await asyncio.ensure_future(resume(running, name))
        running.close()

    asyncio.run(main())

    assert [(found.name, found.depth) for found in recorded.ranges] == [
        ("piece 0", 2), ("first", 0), ("piece 1", 2), ("second", 0), ("piece 2", 2), ("third", 0), ("body", 1)
    ]  # fmt: skip


def test_switched_off_while_suspended_it_is_still_written(engine: Any, recorded: Written) -> None:
    running = driven(engine, counting(recorded), stage="s")
    next(running)
    engine.set_recording(False)
    list(running)

    assert recorded.one("body").busy == 15
    assert recorded.open == []


def test_detached_while_suspended_it_writes_nothing(engine: Any, recorded: Written) -> None:
    def body() -> Iterator[int]:
        with engine.mstx_range("inner"):
            yield from counting(recorded)

    running = driven(engine, body(), stage="s")
    next(running)
    following = Written(engine)
    rest = list(running)
    with engine.mstx_range("after"):
        pass

    assert rest == [1, 2]
    assert following.names == ["after"]
    assert (following.one("after").depth, following.one("after").stage) == (0, None)
    assert following.open == []
    assert engine.counters()["open"] == 0


def test_a_suspended_body_is_open_in_its_slot(engine: Any, recorded: Written) -> None:
    running = driven(engine, counting(recorded))
    next(running)
    engine.mark("so that there is something to rotate")
    engine.rotate()
    named = [found.name for found in recorded.open]
    running.close()

    assert named == ["body"]
    assert recorded.open == []


def test_a_body_that_drives_itself_raises_what_python_raises(engine: Any, recorded: Written) -> None:
    def body() -> Any:
        try:
            next(running[0])
        except ValueError as error:
            yield str(error)

    running: list[Any] = []
    running.append(driven(engine, body()))
    answers = list(running[0])

    assert answers == ["generator already executing"]
    assert len(recorded.ranges) == 1
    assert recorded.open == []


async def pieces(engine: Any, recorded: Written) -> AsyncIterator[int]:
    for number in range(3):
        recorded.tick(5)
        with engine.mstx_range("inner"):
            await asyncio.sleep(0)
        yield number


def test_a_span_is_one_range_over_all_its_pieces(engine: Any, recorded: Written) -> None:
    async def main() -> list[int]:
        got = []
        source = pieces(engine, recorded)
        span = engine.opened(engine.intern("span", "s"), None, {"n": 1})
        recorded.tick(100)
        for _ in range(3):
            got.append(await span.drive(source.__anext__()))
            recorded.tick(1000)
            with engine.mstx_range("between"):
                stages.append(engine.current_stage())
        with pytest.raises(StopAsyncIteration):
            await span.drive(source.__anext__())
        span.close(False)
        span.close(True)
        return got

    stages: list[Any] = []
    got = asyncio.run(main())

    found = recorded.one("span")
    assert got == [0, 1, 2]
    assert (found.start, found.duration, found.busy, found.error) == (1_000_100, 3015, 15, False)
    assert (found.stage, found.attributes) == ("s", {"n": 1})
    assert stages == [None] * 3
    assert {(found.name, found.depth) for found in recorded.ranges} == {("span", 0), ("inner", 1), ("between", 0)}


@pytest.mark.parametrize("failed", [True, False])
def test_a_span_says_whether_it_failed_once(engine: Any, recorded: Written, failed: bool) -> None:
    async def piece() -> int:
        return 1

    async def main() -> None:
        span = engine.opened(engine.intern("span"))
        await span.drive(piece())
        span.close(failed)
        span.close(not failed)
        assert await span.drive(piece()) == 1

    asyncio.run(main())

    assert [found.error for found in recorded.ranges] == [failed]
    assert recorded.open == []


def test_a_span_thrown_away_ends_with_error(engine: Any, recorded: Written) -> None:
    async def piece() -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        span = engine.opened(engine.intern("span", "s"))
        await span.drive(piece())
        del span
        gc.collect()
        seen.append(engine.current_stage())

    seen: list[Any] = []
    asyncio.run(main())

    assert recorded.one("span").error is True
    assert seen == [None]
    assert recorded.open == []
