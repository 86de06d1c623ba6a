"""A framework's function around which one of ours decides: called with it and the call's own arguments, in its range.

Why: what must sometimes not happen (MindSpeed-RL's own profiler beside a session of mstxkit) is no matter of ranges.
"""

from __future__ import annotations

import functools
import importlib
from types import FunctionType
from typing import Any, Callable

# On such a function, itself: wrappers that copy its attributes are none.
_MARK = "__mstxkit_around__"


def around(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    """`function`, decided on by the function at `package.module:name`."""
    module, _, name = path.partition(":")
    decide = getattr(importlib.import_module(module), name)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return decide(function, *args, **kwargs)

    setattr(wrapper, _MARK, wrapper)
    return wrapper


def bare(function: Any) -> Any:
    """What is inside of one of these; any other object itself."""
    is_ours = isinstance(function, FunctionType) and function.__dict__.get(_MARK) is function
    return function.__dict__["__wrapped__"] if is_ours else function
