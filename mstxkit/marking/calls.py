"""What generated wrappers call besides the engine: attributes of one call, async generators piece by piece, awaitables.

A wrapper holds these by reference to this module, so that cloudpickle ships it without their code. Nothing here loads
an engine: a wrapper that arrives in a process with MSTXKIT_OFF=1 runs on the no-op functions in `state`.
"""

from __future__ import annotations

import itertools
from time import thread_time_ns
from types import CoroutineType
from typing import Any, Awaitable, Callable, Mapping, Union

from .. import faults
from . import state

Attributes = Union[Mapping[str, Any], Callable[..., Mapping[str, Any]]]


# One evaluation in so many is measured, and stands for them. A dear one stands for itself, and as many after it are
# measured, too.
EVERY, _DEAR_NS = 64, 50_000
_is_turn = itertools.cycle([False] * (EVERY - 1) + [True]).__next__
_closely = 0


def evaluate_attributes(site: Any, attributes: Attributes, /, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
    """The attributes of one call, asked from the call's own arguments; None while nothing records.

    What the user's callable raises is counted, and the range goes without attributes. What it takes is part of the
    site's own cost, by samples.
    """
    global _closely
    if not state.recording():
        return None
    is_measured = _closely > 0 or _is_turn()
    before = thread_time_ns() if is_measured else 0  # without what other threads do meanwhile
    values = None
    try:
        values = dict(attributes(*args, **kwargs) if callable(attributes) else attributes)
    except Exception as exc:
        faults.note_fault("attributes of a decorated function", exc)
    if is_measured:
        took_ns = thread_time_ns() - before
        add_sample(site, took_ns, 1 if _closely else EVERY)
        _closely = EVERY if took_ns > _DEAR_NS else max(_closely - 1, 0)
    return values


def add_sample(site: Any, took_ns: int, calls: int = EVERY) -> None:
    """Reading the attributes of one call took so long; unless that is dear, it stands for so many calls."""
    with faults.noted("cost of attributes"):
        state.add_cost(site, took_ns if took_ns > _DEAR_NS else took_ns * calls)


class Pieces:
    """Drives an async generator inside one range and hands on `asend`, `athrow` and `aclose` unchanged.

    The generated wrapper yields what `take` gives inside this context. The caller's answer comes back there: what it
    sent is put into `sent`, what it threw arrives in `__exit__`, and the next `more` gives either to the body.
    """

    __slots__ = ("_body", "_span", "_thrown", "_value", "sent")

    def __init__(self, span: Any, body: Any) -> None:
        self._span, self._body = span, body
        self._value: Any = None
        self._thrown: BaseException | None = None
        self.sent: Any = None

    async def more(self) -> bool:
        """Run the body to its next yield; False when it has ended. The range ends with the body."""
        try:
            self._value = await self._span.drive(self._resume_body())
            return True
        except StopAsyncIteration:
            self._span.close(False)
            return False
        except BaseException as exc:
            self._span.close(not isinstance(exc, GeneratorExit))
            raise

    def _resume_body(self) -> Any:
        # Nothing of this stays in a frame that an exception keeps alive: that would be a cycle through its traceback.
        sent, thrown, self.sent, self._thrown = self.sent, self._thrown, None, None
        # For aclose too: a GeneratorExit thrown in ends, or is refused by, the body just as aclose would.
        return self._body.asend(sent) if thrown is None else self._body.athrow(thrown)

    def take(self) -> Any:
        """The value the body yielded; not kept here, so that it is freed as early as without a range."""
        value, self._value = self._value, None
        return value

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> bool:
        self._thrown = exc
        return True


async def drive_awaitable(site: Any, awaitable: Awaitable[Any], stream: Any = None, attributes: Any = None) -> Any:
    """Drive what a plain function returned that is marked as a coroutine function."""
    return await state.driven(site, awaitable, stream, attributes)


def call_and_hand(span: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a plain function in a range that lasts until the coroutine ends that it hands on; if it does so."""

    async def called() -> tuple[Any, BaseException | None]:
        try:
            return function(*args, **kwargs), None
        except BaseException as exc:  # a StopIteration too, which a coroutine cannot raise
            return None, exc

    try:
        span.drive(called()).send(None)
    except StopIteration as done:
        result, exc = done.value
    if isinstance(result, CoroutineType):
        return _handed_on(span, result)
    span.close(exc is not None)
    if exc is None:
        return result
    try:
        raise exc
    finally:
        exc = None  # no cycle through its traceback


async def _handed_on(span: Any, coroutine: Any) -> Any:
    failed = True
    try:
        result = await span.drive(coroutine)
        failed = False
        return result
    except GeneratorExit:
        failed = False
        raise
    finally:
        span.close(failed)
