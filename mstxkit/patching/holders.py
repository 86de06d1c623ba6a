"""Whoever holds a function that is replaced gets what takes its place: dicts, lists, partials, defaults, registries.

Else it could not be pickled any more, as pickle finds another object by its names; a table keyed by it would not know
what its module gives; and calls of it would be no ranges. The same way back, when patching is undone.

Containers are changed as their built-in types do it, past methods that override that. What cannot be changed is made
anew for whoever holds that: tuples, frozen sets, bound methods. Out of reach is what a frame or code in C holds.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import OrderedDict, defaultdict, deque
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Iterable, Mapping, NamedTuple

from ..marking import signatures

# What is made anew is held by others, which may have to be made anew.
_DEEPEST = 5


class Exchange(NamedTuple):
    """Two objects, one of which takes the other's place."""

    old: Any
    new: Any
    references: int = 0  # to the old one, by whoever asks

    @property
    def is_held(self) -> bool:
        """Does anybody hold the old one but the new one, who asks, this object and this call?"""
        parts = {id(part): part for part in (*_walk_parts(self.old), *_walk_parts(self.new))}
        held = (part.values() if isinstance(part, dict) else [part.cell_contents] for part in parts.values())
        own = sum(value is self.old for values in held for value in values)
        return sys.getrefcount(self.old) > own + self.references + 2


def hand_over(exchanges: Iterable[Exchange]) -> None:
    """Give every holder of an old function the new one.

    Cost: none where nobody else holds one; else a walk over all objects of the garbage collector: a tenth of a second
    where torch and Ray are loaded.
    """
    waiting = [pair for pair in exchanges if isinstance(pair.old, FunctionType) and pair.is_held]
    own = {id(part) for pair in waiting for part in (*_walk_parts(pair.old), *_walk_parts(pair.new))}
    for _ in range(_DEEPEST):
        if waiting:
            new = {id(pair.old): pair.new for pair in waiting}
            olds = [pair.old for pair in waiting]
            own |= {id(waiting), id(olds)}
            made = [_give_new(holder, new) for holder in gc.get_referrers(*olds) if id(holder) not in own]
            waiting = [pair for pair in made if pair is not None]


def _walk_parts(function: Any) -> list[Any]:
    """What holds the function beneath a wrapper, all the way down: that must go on doing so."""
    parts: list[Any] = []
    while isinstance(function, FunctionType):
        is_ours = signatures.held_by(function) is not None
        cells = [cell for cell in function.__closure__ or () if cell != CellType()]
        parts += [vars(function), *cells, *([signatures.find_held(function)] if is_ours else [])]
        function = vars(function).get("__wrapped__")
    return parts


def _give_new(holder: Any, new: Mapping[int, Any]) -> Exchange | None:
    """Change a holder in its place; where that cannot be, what takes its place. `new`: by id of the old one."""
    kind = type(holder)
    if kind.__module__.startswith("mstxkit") or issubclass(kind, (type, ModuleType)):
        return None
    if issubclass(kind, dict):
        _give_dict(holder, new)
    elif issubclass(kind, (list, deque)):
        base: Any = list if issubclass(kind, list) else deque
        for place, value in enumerate(base.__iter__(holder)):
            base.__setitem__(holder, place, new.get(id(value), value))
    elif issubclass(kind, (tuple, frozenset)):
        base = tuple if issubclass(kind, tuple) else frozenset
        return Exchange(holder, base.__new__(kind, _exchange_values(base.__iter__(holder), new)))
    elif kind is set:
        for value in [value for value in holder if id(value) in new]:
            holder.remove(value)
            holder.add(new[id(value)])
    elif kind is MethodType:
        return Exchange(holder, MethodType(*_exchange_values((holder.__func__, holder.__self__), new)))
    elif issubclass(kind, functools.partial):
        state = (*_exchange_values((holder.func, holder.args), new), holder.keywords, vars(holder) or None)
        functools.partial.__setstate__(holder, state)  # type: ignore[attr-defined]
    elif kind is CellType:
        holder.cell_contents = new[id(holder.cell_contents)]
    elif kind is FunctionType:
        holder.__defaults__ = new.get(id(holder.__defaults__), holder.__defaults__)
    else:  # an object whose attributes are in no dict yet
        own = getattr(type(holder), "__dictoffset__", 0) and object.__getattribute__(holder, "__dict__")
        _give_dict(own if type(own) is dict else {}, new)
    return None


def _exchange_values(values: Iterable[Any], new: Mapping[int, Any]) -> list[Any]:
    return [new.get(id(value), value) for value in values]


def _give_dict(holder: dict[Any, Any], new: Mapping[int, Any]) -> None:
    is_of_class = "__module__" in holder and "__doc__" in holder
    owner = next((kind for kind in gc.get_referrers(holder) if isinstance(kind, type)), None) if is_of_class else None
    for key, value in list(dict.items(holder)):
        if id(value) in new and owner is not None:  # which keeps what it has looked up, until it is told
            type.__setattr__(owner, key, new[id(value)])
        elif id(value) in new:
            dict.__setitem__(holder, key, new[id(value)])
    if type(holder) in (dict, OrderedDict, defaultdict) and any(id(key) in new for key in holder):
        for key in list(holder):  # each to the end, so that their order stays
            holder[new.get(id(key), key)] = holder.pop(key)
