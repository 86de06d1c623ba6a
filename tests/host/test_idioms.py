"""A stage that a generator leaves open over its yield is told once, with the right form."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, AsyncIterator, Callable, Iterator

import pytest

from mstxkit import faults, mstx_timer, stage
from mstxkit.testing import captured


def over_a_yield() -> Iterator[int]:
    with stage("over a yield"):
        for number in range(2):
            try:
                yield number
            finally:
                pass


def over_a_yield_from() -> Iterator[int]:
    with stage("over a yield from") as opened:
        opened.set(n=1)
        yield from [1]


async def over_a_yield_of_async() -> AsyncIterator[int]:
    with stage("over a yield of async"):
        await asyncio.sleep(0)
        yield 1


async def async_with() -> AsyncIterator[int]:
    async with stage("async with"):
        yield 1


def ends_before() -> Iterator[int]:
    for number in range(2):
        with stage("ends before"):
            made = number
        yield made
    with contextlib.suppress(KeyError):
        yield 3


async def ends_before_of_async() -> AsyncIterator[int]:
    with stage("ends before, of async"):
        await asyncio.sleep(0)
    yield 1


@contextlib.contextmanager
def context() -> Iterator[None]:
    with stage("context"):
        yield


@contextlib.asynccontextmanager
async def async_context() -> AsyncIterator[None]:
    async with stage("async context"):
        yield


@mstx_timer(stage="decorated")
def decorated() -> Iterator[int]:
    yield 1


@mstx_timer(stage="decorated async")
async def decorated_async() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> None:
    with stage("coroutine"):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def says_all_anew() -> Iterator[None]:
    said = set(faults._said)
    yield
    faults._said.clear()
    faults._said.update(said)


async def taken(items: AsyncIterator[Any]) -> None:
    async for _ in items:
        pass


def in_plain_context() -> None:
    with context():
        pass


async def in_context() -> None:
    async with async_context():
        pass


def test_what_is_open_over_a_yield_is_told_once_and_nothing_else_is(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Callable[[], object]] = [
        *(lambda made=made: list(made()) for made in (over_a_yield, over_a_yield_from, ends_before, decorated)),  # type: ignore[misc]
        *(
            lambda made=made: asyncio.run(taken(made()))  # type: ignore[misc]
            for made in (over_a_yield_of_async, async_with, ends_before_of_async, decorated_async)
        ),
        in_plain_context,
        lambda: asyncio.run(in_context()),
        lambda: asyncio.run(coroutine()),
    ]
    with captured():
        for call in calls * 2:
            call()

    told = [record.getMessage() for record in caplog.records]
    assert [line.split("'")[1] for line in told] == [
        "over a yield", "over a yield from", "over a yield of async", "async with",
    ]  # fmt: skip
    assert all(__file__ in line and "@mstx_timer(stage=" in line for line in told)
    assert faults.counts == {}
