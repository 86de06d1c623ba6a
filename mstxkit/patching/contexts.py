"""Functions that return a context manager: each of its contexts is a range, named by the function's first argument.

For trainers whose stages are `with` blocks in one long method, and no methods that could be patched.
"""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Any, Callable, ContextManager

from .. import ranges, stages
from .declare import Target

# Such a function is held where `held_by` does not look: this attribute says that it is ours.
MARK = "__mstxkit_context__"


class TimedContext:
    """A framework's context manager inside a range. Everything else of it is reached as before."""

    def __init__(self, inner: ContextManager[Any], timed: ContextManager[Any]) -> None:
        self._inner, self._timed = inner, timed

    def __enter__(self) -> Any:
        self._timed.__enter__()
        try:
            return self._inner.__enter__()
        except BaseException as exc:
            self._timed.__exit__(type(exc), exc, exc.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        swallowed = None
        try:
            swallowed = self._inner.__exit__(kind, exc, trace)
        finally:
            self._timed.__exit__(kind, exc, trace)
        return swallowed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def timed(function: Callable[..., Any], target: Target) -> Callable[..., Any]:
    """`function` with ranges: named by its first argument, or by the target where that is no string.

    Its stage is the canonical key of that name, where it is a stage that some system knows.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        inner = function(*args, **kwargs)
        first = (*args[:2], *kwargs.values())[:2]  # a method is called with its self before
        name = next((one for one in first if isinstance(one, str)), target.name or target.qualname)
        stage = target.stage or (stages.canonical(name) if stages.is_known(name) else None)
        return TimedContext(inner, ranges.mstx_range(name, stage=stage, domain=target.domain))

    setattr(wrapper, MARK, True)
    return wrapper
