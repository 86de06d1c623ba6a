"""Objects that hold a function, each in another way, and how the function is got back from each."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple


class Row(NamedTuple):
    name: str
    call: Any


@dataclass(frozen=True)
class Frozen:
    call: Any
    others: dict[str, Any] = field(default_factory=dict)


class Plain:
    def __init__(self, call: Any) -> None:
        self.call = call


def closing(held: Any) -> Callable[[], Any]:
    def inner() -> Any:
        return held

    return inner


def with_default(held: Any) -> Callable[[], Any]:
    def inner(call: Any = held, *, other: Any = held) -> Any:
        assert call is other
        return call

    return inner


class Holder(NamedTuple):
    make: Callable[[Any], Any]
    get: Callable[[Any], Any]


HOLDERS: dict[str, Holder] = {
    "dict": Holder(lambda f: {"a": 1, "f": f}, lambda h: h["f"]),
    "key of a dict": Holder(lambda f: {"a": 1, f: 2, "z": 3}, lambda h: list(h)[1]),
    "ordered dict": Holder(lambda f: OrderedDict([("a", 1), (f, f), ("z", 3)]), lambda h: list(h.items())[1][1]),
    "defaultdict": Holder(lambda f: defaultdict(list, {f: [f]}), lambda h: next(iter(h))),
    "list": Holder(lambda f: [1, f], lambda h: h[1]),
    "nested": Holder(lambda f: {"all": [({"f": [(f, 1)]},)]}, lambda h: h["all"][0][0]["f"][0][0]),
    "deque": Holder(lambda f: deque([f]), lambda h: h[0]),
    "set": Holder(lambda f: {f}, lambda h: next(iter(h))),
    "frozen set in a list": Holder(lambda f: [frozenset({f})], lambda h: next(iter(h[0]))),
    "tuple in a list": Holder(lambda f: [(1, f)], lambda h: h[0][1]),
    "named tuple in a dict": Holder(lambda f: {"row": Row("a", f)}, lambda h: h["row"].call),
    "partial": Holder(lambda f: functools.partial(f), lambda h: h.func),
    "argument of a partial": Holder(lambda f: functools.partial(print, f, end=f), lambda h: h.args[0]),
    "keyword of a partial": Holder(lambda f: functools.partial(print, end=f), lambda h: h.keywords["end"]),
    "closure": Holder(closing, lambda h: h()),
    "defaults": Holder(with_default, lambda h: h()),
    "attribute": Holder(Plain, lambda h: h.call),
    "frozen dataclass": Holder(Frozen, lambda h: h.call),
    "attribute of a class": Holder(lambda f: type("Other", (), {"call": f}), lambda h: vars(h)["call"]),
    "attribute of a function": Holder(lambda f: _marked(f), lambda h: h.call),
    "bound method in a list": Holder(lambda f: [f.__get__(3)], lambda h: h[0].__func__),
}


def _marked(held: Any) -> Any:
    def inner() -> None:
        pass

    inner.call = held  # type: ignore[attr-defined]
    return inner
