"""`stored` reads what lies where a path leads, and nothing else: no code of anybody's runs, whatever is handed in."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from builders.hostile import everything, trapped

from mstxkit.engine import plain_paths
from mstxkit.engine.plain_paths import LARGEST_DICT, TO_ATTRIBUTE, TO_ITEM, TO_LENGTH

LENGTH = (TO_LENGTH, None)


def attribute(name: str) -> tuple[int, Any]:
    return TO_ATTRIBUTE, name


def item(key: Any) -> tuple[int, Any]:
    return TO_ITEM, key


class Slotted:
    __slots__ = ("empty", "step")

    def __init__(self) -> None:
        self.step = 3


class Trainer:
    kind = "ppo"
    seven = 7

    def __init__(self) -> None:
        self.step, self.lr, self.none, self.seven = 12, 0.5, None, 8
        self.table = {"a": {"b": (1, 2)}, 3: "three", None: 0, 1.5: 0, b"x": 0}
        self.tags = ["a", "b"]
        self.slotted = Slotted()

    @property
    def made(self) -> int:
        raise AssertionError("asked")

    @functools.cached_property
    def lazy(self) -> int:
        raise AssertionError("asked")

    def __getattr__(self, name: str) -> int:
        raise AssertionError("asked")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((attribute("step"),), 12),
        ((attribute("lr"),), 0.5),
        ((attribute("none"),), None),
        ((attribute("kind"),), "ppo"),
        ((attribute("seven"),), 8),
        ((attribute("slotted"), attribute("step")), 3),
        ((attribute("tags"), item(-1)), "b"),
        ((attribute("tags"), LENGTH), 2),
        ((attribute("table"), item("a"), item("b"), item(1)), 2),
        ((attribute("table"), item(3)), "three"),
        ((attribute("kind"), LENGTH), 3),
    ],
)
def test_the_plain_value_where_the_path_leads(engine: Any, path: Any, expected: object) -> None:
    found = engine.stored(Trainer(), path)

    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize("plain", [True, 5, 1 << 80, 0.5, "x", None])
def test_a_plain_value_itself_where_there_is_no_path(engine: Any, plain: object) -> None:
    assert engine.stored(plain, ()) is plain


@pytest.mark.parametrize(
    "path",
    [
        (attribute("missing"),),
        (attribute("made"),),
        (attribute("lazy"),),
        (attribute("__dict__"),),
        (attribute("__class__"),),
        (attribute("slotted"), attribute("empty")),
        (attribute("tags"),),
        (attribute("tags"), item(2)),
        (attribute("tags"), item(-3)),
        (attribute("tags"), item("a")),
        (attribute("tags"), item(1 << 70)),
        (attribute("table"), item("c")),
        (attribute("step"), LENGTH),
        (attribute("step"), item(0)),
        (LENGTH,),
        (),
    ],
)
def test_nothing_where_nothing_plain_is_stored(engine: Any, path: Any) -> None:
    assert engine.stored(Trainer(), path) is NotImplemented


class Shouting(str):
    def __eq__(self, other: object) -> bool:
        raise AssertionError("asked")

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    "asked", [{Shouting("a"): 1}, dict.fromkeys(range(LARGEST_DICT + 1)), type("Lazy", (dict,), {})({"a": 1}), range(3)]
)
def test_no_item_of_what_would_have_to_be_asked(engine: Any, asked: Any) -> None:
    assert engine.stored(asked, (item("a"),)) is NotImplemented


@pytest.mark.parametrize("sized", [range(1 << 70), type("Sized", (list,), {})([1]), iter([1]), object()])
def test_no_length_of_what_would_have_to_be_asked_or_has_none(engine: Any, sized: Any) -> None:
    assert engine.stored(sized, (LENGTH,)) is NotImplemented


_PATHS = [
    (),
    *[(attribute(name),) for name in ("step", "plain", "size", "missing", "__class__", "__dict__", "__len__")],
    (attribute("inner"), item(0)),
    (attribute("inner"), item(1), attribute("step")),
    (attribute("inner"), LENGTH),
    (item(0),),
    (item("a"),),
    (item("a"), attribute("step")),
    (LENGTH,),
]


@pytest.mark.parametrize("index", range(13))
@pytest.mark.parametrize("path", _PATHS)
def test_no_code_of_the_values_runs_and_both_ways_read_the_same(engine: Any, path: Any, index: int) -> None:
    hostile = everything()[index]

    with trapped():
        found, as_python = engine.stored(hostile, path), plain_paths.stored(hostile, path)
        is_same = type(found) is type(as_python) and (found is NotImplemented or found == as_python)

    assert is_same


def test_numpys_scalars_and_arrays_are_not_asked(engine: Any) -> None:
    numpy = pytest.importorskip("numpy")

    for array in (numpy.int64(3), numpy.arange(3)):
        for path in ((), (LENGTH,), (item(0),), (attribute("size"),), (attribute("shape"), item(0))):
            assert engine.stored(array, path) is NotImplemented
