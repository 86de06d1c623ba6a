"""What generated wrappers call besides the engine: attributes of one call, async generators piece by piece, awaitables.

A wrapper holds these by reference to this module, so that cloudpickle ships it without their code. Nothing here loads
an engine: a wrapper that arrives in a process with MSTXKIT_OFF=1 runs on the no-op functions in `state`.
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Mapping, Union

from . import faults, state

Attributes = Union[Mapping[str, Any], Callable[..., Mapping[str, Any]]]


def evaluate(attributes: Attributes, /, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
    """The attributes of one call, asked from the call's own arguments; None while nothing records.

    What the user's callable raises is counted, and the range goes without attributes.
    """
    if not state.recording():
        return None
    try:
        return dict(attributes(*args, **kwargs) if callable(attributes) else attributes)
    except Exception as exc:
        faults.note("attributes of a decorated function", exc)
        return None


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
            self._value = await self._span.drive(self._resumed())
            return True
        except StopAsyncIteration:
            self._span.close(False)
            return False
        except BaseException as exc:
            self._span.close(not isinstance(exc, GeneratorExit))
            raise

    def _resumed(self) -> Any:
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


def awaiting(site: Any, awaitable: Awaitable[Any], stream: Any = None, attributes: Any = None) -> Awaitable[Any]:
    """Drive what a plain function returned that is marked as a coroutine function."""
    return _awaiting(site, awaitable, stream, attributes)


async def _awaiting(site: Any, awaitable: Awaitable[Any], stream: Any, attributes: Any) -> Any:
    return await state.driven(site, awaitable, stream, attributes)
