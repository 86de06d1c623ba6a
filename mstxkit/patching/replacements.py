"""What is replaced, in all places that hold it, and the way back.

Copies of a function are names made by `from x import y`, aliases in classes, and what Ray captured when it made an
actor class. They are found by identity in what is stored; no attribute is looked up, which would wake lazy modules.
"""

from __future__ import annotations

import functools
import sys
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from .. import faults
from ..host.imports import being_imported, held_in
from ..marking import signatures
from .holders import Exchange, hand_over
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
    before: Any  # what `undo_changes` puts back
    after: Any  # what is put there
    is_own: bool = True  # stored in the holder itself; otherwise `undo_changes` deletes it
    problems: tuple[str, ...] = ()  # what `after` cannot read of its calls, as its target wants

    def make(self) -> None:
        """Put `after` there."""
        setattr(self.holder, self.attribute, self.after)

    def undo(self) -> bool:
        """Put `before` back; False where it is somebody else's now, which does not call ours, and left so."""
        stored = self.stored()
        if stored is not self.after:
            return leads_to(stored, self.after)  # it gets `before` like others who hold ours
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


def leads_to(raw: Any, after: Any) -> bool:
    """Is it ours, or does it hold ours, to call it?"""
    wanted, waiting, seen = function_in(after), [raw], 0
    while waiting and seen < 64:
        value, seen = waiting.pop(0), seen + 1
        function = function_in(value)
        if value is after or function is wanted:
            return True
        if isinstance(function, FunctionType):
            if any(function.__globals__.get(name) is wanted for name in function.__code__.co_names):
                return True
            cells = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
            held = [vars(function).get("__wrapped__"), *cells, *(function.__defaults__ or ())]
            waiting += [part for part in held if isinstance(part, _MAY_CALL)]
    return False


_MAY_CALL = (FunctionType, MethodType, functools.partial, staticmethod, classmethod, property)


def in_decorator(function: FunctionType, content: Any, before: Any, after: Any) -> list[Replacement]:
    """Where a function holds `content`, which it wraps: in the closure cells, and as `__wrapped__`."""
    cells = [cell for cell in function.__closure__ or () if cell != CellType() and cell.cell_contents is content]
    held = [Replacement(cell, "cell_contents", before, after) for cell in cells]
    is_wrapped = vars(function).get("__wrapped__") is content
    return [*held, Replacement(function, "__wrapped__", before, after)] if is_wrapped else held


def in_modules(
    replaced: Mapping[int, tuple[Any, Any]], modules: Iterable[ModuleType], may_be_remote: bool = True
) -> list[Replacement]:
    """The names in `modules` that are bound to one of these functions.
    `replaced`: `id` of a function to that function and what takes its place. `may_be_remote`: may Ray remote functions
    be made of them?

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


def loaded_modules(near: str = "") -> list[ModuleType]:
    """Every module imported so far, once, also where `sys.modules` has two names for it. `near`: only those that may
    have copied a name of this one, just imported: its own package, and all in the middle of an import.
    """
    objects: list[object] = list(sys.modules.values())
    if near:
        root = near.partition(".")[0]
        own = [module for name, module in list(sys.modules.items()) if f"{name}.".startswith(f"{root}.")]
        objects = [*own, sys.modules.get("__main__"), *being_imported()]
    # Anything can be put into `sys.modules`. Not isinstance, which asks an object for its `__class__`.
    modules: Any = {id(module): module for module in objects if issubclass(type(module), ModuleType)}
    return list(modules.values())


def in_classes(cls: type, before: Any, after: Any) -> list[Replacement]:
    """Other names of a method in its class and in classes derived from it, Ray's copies included."""
    changes, seen, waiting = list[Replacement](), set[type](), [cls]
    while waiting:
        holder = waiting.pop()
        if holder in seen:
            continue
        seen.add(holder)
        waiting += type.__subclasses__(holder)
        for name, value in list(vars(holder).items()):
            if value is before:
                changes.append(Replacement(holder, name, before, after))
            elif isinstance(value, FunctionType) and value.__closure__ and value.__code__.co_name == _CAPTURING:
                is_rays = value.__code__.co_filename.replace("\\", "/").endswith(_CAPTURING_FILE)
                changes += in_decorator(value, before, before, after) if is_rays else []
    return changes


def undo_changes(changes: Sequence[Replacement]) -> None:
    """Undo these, the last first. What somebody else has replaced since stays as it is, with one warning."""
    for change in reversed(changes):
        if not change.undo():
            holder = change.holder
            name = getattr(holder, "__qualname__", getattr(holder, "__name__", type(holder).__name__))
            where = f"{name}.{change.attribute}"
            faults.warn_once("unpatch", f"{where} was replaced by somebody else since, and is left so")


def put_back(changes: Sequence[Replacement], gone: Sequence[Replacement] = ()) -> None:
    """Undo these, also where a wrapper was copied or is held since it was put in its place; of what is gone only that.

    Holders out of reach have our wrappers for good: they are calls without a range from now on.
    """
    undo_changes(changes)
    changes = [*changes, *gone]
    copies = in_modules(
        {id(c.after): (c.after, c.before) for c in changes if isinstance(c.after, FunctionType)}, loaded_modules()
    )
    for copy in copies:
        copy.make()
    for change in changes:
        _silence_wrapper(function_in(change.after))
    hand_over(
        find_exchanges([change._replace(before=change.after, after=change.before) for change in changes], changes)
    )


def _silence_wrapper(wrapper: Any) -> None:
    # A function of its own: whoever holds one of these is looked for after it.
    held = signatures.held_by(wrapper)
    if held is not None:
        inner = held["function"]
        if isinstance(inner, FunctionType) and inner.__dict__.get(AROUND_MARK) is inner:
            inner = inner.__dict__["__wrapped__"]  # the framework's, around which ours decides
        signatures.silence_wrapper(wrapper, inner)


def stand_on(undone: Sequence[Replacement], changes: Iterable[Replacement]) -> list[Replacement]:
    """These changes, where what was there before one is undone: what was there before that will be put back."""
    below = [(c, next((lower for lower in undone if lower.after is c.before), None)) for c in changes]
    return [change if lower is None else change._replace(before=lower.before) for change, lower in below]


def find_exchanges(changes: Sequence[Replacement], kept: Sequence[Replacement]) -> list[Exchange]:
    """What whoever else holds one of these functions is to get for it, each once. `kept`: all that hold them and are
    ours.
    """
    pairs: dict[Any, Replacement] = {}
    for change in changes:
        if _is_ours(function_in(change.before)) or _is_ours(function_in(change.after)):
            pairs.setdefault(function_in(change.before), change)
    held = {id(old): sum(value is old for replacement in kept for value in replacement) for old in pairs}
    return [
        Exchange(old, function_in(change.after), held[id(old)] + (change.before is not old))
        for old, change in pairs.items()
    ]


def _is_ours(function: Any) -> bool:
    """Did we make it? What a framework's own range is around goes on being beneath that."""
    if not isinstance(function, FunctionType):
        return False
    return signatures.held_by(function) is not None or any(name.startswith("__mstxkit") for name in vars(function))
