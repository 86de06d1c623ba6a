"""The public signatures of marking, pinned: `tests/test_typing.py` has mypy check this file, nothing runs it."""

from __future__ import annotations

from typing import AsyncIterator, Callable, Iterator

from typing_extensions import assert_type

from mstxkit import at_step, current_stage, current_step, mark, mstx_range, mstx_timer, stage, step


@mstx_timer
def plain(a: int, *, b: str = "") -> float:
    return a + len(b)


@mstx_timer("name", stage="s", domain="d", stream=None, attributes=lambda a: {"a": a})
def with_arguments(a: int) -> list[int]:
    return [a]


@mstx_timer(stage="s")
async def coroutine(a: int) -> bytes:
    return bytes(a)


@mstx_timer
def generator(a: int) -> Iterator[int]:
    yield a


@stage("s", n=1)
async def async_generator(a: int) -> AsyncIterator[int]:
    yield a


@mstx_range("x", stage="s", domain="d", stream=None, tokens=3)
def ranged(a: int) -> str:
    return str(a)


@mstx_range
def ranged_by_its_own_name(a: int) -> str:
    return str(a)


@mstx_timer
class Trainer:
    def __init__(self, size: int) -> None:
        self.size = size

    @mstx_timer
    @staticmethod
    def static(a: int) -> str:
        return str(a)

    @classmethod
    @mstx_timer("made")
    def made(cls, size: int) -> Trainer:
        return cls(size)

    @mstx_timer("method")
    def method(self, a: int) -> int:
        return a

    @stage
    @staticmethod
    async def update(a: int) -> bytes:
        return bytes(a)

    @property
    @mstx_timer
    def loss(self) -> float:
        return 0.0


def decorated_things_keep_their_types() -> None:
    assert_type(plain(1, b=""), float)
    assert_type(with_arguments(1), list[int])
    assert_type(generator(1), Iterator[int])
    assert_type(async_generator(1), AsyncIterator[int])
    assert_type(ranged(1), str)
    assert_type(ranged_by_its_own_name(1), str)
    assert_type(Trainer(1), Trainer)
    assert_type(Trainer.static(1), str)
    assert_type(Trainer.made(1), Trainer)
    assert_type(Trainer(1).method(2), int)
    assert_type(Trainer(1).loss, float)
    assert_type(mstx_timer(property(lambda trainer: trainer.size)), property)
    same: Callable[[int], str] = ranged
    same(1)


def wrong_calls_are_errors() -> None:
    plain("a")  # type: ignore[arg-type]
    plain(1, "b")  # type: ignore[call-arg]
    with_arguments()  # type: ignore[call-arg]
    mstx_range()  # type: ignore[call-overload]
    mstx_range("x", "stage")  # type: ignore[call-overload]
    mark("x", domain=3)  # type: ignore[arg-type]
    at_step("3")  # type: ignore[arg-type]
    mstx_timer("x", attributes=3)  # type: ignore[call-overload]


async def ranges_and_marks() -> int:
    assert_type(await coroutine(1), bytes)
    assert_type(await Trainer.update(1), bytes)
    with mstx_range("x", tokens=3, anything=object()) as r, stage("s"), at_step(3):
        r.set(more=1)
    async with mstx_range("x") as a:
        a.set(more=2)
    mark("m", domain="d", stream=None, n=1)
    assert_type(step(), "int | None")
    assert_type(step(3), "int | None")
    assert_type(current_step(), "int | None")
    assert_type(current_stage(), "str | None")
    with mstx_range("does not swallow exceptions"):
        return 1
