"""What generated stand-in packages import: bodies that say that they ran, and stand-ins of other people's decorators.

Decorators do to a function what the real ones do to it as seen from outside: kind, name, attributes, `__wrapped__`.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import enum
import functools
import importlib.util
import inspect
import logging
import sys
import threading
from typing import Any, Callable

ran: list[str] = []
# Keys (`module:qualname`) whose bodies raise.
failing: set[str] = set()
# What bodies return, by their keys, instead of these.
answers: dict[str, Any] = {}
# Messages that upstream's own range decorator has sent.
upstream_ranges: list[str] = []


# For a module whose import waits.
is_waiting, may_go_on = threading.Event(), threading.Event()


def wait_in_import() -> None:
    """Say that the import has come here, and wait until the test lets it go on."""
    is_waiting.set()
    assert may_go_on.wait(60)


class Boom(Exception):
    """What a failing body raises."""


def run(key: str) -> str:
    """The body of everything: `key` is what it returns or yields."""
    ran.append(key)
    if key in failing:
        raise Boom(key)
    answer: str = answers.get(key, key)
    return answer


def wrapped(function: Any) -> Any:
    """As `torch.no_grad()`, verl's `rollout_trace_op` and most others: functools.wraps, and of the same kind."""
    if not callable(function) or isinstance(function, (type, staticmethod, classmethod)):
        return function
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            return (yield from function(*args, **kwargs))

        return generator
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return coroutine

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def unnamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """As verl's `GPUMemoryLogger`: a plain function without the other's name."""

    def f(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return f


def auto_await(function: Callable[..., Any]) -> Callable[..., Any]:
    """As verl's `auto_await`: a plain function that gives the coroutine in a loop, and runs it elsewhere."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        coroutine = function(*args, **kwargs)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(coroutine)
        return coroutine

    return wrapper


class Kernel:
    """What `triton.jit` makes: an object that can be called, and is no function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


class Hostile:
    """A descriptor that cannot be looked up."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise RuntimeError("looked up")


def dataclass(*args: Any, **kwargs: Any) -> Any:
    """`dataclasses.dataclass` with the options that this Python knows; a class whose recorded bases forbid it stays one
    (fields are not recorded).
    """
    if args:
        return dataclass()(*args)
    if sys.version_info < (3, 10):
        kwargs = {key: value for key, value in kwargs.items() if key not in ("slots", "kw_only")}

    def decorate(cls: type) -> type:
        try:
            return dataclasses.dataclass(**kwargs)(cls)
        except TypeError:
            return cls

    return decorate


_REAL = {
    "ABC": abc.ABC, "abc.ABC": abc.ABC, "Enum": enum.Enum, "str": str, "dict": dict, "type": type, "object": object,
    "Exception": Exception, "RuntimeError": RuntimeError, "logging.Filter": logging.Filter,
    "logging.Logger": logging.Logger, "NamedTuple": tuple, "TypedDict": dict,
}  # fmt: skip
_made: dict[str, type] = dict(_REAL)


def base(name: str) -> type:
    """A base class from outside the framework: the real one of the standard library, else an empty one of that name."""
    if name not in _made:
        _made[name] = type(name.rpartition(".")[2].strip() or "Base", (), {"__module__": __name__})
    return _made[name]


def stub(module: str, name: str) -> Any:
    """A name of a module that is not recorded: a class, a function or a text, as its spelling suggests."""
    if name.isupper():
        return name
    if name.lstrip("_")[:1].isupper():
        return type(name, (), {"__module__": module, "__init__": lambda self, *args, **kwargs: None})

    def function(*args: Any, **kwargs: Any) -> str:
        return name

    function.__module__, function.__name__, function.__qualname__ = module, name, name
    return function


class _NoRay:
    """Where Ray is not installed: its decorators leave things as they are."""

    @staticmethod
    def remote(*args: Any, **kwargs: Any) -> Any:
        return args[0] if args else (lambda decorated: decorated)


def __getattr__(name: str) -> Any:
    if name != "ray":
        raise AttributeError(name)
    if importlib.util.find_spec("ray") is None:
        return _NoRay
    import ray

    return ray


def forget() -> None:
    """As if nothing had run."""
    for one in (ran, failing, upstream_ranges):
        one.clear()
    is_waiting.clear()
    may_go_on.clear()
