"""Decoration: what is decorated gets ranges and stays what it was: function, coroutine function, property, class.

Every wrapper is a plain Python function of the same signature, because Ray and cloudpickle lose anything else.
Decorating never raises: what cannot be decorated is returned as it is, and logged.
"""

from __future__ import annotations

import functools
import sys
import types
from types import FunctionType
from typing import Any, NamedTuple

from .. import faults
from ..engine.choose import engine
from ..host import names
from . import calls, signatures, state

_LIKE_FUNCTIONS = (
    type, FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    type(functools.lru_cache(lambda: None)),
)  # fmt: skip
# lru_cache keeps these on its type, where copying attributes does not find them.
_CACHE_CONTROLS = ("cache_info", "cache_clear", "cache_parameters")
# What was decorated last where Ray is.
_below: list[FunctionType] = []


class RangeSettings(NamedTuple):
    """What ranges of a decorated function look like; `name` None: the function's own."""

    name: Any = None
    stage: Any = None
    domain: Any = "default"
    stream: object = None
    attributes: calls.Attributes | None = None


def decorate_target(settings: tuple[object, object, object, object, Any], target: Any) -> Any:
    """Give `target` ranges, as `mstx_timer` and a `Range` used as a decorator do. `settings`: of `RangeSettings`."""
    with faults.noted("decorating"):
        return _decorate_target(target, RangeSettings(*settings))
    return target


def _decorate_target(target: Any, settings: RangeSettings) -> Any:
    if settings.name is target:  # `@stage` and `@mstx_range`, without a name
        own = _name_of(getattr(target, "__func__", target))
        settings = settings._replace(name=own, stage=own if settings.stage is target else settings.stage)
    if isinstance(target, type):
        return _timed_class(target, settings)
    if isinstance(target, (staticmethod, classmethod)):
        return _copy_marks(target, type(target)(_wrap_inner(target.__func__, settings)))
    if isinstance(target, property):
        accessors = (target.fget, target.fset, target.fdel)
        timed = [None if accessor is None else _wrap_inner(accessor, settings) for accessor in accessors]
        return type(target)(timed[0], timed[1], timed[2], target.__doc__)
    if isinstance(target, (functools.partial, functools.partialmethod)):
        # A partial stays one: unlike a function it does not bind when it is looked up in a class.
        return _copy_marks(target, type(target)(_wrap_inner(target.func, settings), *target.args, **target.keywords))
    if isinstance(target, functools.cached_property):
        cached = type(target)(_wrap_inner(target.func, settings))
        cached.attrname = target.attrname
        return cached
    return _timed_callable(target, settings)


def _timed_class(cls: type, settings: RangeSettings) -> type:
    """Decorate the public methods that `cls` itself defines; one that is decorated already keeps the name it has."""
    for key, member in list(vars(cls).items()):
        inner = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
        if key.startswith("_") or not isinstance(inner, FunctionType) or signatures.held_by(inner):
            continue
        if _is_alias(inner, cls):
            continue
        own = settings if settings.name is None else settings._replace(name=f"{names.as_text(settings.name)}.{key}")
        setattr(cls, key, decorate_target(own, member))
    return cls


def _is_alias(function: FunctionType, cls: type) -> bool:
    """Is it a function from elsewhere that the class only names? One that a decorator has made inside of it is not."""
    scope, own = function.__qualname__.rpartition(".")[0], cls.__qualname__
    is_made = scope.endswith("<locals>") and scope != own.rpartition(".")[0]
    return not is_made and not f"{scope}.".startswith(f"{own}.")


def _wrap_inner(target: Any, settings: RangeSettings) -> Any:
    """What a partial, a static method and the like hold. A class there is called, its methods stay as they are."""
    return _timed_callable(target, settings) if isinstance(target, type) else _decorate_target(target, settings)


def _copy_marks(source: Any, copy: Any) -> Any:
    """Attributes that a user or a framework has set on a decorator object."""
    for key, value in getattr(source, "__dict__", {}).items():
        if key not in vars(copy) and key not in functools.WRAPPER_ASSIGNMENTS:
            setattr(copy, key, value)
    return copy


def _timed_callable(target: Any, settings: RangeSettings) -> Any:
    advice = _why_not(target)
    if advice is not None:
        faults.count_event("decorating")
        faults.say_once(f"a {type(target).__name__} is left as it is, without ranges: {advice}")
        return target
    name = settings.name if settings.name is not None else _name_of(target)
    site = engine.intern(name, settings.stage, settings.domain)
    return target if _has_range_of(site, target) else _make_wrapper(target, site, settings)


def _why_not(target: Any) -> str | None:
    """Why what is no function stays what it is; None for what a function can stand for."""
    if not callable(target):
        return "it cannot be called"
    if "ray" in {base.__module__.partition(".")[0] for base in type(target).__mro__}:
        return "put @mstx_timer below @ray.remote"
    # Also those of Cython and nanobind, and what poses as a function, as wrapt's do. What else can be called can do
    # more than that: kernels that are compiled take a grid by subscript, tasks and modules have methods.
    kind = getattr(target, "__class__", type(target))
    is_a_function = issubclass(kind, _LIKE_FUNCTIONS) or kind.__name__.endswith(("function_or_method", "_func"))
    return None if is_a_function else "decorate the function that it calls, or write `with mstx_range(…)` around calls"


def _name_of(target: Any) -> Any:
    return getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or type(target).__qualname__


def _has_range_of(site: Any, function: Any) -> bool:
    """Has `function` been decorated with the same name, stage and domain before?"""
    while (held := signatures.held_by(function)) is not None:
        if (held["site"].name, held["site"].stage, held["site"].domain) == (site.name, site.stage, site.domain):
            return True
        function = held["function"]
    return False


def _make_wrapper(target: Any, site: Any, settings: RangeSettings) -> FunctionType:
    for above in (*_below,):  # Ray reads what `@ray.method` says further below: said as the next is decorated
        inner = getattr(vars(above).get("__wrapped__"), "__dict__", {})
        if any(str(key).startswith("__ray_") and key not in inner for key in vars(above)):
            faults.say_once(f"put @mstx_timer above @ray.method, which Ray does not see below {above.__qualname__}")
    held = {
        # Pickled as names of `state`: a wrapper that travels uses the engine of where it arrives.
        **{role: getattr(state, role) for role in state.HELD},
        "site": site,
        "function": target,
        "stream": settings.stream,
        # Of constant ones a copy that nobody changes: all calls share it.
        "attributes": dict(settings.attributes) if type(settings.attributes) is dict else settings.attributes,
        "evaluate": calls.evaluate_attributes,
        "in_pieces": calls.Pieces,
        "awaiting": calls.drive_awaitable,
        "handing": calls.call_and_hand,
    }
    name = str(getattr(target, "__name__", None) or type(target).__name__)
    wrapper = signatures.make_wrapper(signatures.interface_of(target), name, held)
    wrapper.__qualname__ = name
    functools.update_wrapper(wrapper, target)
    for control in _CACHE_CONTROLS:
        if hasattr(target, control) and not hasattr(wrapper, control):
            setattr(wrapper, control, getattr(target, control))
    _below[:] = [wrapper] * ("ray.actor" in sys.modules)
    return wrapper
