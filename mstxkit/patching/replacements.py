"""What is replaced, in all places that hold it, and the way back.

Copies of a function are names made by `from x import y`, aliases in classes, and what Ray captured when it made an
actor class. They are found by identity in what is stored; no attribute is looked up, which would wake lazy modules.
"""

from __future__ import annotations

import functools
import gc
import sys
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

from .. import faults
from ..host.imports import being_imported, held_in
from ..marking import signatures
from .reach import function_in, is_remote_function

# Ray 2.42.1 and 2.60.0, `ray/util/tracing/tracing_helper.py`, `_inject_tracing_into_class`: each method of an actor
# class is replaced by `_resume_span`, whose closure cell holds the method, whether or not tracing is on.
_CAPTURING, _CAPTURING_FILE = "_resume_span", "ray/util/tracing/tracing_helper.py"
# On a function around which one of ours decides, itself: wrappers that copy its attributes are none.
AROUND_MARK = "__mstxkit_around__"


class Replacement(NamedTuple):
    """What is stored at `attribute` of `holder` (or in a closure cell, `attribute` "cell_contents")."""

    holder: Any
    attribute: str
    before: Any  # what `undo` puts back
    after: Any  # what is put there
    is_own: bool = True  # stored in the holder itself; otherwise `undo` deletes it
    problems: tuple[str, ...] = ()  # what `after` cannot read of its calls, as its target wants

    def make(self) -> None:
        """Put `after` there."""
        setattr(self.holder, self.attribute, self.after)

    def undo(self) -> bool:
        """Put `before` back, also into a wrapper around `after`; False where it is somebody else's now, and left so."""
        stored = self.stored()
        if stored is not self.after:
            return _put_into_wrapper(stored, self.after, self.before)
        if self.is_own:
            setattr(self.holder, self.attribute, self.before)
        else:
            delattr(self.holder, self.attribute)
        return True

    def stored(self) -> Any:
        """What is there now."""
        if self.attribute == "cell_contents":
            return self.holder.cell_contents
        return vars(self.holder).get(self.attribute)


def _put_into_wrapper(wrapper: Any, after: Any, before: Any) -> bool:
    """Replace `after` by `before` where a wrapper, or one inside it, holds it; False where none does.

    Why: the first instance of a torch optimizer's class wraps its `step`, which may be ours by then (torch 2.13.0).
    """
    while isinstance(wrapper, FunctionType) and wrapper is not after:
        cells = cells_holding(wrapper, after)
        for cell in cells:
            cell.cell_contents = before
        inner = wrapper.__dict__.get("__wrapped__")
        if cells and inner is after:
            wrapper.__dict__["__wrapped__"] = before
        if cells:
            return True
        wrapper = inner
    return False


def cells_holding(function: FunctionType, content: Any) -> list[CellType]:
    """The cells of a closure that hold this object."""
    return [cell for cell in function.__closure__ or () if cell != CellType() and cell.cell_contents is content]


def in_modules(
    replaced: Mapping[int, tuple[Any, Any]], modules: Iterable[ModuleType], may_be_remote: bool = True
) -> list[Replacement]:
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
        values = list(held_in(module).values())
        # Most modules hold neither, and there are thousands of them: that much is found out without a Python loop.
        if replaced.keys().isdisjoint(map(id, values)) and not (remote and remote in map(id, map(type, values))):
            continue
        for name, value in list(held_in(module).items()):
            if id(value) in replaced:
                changes.append(Replacement(module, name, *replaced[id(value)]))
            elif is_remote_function(value) and id(value._function) in replaced:
                changes.append(Replacement(value, "_function", *replaced[id(value._function)]))
    return changes


def loaded_modules() -> list[ModuleType]:
    """Every module imported so far, once, also where `sys.modules` has two names for it."""
    return _modules_among(list(sys.modules.values()))


def _modules_among(objects: Iterable[object]) -> list[ModuleType]:
    """Each once: anything can be put into `sys.modules`."""
    # Not isinstance, which asks an object for its `__class__`.
    modules: Any = {id(module): module for module in objects if issubclass(type(module), ModuleType)}
    return list(modules.values())


def near(name: str) -> list[ModuleType]:
    """Modules that may have copied a name of one just imported: its own package, and all in the middle of an import."""
    root = name.partition(".")[0]
    below = f"{root}."
    own = [module for key, module in list(sys.modules.items()) if key == root or str(key).startswith(below)]
    return _modules_among([*own, sys.modules.get("__main__"), *being_imported()])


def in_classes(cls: type, before: Any, after: Any) -> list[Replacement]:
    """Other names of a method in its class and in classes derived from it, Ray's copies included."""
    changes = []
    for holder in (cls, *_derived(cls)):
        for name, value in list(vars(holder).items()):
            if value is before:
                changes.append(Replacement(holder, name, before, after))
            else:
                changes += _in_copy_by_ray(value, before, after)
    return changes


def _derived(cls: type) -> Iterator[type]:
    seen: set[type] = set()
    waiting: list[type] = type.__subclasses__(cls)
    while waiting:
        derived = waiting.pop()
        if derived not in seen:
            seen.add(derived)
            waiting += type.__subclasses__(derived)
            yield derived


def _in_copy_by_ray(value: Any, before: Any, after: Any) -> list[Replacement]:
    """Where Ray's copy of a method holds it: in a closure cell, which it calls, and as `__wrapped__`."""
    if not isinstance(value, FunctionType) or value.__code__.co_name != _CAPTURING or not value.__closure__:
        return []
    if not value.__code__.co_filename.replace("\\", "/").endswith(_CAPTURING_FILE):
        return []
    held = [Replacement(cell, "cell_contents", before, after) for cell in cells_holding(value, before)]
    is_wrapped = vars(value).get("__wrapped__") is before
    return [*held, Replacement(value, "__wrapped__", before, after)] if is_wrapped else held


def undo(changes: Sequence[Replacement]) -> None:
    """Undo these, the last first. What somebody else has replaced since stays as it is, with one warning."""
    for change in reversed(changes):
        if not change.undo():
            holder = change.holder
            name = getattr(holder, "__qualname__", getattr(holder, "__name__", type(holder).__name__))
            where = f"{name}.{change.attribute}"
            faults.warn_once("unpatch", f"{where} was replaced by somebody else since, and is left so")


def put_back(changes: Sequence[Replacement]) -> None:
    """Undo these, also where a wrapper was copied after it was put in its place.

    Copies out of reach hold our wrappers for good: they are calls without a range from now on.
    """
    undo(changes)
    wrappers = {id(c.after): (c.after, c.before) for c in changes if isinstance(c.after, FunctionType)}
    copies = in_modules(wrappers, loaded_modules())
    for change in changes:
        if isinstance(change.holder, type):
            copies += in_classes(change.holder, change.after, change.before)
    for copy in copies:
        copy.make()
    for wrapper in {id(change.after): change.after for change in changes}.values():
        function = function_in(wrapper)
        held = signatures.held_by(function)
        if held is not None:
            inner = held["function"]
            if isinstance(inner, FunctionType) and inner.__dict__.get(AROUND_MARK) is inner:
                inner = inner.__dict__["__wrapped__"]  # the framework's, around which ours decides
            signatures.silence(function, inner)


def held_elsewhere(change: Replacement, changes: Iterable[Replacement]) -> str:
    """The other holders of the function that `change` has replaced, in words; "" for none.

    Args:
        change: What replaced it where a target names it.
        changes: All changes of that target: they hold it too.

    Cost: none without any; else a walk over all objects of the garbage collector, tens of milliseconds.
    """
    function = change.before
    if not isinstance(function, FunctionType) or sys.getrefcount(function) <= _EXPECTED_REFERENCES:
        return ""
    wrapper = function_in(change.after)
    own = [getattr(wrapper, "__globals__", None), *(getattr(wrapper, "__closure__", None) or ())]
    counted = _holders(function, [*changes, vars(wrapper), *own])
    classes = _derived(change.holder) if isinstance(change.holder, type) else ()
    if any("__ray_actor_class__" in vars(derived) for derived in classes):
        counted.pop(_HOLDERS[dict], None)  # Ray's table of methods, which is for their signatures
    held = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
    return f"also held, without a range, by: {held}" if held else ""


# Ours (wrapper's globals, its __wrapped__, the change), the code that asks, and what every function may have.
_EXPECTED_REFERENCES = 5


def _holders(function: FunctionType, ours: Iterable[Any]) -> dict[str, int]:
    own = {id(holder) for holder in ours}
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
