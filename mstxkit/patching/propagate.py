"""Copies of a function: names made by `from x import y`, aliases in classes, and what Ray captured when it made an
actor class. Found by identity in what is stored; no attribute is looked up, which would wake lazy modules.
"""

from __future__ import annotations

import functools
import gc
import sys
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Iterable, Iterator, Mapping

from .apply import Change
from .reach import function_in, is_remote_function

# Ray 2.42.1 and 2.60.0, `ray/util/tracing/tracing_helper.py`, `_inject_tracing_into_class`: each method of an actor
# class is replaced by `_resume_span`, whose closure cell holds the method, whether or not tracing is on.
_CAPTURING, _CAPTURING_FILE = "_resume_span", "ray/util/tracing/tracing_helper.py"


def in_modules(
    replaced: Mapping[int, tuple[Any, Any]], modules: Iterable[ModuleType], may_be_remote: bool = True
) -> list[Change]:
    """The names in `modules` that are bound to one of these functions.

    Args:
        replaced: `id` of a function to that function and what takes its place.
        modules: Where to look.
        may_be_remote: May Ray remote functions be made of them?

    Cost: about 2 µs a module, of which there are thousands; three times that where remote functions are looked for.
    """
    changes = []
    kind = getattr(sys.modules.get("ray.remote_function"), "RemoteFunction", None) if may_be_remote else None
    remote = 0 if kind is None else id(kind)
    for module in modules:
        values = list(vars(module).values())
        # Most modules hold neither, and there are thousands of them: that much is found out without a Python loop.
        if replaced.keys().isdisjoint(map(id, values)) and not (remote and remote in map(id, map(type, values))):
            continue
        for name, value in list(vars(module).items()):
            if id(value) in replaced:
                changes.append(Change(module, name, *replaced[id(value)]))
            elif is_remote_function(value) and id(value._function) in replaced:
                changes.append(Change(value, "_function", *replaced[id(value._function)]))
    return changes


def loaded_modules() -> list[ModuleType]:
    """Every module imported so far, once, also where `sys.modules` has two names for it."""
    modules: list[object] = list(sys.modules.values())  # anything can be put there
    return list({id(module): module for module in modules if isinstance(module, ModuleType)}.values())


def near(module: ModuleType) -> list[ModuleType]:
    """Who may have copied a name of a module that has only just been imported: its own package, and what is in the
    middle of an import itself.
    """
    root = module.__name__.partition(".")[0]
    return [
        other
        for other in loaded_modules()
        if other.__name__.partition(".")[0] == root
        or getattr(vars(other).get("__spec__"), "_initializing", False)
        or other.__name__ == "__main__"
    ]


def in_classes(cls: type, before: Any, after: Any) -> list[Change]:
    """Other names of a method in its class and in classes derived from it, Ray's copies included."""
    changes = []
    for one in (cls, *_derived(cls)):
        for name, value in list(vars(one).items()):
            if value is before:
                changes.append(Change(one, name, before, after))
            else:
                changes += _in_copy_by_ray(value, before, after)
    return changes


def _derived(cls: type) -> Iterator[type]:
    seen: set[type] = set()
    waiting: list[type] = type.__subclasses__(cls)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += type.__subclasses__(one)
            yield one


def _in_copy_by_ray(value: Any, before: Any, after: Any) -> list[Change]:
    """Where Ray's copy of a method holds it: in a closure cell, which it calls, and as `__wrapped__`."""
    if not isinstance(value, FunctionType) or value.__code__.co_name != _CAPTURING or not value.__closure__:
        return []
    if not value.__code__.co_filename.replace("\\", "/").endswith(_CAPTURING_FILE):
        return []
    held = [Change(cell, "cell_contents", before, after) for cell in value.__closure__ if _contents(cell) is before]
    is_wrapped = vars(value).get("__wrapped__") is before
    return [*held, Change(value, "__wrapped__", before, after)] if is_wrapped else held


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def held_elsewhere(change: Change, changes: Iterable[Change]) -> str:
    """Who else holds the function that `change` has replaced, in words; "" where nobody does.

    Args:
        change: What replaced it where a target names it.
        changes: All changes of that target: they hold it too.

    Cost: none where nobody does; else a walk over all objects of the garbage collector, tens of milliseconds in a
    large process.
    """
    function = change.before
    if not isinstance(function, FunctionType) or sys.getrefcount(function) <= _EXPECTED_REFERENCES:
        return ""
    wrapper = function_in(change.after)
    counted = _holders(function, [*changes, vars(wrapper), getattr(wrapper, "__globals__", None)])
    if isinstance(change.holder, type) and _is_actor_class(change.holder):
        counted.pop(_HOLDERS[dict], None)  # Ray's table of methods, which is for their signatures
    held = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
    return f"also held, without a range, by: {held}" if held else ""


# Ours (wrapper's globals, its __wrapped__, the change), the code that asks, and what every function may have.
_EXPECTED_REFERENCES = 5


def _is_actor_class(cls: type) -> bool:
    return any("__ray_actor_class__" in vars(one) for one in _derived(cls))


def _holders(function: FunctionType, known: Iterable[Any]) -> dict[str, int]:
    own = {id(one) for one in known}
    counted: dict[str, int] = {}
    for holder in gc.get_referrers(function):
        kind = _HOLDERS.get(type(holder))
        if kind is not None and id(holder) not in own:
            counted[kind] = counted.get(kind, 0) + 1
    return counted


_HOLDERS: dict[type, str] = {
    functools.partial: "functools.partial", MethodType: "bound method", list: "list", tuple: "tuple", dict: "dict",
    set: "set", CellType: "closure",
}  # fmt: skip
