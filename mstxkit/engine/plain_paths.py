"""What is plainly stored where a path of attributes, items and a length leads, in Python.

Reading never runs code of anybody's: no property, no `__getattr__`, no `__getitem__` or `__len__` but those of the
exact built-in types. So it cannot wake a lazy object, wait for a device, or raise what is not `Unreadable`.

(Names are compared as Python itself compares them at every `x.attr` and `f(name=…)` there: a str subclass with an
`__eq__` of its own, used as the name of an attribute or a keyword argument, is the one thing that would be asked.)
"""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Callable

from ..host.names import type_name

# Looking a key up compares it with others: all of them must be known to be harmless, which takes a look at each.
LARGEST_DICT = 256
# The kinds of a path's steps, as the C engine knows them; what goes with a length is nothing.
TO_ATTRIBUTE, TO_ITEM, TO_LENGTH = range(3)

_MISSING = object()
# Of a type, past whatever its metaclass pretends.
_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_plain_attribute = object.__getattribute__

# By id: hashing or comparing a type would ask its metaclass.
SCALARS = {id(kind) for kind in (bool, int, float, str)}
_SIZED = {id(kind) for kind in (list, tuple, dict, str, bytes, set, frozenset, range)}
_HARMLESS_KEYS = SCALARS | {id(bytes), id(type(None))}
_NO_DESCRIPTORS = SCALARS | _SIZED | {id(type(None)), id(object)}


class Unreadable(Exception):
    """What an expression names cannot be read here and now without running somebody's code, or is not there."""


def stored(owner: Any, path: tuple[tuple[int, Any], ...]) -> Any:
    """The exact bool, int, float, str or None to which the path leads; NotImplemented where there is none to be read.

    Args:
        owner: Where the path begins.
        path: Steps, of a kind each: the name of an attribute, the key of an item, or a length.
    """
    value = owner
    try:
        for kind, key in path:
            value = READERS[kind](value, key)
    except Unreadable:
        return NotImplemented
    return value if value is None or id(type(value)) in SCALARS else NotImplemented


def plain_attribute(owner: Any, name: str) -> Any:
    """What is stored as this attribute: in the instance, in a slot, or as a plain value in its class.

    Raises:
        Unreadable: it is not stored there, or is what a property or another descriptor makes.
    """
    kind = type(owner)
    held = _in_classes(kind, name)
    descriptor_names = ("__get__", "__set__", "__delete__")
    if id(type(held)) in _NO_DESCRIPTORS or all(_in_classes(type(held), n) is _MISSING for n in descriptor_names):
        # Also where no class has it: `_MISSING` is no descriptor. This reads the instance, then them, and runs nothing.
        try:
            return _plain_attribute(owner, name)
        except AttributeError:
            raise Unreadable(f"a {type_name(kind)} has no plain attribute {name}") from None
    if type(held) is MemberDescriptorType:
        try:
            return held.__get__(owner, kind)
        except (AttributeError, TypeError):
            raise Unreadable(f"{name} of a {type_name(kind)} is not set") from None
    if _in_classes(type(held), "__set__") is _MISSING and _in_classes(type(held), "__delete__") is _MISSING:
        return _in_own_dict(owner, name)  # a method or a cached property: what the instance has itself goes before it
    raise Unreadable(f"{name} of a {type_name(kind)} is a {type_name(type(held))}, not a plain attribute")


def _in_classes(kind: type, name: str) -> Any:
    """What a class, or one that it is derived from, stores as this name."""
    for cls in _mro(kind):
        held = _class_dict(cls).get(name, _MISSING)
        if held is not _MISSING:
            return held
    return _MISSING


def _in_own_dict(owner: Any, name: str) -> Any:
    kind = type(owner)
    entrance = _in_classes(kind, "__dict__")
    if type(entrance) is GetSetDescriptorType:
        try:
            own = entrance.__get__(owner, kind)
        except (AttributeError, TypeError):
            own = None
        if type(own) is dict and name in own:
            return own[name]
    raise Unreadable(f"{name} of a {type_name(kind)} is made when it is asked for")


def plain_item(owner: Any, key: int | str) -> Any:
    """What is stored as this item of an exact dict, list or tuple. Raises Unreadable."""
    kind = type(owner)
    try:
        if kind is dict:
            _check_keys(owner)
            return owner[key]
        if (kind is list or kind is tuple) and type(key) is int:
            return owner[key]
    except LookupError:
        raise Unreadable(f"there is no [{key!r}]") from None
    raise Unreadable(f"[{key!r}] of a {type_name(kind)}")


def _check_keys(held: dict[Any, Any]) -> None:
    if len(held) > LARGEST_DICT:
        raise Unreadable(f"a dict of more than {LARGEST_DICT} keys")
    try:
        for key in held:
            if type(key) is not str and id(type(key)) not in _HARMLESS_KEYS:
                raise Unreadable(f"a dict with a {type_name(type(key))} among its keys")
    except RuntimeError:
        raise Unreadable("a dict that another thread is changing") from None


def plain_length(owner: Any, nothing: None = None) -> int:
    """The length of an exact built-in container. Raises Unreadable."""
    if id(type(owner)) not in _SIZED:
        raise Unreadable(f"len of a {type_name(type(owner))}")
    try:
        return len(owner)
    except OverflowError:  # a range may be longer than a length can be
        raise Unreadable("it is longer than any len") from None


READERS: tuple[Callable[[Any, Any], Any], ...] = (plain_attribute, plain_item, plain_length)
