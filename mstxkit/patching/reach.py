"""From a target's path to the places that hold what it names; why not, where there is none.

Nothing of a framework runs but what an attribute of a module may run. Paths are resolved by wrapt, which finds in a
class what is stored there, not what looking it up would give: by that module of it alone, as all of it loads asyncio.
"""

from __future__ import annotations

import functools
import sys
from fnmatch import fnmatchcase
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from .declare import VALUE, Target
from .report import Reason

# What `wrapping.decorate_target` turns into the same kind of thing with ranges.
_REPLACEABLE = (
    FunctionType, staticmethod, classmethod, property, functools.partialmethod, functools.cached_property,
    type(functools.lru_cache(lambda: None)),
)  # fmt: skip
_FUNCTIONS_IN_C = ("builtin_function_or_method", "method_descriptor", "classmethod_descriptor")
_SLOTS_IN_C = ("wrapper_descriptor", "method-wrapper", "member_descriptor", "getset_descriptor")
_IN_C = dict.fromkeys(_FUNCTIONS_IN_C, "it is implemented in C")
_IN_C.update(dict.fromkeys(_SLOTS_IN_C, "it is a slot implemented in C"))


class FunctionPlace(NamedTuple):
    """Where a function is held."""

    holder: Any  # module, class, or Ray remote function
    attribute: str  # its name there
    raw: Any  # what is stored there
    is_own: bool  # in the holder itself; a class may also inherit it, and putting back then deletes the attribute
    qualname: str  # `Class.method`


class Unreached(Exception):
    """A target names nothing that can be replaced."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def find_places(target: Target, cls: type | None = None) -> list[FunctionPlace]:
    """The places of a target whose module is imported. Raises Unreached with the reason where there is none.

    `cls`: look into this class instead of the one of that name in the module: it arrived by value.
    """
    parents, _, last = target.qualname.rpartition(".")
    holder = _find_holder(sys.modules[target.module], parents) if cls is None else cls
    if "*" in last:
        return _find_matching(holder, parents, last)
    place = _make_place(holder, last, target.qualname)
    raw = place.raw
    if target.kind == VALUE and cls is None:
        return [place]
    if isinstance(raw, type) or class_behind(raw) is not raw:
        raise Unreached(Reason.NOT_PATCHABLE, "it is a class: name its methods, or Class.*")
    if not isinstance(raw, _REPLACEABLE) or isinstance(function_in(raw), type):
        kind = type(raw).__name__
        raise Unreached(Reason.NOT_PATCHABLE, _IN_C.get(kind, f"it is a {kind}, not a function"))
    function = function_in(raw)
    if not isinstance(function, (FunctionType, *_REPLACEABLE)):
        raise Unreached(Reason.NOT_PATCHABLE, f"it holds a {type(function).__name__}, which is no Python function")
    return [place]


def symbol_exists(path: str) -> bool:
    """Does an imported module hold this symbol?"""
    module, _, qualname = path.partition(":")
    parents, _, last = qualname.rpartition(".")
    try:
        _make_place(_find_holder(sys.modules[module], parents), last, qualname)
        return True
    except Exception:  # not imported, not there, or what `sys.modules` holds of it is no module
        return False


def _find_holder(module: ModuleType, parents: str) -> Any:
    holder: Any = module
    for part in parents.split(".") if parents else ():
        holder = class_behind(_resolve_attribute(holder, part))
        if not isinstance(holder, type):
            raise Unreached(Reason.NOT_PATCHABLE, f"{part} is no class, but a {type(holder).__name__}")
    return holder


def _resolve_attribute(holder: Any, attribute: str) -> Any:
    from wrapt.patches import resolve_path  # type: ignore[import-untyped]

    try:
        return resolve_path(holder, attribute)[2]
    except AttributeError:
        raise Unreached(Reason.ABSENT) from None
    except Exception as exc:  # a module's own `__getattr__`
        raise Unreached(Reason.FAILED, f"{type(exc).__name__}: {exc}") from exc


def _make_place(holder: Any, attribute: str, qualname: str) -> FunctionPlace:
    is_own = attribute in vars(holder)
    raw = vars(holder)[attribute] if is_own else _resolve_attribute(holder, attribute)
    if is_remote_function(raw):
        return FunctionPlace(raw, "_function", raw._function, True, qualname)
    return FunctionPlace(holder, attribute, raw, is_own, qualname)


def _find_matching(holder: Any, parents: str, pattern: str) -> list[FunctionPlace]:
    """What a wildcard matches: Python functions that the holder defines itself, not those that a module imports."""
    places = []
    for name, raw in list(vars(holder).items()):
        is_own = not isinstance(holder, ModuleType) or getattr(raw, "__module__", None) == holder.__name__
        if is_own and fits_pattern(name, pattern) and isinstance(raw, (FunctionType, staticmethod, classmethod)):
            places.append(FunctionPlace(holder, name, raw, True, f"{parents}.{name}" if parents else name))
    if not places:
        raise Unreached(Reason.ABSENT, f"nothing matches {pattern}")
    return places


def fits_pattern(name: str, pattern: str) -> bool:
    """Does a wildcard match this name? `_name` only by a pattern that begins so."""
    return fnmatchcase(name, pattern) and (pattern[0] == "_" or not name.startswith("_"))


def function_in(raw: Any) -> Any:
    """The function behind a static method, a property and the like."""
    for attribute in ("__func__", "fget", "func"):
        inner = getattr(raw, attribute, None) if not isinstance(raw, FunctionType) else None
        if inner is not None:
            return inner
    return raw


def is_imported(cls: type) -> bool:
    """Is this the class of its name in its module? What arrived by value is not, though it bears the same name."""
    holder: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        stored = vars(holder).get(part) if isinstance(holder, (ModuleType, type)) else None
        holder = None if stored is None else class_behind(stored)
    return holder is cls


def class_behind(value: Any) -> Any:
    """The user's class behind Ray's `ActorClass` object, to which `@ray.remote class X` binds the name X.

    Source: Ray 2.42.1 and 2.60.0, `ray/actor.py`: `_make_actor` builds `class Class(UserClass)`, kept as
    `__ray_metadata__.modified_class`, with `__ray_actor_class__ = UserClass`.
    """
    if not isinstance(value, type) and "__ray_metadata__" in getattr(value, "__dict__", {}):
        modified = getattr(vars(value)["__ray_metadata__"], "modified_class", None)
        return getattr(modified, "__ray_actor_class__", modified) or value
    return value


def is_remote_function(value: Any) -> bool:
    """Is it what `@ray.remote` makes of a function?

    Source: Ray 2.42.1 and 2.60.0, `ray/remote_function.py`: class `RemoteFunction`, whose `_function` is the user's.
    """
    kind = type(value)
    return kind.__name__ == "RemoteFunction" and kind.__module__ == "ray.remote_function"
