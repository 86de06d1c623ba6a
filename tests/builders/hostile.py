"""Objects that notice whatever is asked of them: every special method of theirs, and of their class, is a trap."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator


class Sprung(BaseException):
    """A trap went off: no `except Exception` may hide it."""


def _sprung(*args: Any, **kwargs: Any) -> Any:
    raise Sprung


armed: list[bool] = []


def _pretended(owner: type, name: str) -> Any:
    """A property in front of the real one: a trap while `armed`."""
    real = owner.__dict__[name].__get__
    return property(lambda self: _sprung() if armed else real(self))


class Meta(type):
    """The class of all hostile classes."""

    __mro__ = _pretended(type, "__mro__")
    __name__ = _pretended(type, "__name__")
    __dict__ = _pretended(type, "__dict__")
    __class__ = _pretended(object, "__class__")


_BODY = {"plain": 5, "size": property(_sprung), "__class__": _pretended(object, "__class__")}
_CLASSES = {base: Meta("Hostile", (base,), dict(_BODY)) for base in (object, list, dict, str, int, float, tuple, set)}
_TRAPPED = [
    "__getattr__", "__getattribute__", "__getitem__", "__len__", "__iter__", "__next__", "__contains__", "__eq__",
    "__ne__", "__hash__", "__bool__", "__int__", "__index__", "__float__", "__str__", "__repr__", "__format__",
    "__call__", "__get__", "__set__", "__enter__", "__missing__", "__instancecheck__", "__subclasscheck__", "__dir__",
    "__length_hint__", "__reversed__", "__lt__", "__add__", "__reduce__", "__reduce_ex__", "__class_getitem__",
]  # fmt: skip


@contextlib.contextmanager
def trapped() -> Iterator[None]:
    """Meanwhile every special method of the hostile classes, and of their class, is a trap."""
    set_here = [(cls, name) for cls in (*_CLASSES.values(), Meta) for name in _TRAPPED]
    for cls, name in set_here:
        type.__setattr__(cls, name, _sprung)
    armed.append(True)
    try:
        yield
    finally:
        armed.clear()
        for cls, name in reversed(set_here):
            type.__delattr__(cls, name)


def _new(base: type, *args: Any) -> Any:
    made: Any = _CLASSES[base](*args)
    made.step, made.inner = 3, [1, made]
    return made


def everything() -> list[Any]:
    """Hostile objects, and what holds them."""
    hostile = [
        _new(object),
        _new(list),
        _new(dict, {"a": 1}),
        _new(str, "x"),
        _new(int, 4),
        _new(float, 0.5),
        _new(tuple),
    ]
    holding = [hostile, dict(enumerate(hostile)), {"a": hostile[0], 0: hostile[1]}, {"a": 1, hostile[0]: 2}]
    return [*hostile, _new(set), *holding, _CLASSES[object]]
