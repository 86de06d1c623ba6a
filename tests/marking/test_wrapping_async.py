"""Coroutines, generators and async generators: one range from first resume to end, and their protocol untouched."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import types
import weakref
from typing import Any, AsyncGenerator, AsyncIterator, Awaitable, Generator

import pytest

from mstxkit import current_stage, mstx_range, mstx_timer
from mstxkit.testing import captured


def only(got: Any) -> Any:
    (found,) = got.ranges
    return found


async def plain_coroutine(a: int, *, b: int = 2) -> int:
    await asyncio.sleep(0)
    return a + b


def plain_generator(a: int) -> Generator[int, int, int]:
    total = a
    while True:
        got = yield total
        if not got:
            return total
        total += got


async def plain_async_generator(a: int) -> AsyncGenerator[int, int]:
    for i in range(a):
        yield i


def test_wrappers_are_of_the_same_kind_with_the_same_signature() -> None:
    for function, is_kind in (
        (plain_coroutine, inspect.iscoroutinefunction),
        (plain_generator, inspect.isgeneratorfunction),
        (plain_async_generator, inspect.isasyncgenfunction),
    ):
        wrapper = mstx_timer("x", attributes=lambda a, **k: {})(function)

        assert is_kind(wrapper)
        assert inspect.signature(wrapper) == inspect.signature(function)


def test_a_coroutine_is_a_range_from_first_resume_to_return_with_its_busy_time() -> None:
    """torch_npu's `mstx.annotate` closes the range before the body of a coroutine runs."""
    with captured() as got:
        waiting = mstx_timer("coroutine", attributes=lambda a, b: {"b": b})(plain_coroutine)(1, b=3)
        with mstx_range("before the first resume"):
            pass
        answer = asyncio.run(_awaited(waiting))

    assert answer == 4
    before, coroutine = got.ranges
    assert coroutine.start_ns >= before.start_ns + before.duration_ns
    assert 0 < coroutine.busy_ns <= coroutine.duration_ns
    assert coroutine.attributes == {"b": 3}


async def _awaited(waiting: Awaitable[Any]) -> Any:
    return await waiting


def test_a_coroutine_that_raises_or_is_cancelled_ends_with_error() -> None:
    @mstx_timer("raises")
    async def raises() -> None:
        raise ValueError("mine")

    @mstx_timer("cancelled")
    async def waits() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        with pytest.raises(ValueError, match="mine"):
            await raises()
        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with captured() as got:
        asyncio.run(main())

    assert [(r.name, r.error) for r in got.ranges] == [("raises", True), ("cancelled", True)]


def test_a_coroutine_never_awaited_is_no_range() -> None:
    with captured() as got:
        coroutine = mstx_timer("never")(plain_coroutine)(1)
        coroutine.close()

    assert got.ranges == []


def test_a_range_decorates_a_coroutine_function() -> None:
    @mstx_range("ranged")
    async def work() -> int:
        await asyncio.sleep(0)
        return 1

    with captured() as got:
        answer = asyncio.run(work())

    assert answer == 1
    assert only(got).busy_ns


def test_a_function_marked_as_coroutine_function_is_driven_too() -> None:
    def returns_coroutine(a: int) -> Any:
        return plain_coroutine(a)

    returns_coroutine._is_coroutine = True  # type: ignore[attr-defined]  # what Cython and older asyncio set
    with captured() as got:
        answer = asyncio.run(mstx_timer("marked")(returns_coroutine)(1))

    assert answer == 3
    assert only(got).busy_ns


def test_a_generator_based_coroutine_stays_awaitable() -> None:
    @mstx_timer("legacy")
    @types.coroutine
    def legacy() -> Any:
        answer = yield
        return answer

    async def main() -> Any:
        return await legacy()

    running = main()
    with captured() as got:
        running.send(None)
        with pytest.raises(StopIteration) as stopped:
            running.send("sent")

    assert stopped.value.value == "sent"
    assert only(got).name == "legacy"


def test_a_generator_is_timed_from_its_first_resume() -> None:
    with captured() as got:
        running = mstx_timer("generator")(plain_generator)(1)
        with mstx_range("before"):
            pass
        next(running)
        running.close()

    before, generator = got.ranges
    assert generator.start_ns >= before.start_ns + before.duration_ns


def test_a_generator_thrown_into_may_catch_it_or_end_with_error() -> None:
    @mstx_timer("thrown into")
    def numbers() -> Any:
        try:
            yield 1
        except KeyError:
            yield "caught"

    with captured() as got:
        running = numbers()
        next(running)
        caught = running.throw(KeyError())
        with pytest.raises(ValueError):
            running.throw(ValueError())

    assert caught == "caught"
    assert only(got).error


def test_two_interleaved_generators_of_one_function_keep_their_own_ranges() -> None:
    numbers = mstx_timer("numbers", attributes=lambda a: {"a": a})(plain_generator)
    with captured() as got:
        first, second = numbers(1), numbers(2)
        assert (next(first), next(second), first.send(1), second.send(1)) == (1, 2, 2, 3)
        first.close()
        second.close()

    assert [(r.attributes["a"], r.error) for r in got.ranges] == [(1, False), (2, False)]
    assert got.ranges[0].start_ns < got.ranges[1].start_ns < got.ranges[0].start_ns + got.ranges[0].duration_ns


def test_an_async_generator_is_one_range_over_all_its_pieces() -> None:
    async def main() -> list[int]:
        return [i async for i in mstx_timer("numbers", attributes=lambda a: {"a": a})(plain_async_generator)(3)]

    with captured() as got:
        answer = asyncio.run(main())

    assert answer == [0, 1, 2]
    assert (only(got).error, only(got).attributes) == (False, {"a": 3})
    assert 0 < only(got).busy_ns <= only(got).duration_ns


async def echo() -> AsyncIterator[Any]:
    """Yields what it is sent and the name of what is thrown in; swallows one GeneratorExit if told to."""
    answer: Any = "first"
    while True:
        try:
            answer = yield answer
            if answer == "raise":
                raise ValueError("mine")
            if answer == "return":
                return
            await asyncio.sleep(0)
        except (KeyError, StopAsyncIteration, GeneratorExit) as exc:
            if isinstance(exc, GeneratorExit) and answer != "swallow":
                raise
            answer = type(exc).__name__


async def talk(generator: Any, script: list[Any]) -> list[Any]:
    """What a generator answers to a script of things sent, thrown in (exceptions) and calls ("aclose")."""
    heard: list[Any] = []
    for line in script:
        try:
            if isinstance(line, BaseException):
                heard.append(await generator.athrow(line))
            elif line == "aclose":
                heard.append(await generator.aclose())
            else:
                heard.append(await generator.asend(line))
        except BaseException as exc:
            heard.append((type(exc), str(exc), type(exc.__context__)))
    return heard


SCRIPTS: list[Any] = [
    [None, 1, 2, "return", 3],
    [None, "raise", 1],
    [None, KeyError(), 1, ZeroDivisionError("theirs"), 2],
    [None, "aclose", 1, "aclose"],
    [None, "swallow", "aclose", "aclose"],
    [None, GeneratorExit(), 1],
    [None, "swallow", GeneratorExit(), 1, "return"],
    [None, StopAsyncIteration(), 1],
    ["aclose", 1],
    ["sent too early"],
    [KeyError("too early"), 1],
    [None, asyncio.CancelledError()],
]


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_an_async_generator_answers_exactly_as_without_a_range(script: list[Any]) -> None:
    async def main() -> tuple[list[Any], list[Any]]:
        timed = await talk(mstx_timer("echo")(echo)(), script)
        return timed, await talk(echo(), script)

    with captured() as got:
        timed, bare = asyncio.run(main())

    assert timed == bare
    assert len(got.ranges) <= 1


def test_an_async_generator_that_raises_ends_with_error_and_one_closed_early_without() -> None:
    async def main(*script: Any) -> None:
        generator: Any = mstx_timer(str(script[-1]))(echo)()
        await talk(generator, list(script))

    with captured() as got:
        asyncio.run(main(None, "raise"))
        asyncio.run(main(None, "aclose"))
        asyncio.run(main(None, "return"))

    assert [(r.name, r.error) for r in got.ranges] == [("raise", True), ("aclose", False), ("return", False)]


def test_an_async_generator_abandoned_by_its_loop_cleans_up_and_ends() -> None:
    cleaned = []

    @mstx_timer("abandoned")
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            cleaned.append(True)

    async def main() -> None:
        async for _ in numbers():
            break

    with captured() as got:
        asyncio.run(main())

    assert cleaned == [True]
    assert [r.name for r in got.ranges] == ["abandoned"]


def test_a_range_keeps_no_yielded_value_alive() -> None:
    """A batch that its consumer dropped is freed while the generator is suspended."""

    class Batch:
        pass

    @mstx_timer("batches")
    async def batches() -> AsyncIterator[Batch]:
        yield Batch()
        yield Batch()

    async def main() -> Any:
        running = batches()
        first = weakref.ref(await running.__anext__())
        freed = first() is None
        await running.aclose()  # type: ignore[attr-defined]
        return freed

    with captured():
        freed = asyncio.run(main())

    assert freed


def test_an_exception_thrown_through_an_async_generator_is_not_kept_in_a_cycle() -> None:
    class Mine(Exception):
        pass

    async def main() -> Any:
        running: Any = mstx_timer("x")(echo)()
        await running.asend(None)
        try:
            await running.athrow(Mine())
        except Mine as exc:
            return weakref.ref(exc)

    with captured():
        gc.collect()
        gc.disable()
        try:
            freed = asyncio.run(main())() is None
        finally:
            gc.enable()

    assert freed


def test_a_method_that_is_an_async_generator_binds() -> None:
    class Loader:
        @mstx_timer("load")
        async def load(self, n: int) -> AsyncIterator[int]:
            for i in range(n):
                yield i

    async def main() -> list[int]:
        return [i async for i in Loader().load(2)]

    with captured() as got:
        answer = asyncio.run(main())

    assert answer == [0, 1]
    assert only(got).name == "load"


def retried(function: Any) -> Any:
    """A plain function that hands on a coroutine, as dispatchers and retries do."""

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


def test_a_coroutine_that_a_plain_function_hands_on_is_in_the_range_to_its_end() -> None:
    seen: list[Any] = []

    @mstx_timer("rollout", stage="s", attributes=lambda a: {"a": a})
    @retried
    async def rollout(a: int) -> int:
        seen.append(current_stage())
        with mstx_range("before"):
            pass
        await asyncio.sleep(0)
        with mstx_range("after"):
            pass
        seen.append(current_stage())
        return a

    with captured() as got:
        waiting = rollout(5)
        seen.append(current_stage())
        answer = asyncio.run(_awaited(waiting))

    assert (answer, seen, inspect.iscoroutine(waiting)) == (5, [None, "s", "s"], True)
    assert [found.name for found in got.ranges] == ["before", "after", "rollout"]
    assert [found.stage for found in got.ranges] == ["s"] * 3
    assert (got.ranges[-1].attributes, got.ranges[-1].error) == ({"a": 5}, False)
    assert got.ranges[-1].busy_ns is not None


def test_what_a_plain_function_over_a_coroutine_does_by_itself_is_in_the_range_too() -> None:
    """It may run the coroutine to its end, raise before there is one, or raise what no coroutine can."""
    error = ValueError("before")

    @mstx_timer("runs it")
    @functools.wraps(plain_coroutine)
    def runs_it(a: int) -> int:
        with mstx_range("inside"):
            return asyncio.run(plain_coroutine(a))

    @mstx_timer("raises")
    @functools.wraps(plain_coroutine)
    def raises(exc: BaseException) -> None:
        raise exc

    with captured() as got:
        answer = runs_it(1)
        for exc in (error, StopIteration(7)):
            with pytest.raises(type(exc)) as raised:
                raises(exc)
            assert raised.value is exc and exc.__context__ is None

    assert answer == 3
    assert [(found.name, found.error) for found in got.ranges] == [
        ("inside", False), ("runs it", False), ("raises", True), ("raises", True),
    ]  # fmt: skip


def test_a_coroutine_handed_on_is_cancelled_and_left_as_without_a_range() -> None:
    @mstx_timer("waits")
    @retried
    async def waits() -> None:
        await asyncio.sleep(60)

    async def cancelling() -> None:
        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with captured() as got:
        asyncio.run(cancelling())

    assert [(found.name, found.error) for found in got.ranges] == [("waits", True)]
    assert waits.__name__ == "waits" and not inspect.iscoroutinefunction(waits)
