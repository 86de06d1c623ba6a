"""A stand-in package as a test sees it: import it, look at what it holds, call what a target names."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from pathlib import Path
from types import FunctionType, GeneratorType, ModuleType
from typing import Any, Callable, Iterator, NamedTuple

from builders.contracts import outside, stand_in
from builders.contracts.surface import Surface, Symbol

from mstxkit.engine.choose import engine
from mstxkit.patching.declare import CONTEXT, DELEGATE, VALUE, WRAP, Target


class Installed:
    """The package of a surface, on the path.

    Args:
        surface: What it was written from.
        folder: Where it lies; None where only the surface is of interest.
    """

    def __init__(self, surface: Surface, folder: Path | None = None) -> None:
        self.surface, self.folder = surface, folder

    def write_again(self) -> None:
        """After a change of the surface; what is imported stays."""
        assert self.folder is not None
        stand_in.write(self.surface, self.folder)
        importlib.invalidate_caches()

    def load(self) -> None:
        """Import all of it."""
        for name in self.surface.modules:
            importlib.import_module(name)

    def modules(self) -> list[ModuleType]:
        """What of it is imported."""
        roots = {self.surface.framework, *(name.split(".")[0] for name in self.surface.modules)}
        return [module for name, module in list(sys.modules.items()) if name.split(".")[0] in roots]

    def holdings(self) -> dict[tuple[int, str], Any]:
        """Every attribute of every module and class, what Ray has captured of them included: (place, name) to object.

        The key of a place is the id of the holder, which lives as long as the module does.
        """
        return {(id(holder), name): value for holder in self._holders() for name, value in _contents(holder)}

    def _holders(self) -> Iterator[Any]:
        seen: set[int] = set()
        waiting: list[Any] = list(self.modules())
        while waiting:
            holder = waiting.pop()
            if id(holder) in seen:
                continue
            seen.add(id(holder))
            yield holder
            for _, value in _contents(holder):
                waiting += [one for one in _places_in(value) if getattr(one, "__module__", None) != outside.__name__]


def _places_in(value: Any) -> list[Any]:
    """What a value holds that a patch may replace."""
    if isinstance(value, type):
        return [value]
    if isinstance(value, FunctionType) and value.__closure__:
        return list(value.__closure__)
    if type(value).__name__ == "RemoteFunction":
        return [value]
    modified = modified_class(value)
    return [modified] if modified is not None else []


def _contents(holder: Any) -> list[tuple[str, Any]]:
    if isinstance(holder, (ModuleType, type)):
        # Caches of the abc module and of Python itself, which reading may change.
        ignored = ("_abc_impl", "__dict__", "__weakref__", "__builtins__", "__abstractmethods__")
        return [(name, value) for name, value in list(vars(holder).items()) if name not in ignored]
    if hasattr(holder, "cell_contents"):
        return [("cell_contents", holder.cell_contents)]
    return [("_function", holder._function)]


def modified_class(value: Any) -> type | None:
    """The class that Ray has made of a user's class under `@ray.remote`."""
    metadata = getattr(value, "__dict__", {}).get("__ray_metadata__") if not isinstance(value, type) else None
    return getattr(metadata, "modified_class", None)


class Called(NamedTuple):
    """A call, and what it is expected to record: name, stage and error of ranges, in order."""

    ranges: list[tuple[str, str | None, bool]]
    call: Callable[[], Any]


def looked_up(path: str) -> Any:
    """What `module:qualname` gives to who asks for it: a function, or one bound to its class or to an instance."""
    module, _, qualname = path.partition(":")
    holder: Any = sys.modules[module]
    *parents, last = qualname.split(".")
    for part in parents:
        value = getattr(holder, part)
        holder = modified_class(value) or value
    if not parents:
        value = getattr(holder, last)
        return getattr(value, "_function", value)
    raw = inspect.getattr_static(holder, last)
    return getattr(holder, last) if isinstance(raw, (staticmethod, classmethod)) else raw


def called(target: Target, symbol: Symbol) -> Called:
    """How to call one of a target's functions, and which ranges that makes.

    Args:
        target: Whose function.
        symbol: Which one.
    """
    parent = target.qualname.rpartition(".")[0]
    name = symbol.qualname.rpartition(".")[2] if "*" in target.qualname else target.qualname.rpartition(".")[2]
    path = f"{target.module}:{parent}.{name}" if parent else f"{target.module}:{name}"
    ranges = [(target.name or path.partition(":")[2], target.stage, False)]
    if target.kind in (DELEGATE, VALUE, WRAP):
        ranges = []
    if target.kind == CONTEXT:
        ranges = [("gen", target.stage or "actor_generate", False)]
        return Called(ranges, lambda: _entered(looked_up(path), symbol))
    return Called(ranges, lambda: _result(looked_up(path), parent and _owner(path), symbol))


def _owner(path: str) -> type:
    module, _, qualname = path.partition(":")
    value = getattr(sys.modules[module], qualname.split(".")[0])
    cls: type = modified_class(value) or value
    return cls


def _entered(function: Any, symbol: Symbol) -> Any:
    with function("gen", *_arguments(symbol.record["params"][1:])[0]) as given:
        return given


def _result(function: Any, owner: Any, symbol: Symbol) -> Any:
    parameters = list(symbol.record["params"])
    if owner:
        is_bound = "staticmethod" in symbol.decorators or "classmethod" in symbol.decorators
        parameters = parameters if "staticmethod" in symbol.decorators else parameters[1:]
        first = [] if is_bound else [instance(owner)]
        if isinstance(function, property):
            return function.fget(*first) if function.fget else None
    else:
        first = []
    args, kwargs = _arguments(parameters)
    return _driven(function(*first, *args, **kwargs))


def _driven(result: Any) -> Any:
    """Run what a call has given to its end."""
    if inspect.iscoroutine(result):
        return asyncio.run(_awaited(result))
    if isinstance(result, GeneratorType):
        return list(result)
    if inspect.isasyncgen(result):
        return asyncio.run(_listed(result))
    return result


async def _awaited(coroutine: Any) -> Any:
    result = await coroutine
    return await _listed(result) if inspect.isasyncgen(result) else result


async def _listed(generator: Any) -> list[Any]:
    return [one async for one in generator]


def _arguments(parameters: list[str]) -> tuple[list[str], dict[str, str]]:
    """A text for each parameter that needs a value."""
    args: list[str] = []
    kwargs: dict[str, str] = {}
    is_keyword_only = False
    for text in parameters:
        if text.startswith("*"):
            is_keyword_only = True
        elif not text.endswith("="):
            kwargs.update({text: "x"} if is_keyword_only else {})
            args += [] if is_keyword_only else ["x"]
    return args, kwargs


def instance(cls: type) -> Any:
    """One of a class, whose `__init__` has not run; abstract methods do not count."""
    if inspect.isabstract(cls):
        cls = type(cls)("Concrete", (cls,), {"__module__": cls.__module__})
        cls.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    builtin = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    return builtin.__new__(cls)


def flush() -> None:
    """Write what is coalesced, so that a call's record is there right after it."""
    if hasattr(engine, "flush_coalesced"):
        engine.flush_coalesced()
