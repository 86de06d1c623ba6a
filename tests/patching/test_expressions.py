"""Expressions read what is plainly stored, and nothing else: no code of anybody's runs, whatever is handed in."""

from __future__ import annotations

import functools
import inspect
import pickle
from typing import Any, Callable

import pytest
from builders import soak
from builders.hostile import Sprung, everything, trapped
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mstxkit.engine import plain_paths
from mstxkit.engine.plain_paths import Unreadable
from mstxkit.errors import PatchError
from mstxkit.patching import expressions
from mstxkit.patching.expressions import ExpressionError, compile_expression


class Config:
    lr = 0.5

    def __init__(self) -> None:
        self.batch = 8
        self.table = {"steps": 7, 3: "three"}
        self.tags = ["a", "b"]


class Trainer:
    kind = "ppo"
    last = None
    stages: list[str] = ["gen", "update"]

    def __init__(self) -> None:
        self.step = 12
        self.config = Config()


def fit(self, batch, count=4, *args, flag=False, where=object(), **kwargs):  # noqa: B008
    """The function that most tests read the calls of."""


FIT = inspect.signature(fit)


def value(text: str, *args: Any, **kwargs: Any) -> Any:
    return compile_expression(text, FIT)(args, kwargs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("self.step", 12),
        (" self.step ", 12),
        ("self.config.batch", 8),
        ("self.config.lr", 0.5),
        ("self.config.table['steps']", 7),
        ("self.config.table[3]", "three"),
        ("self.config.tags[-1]", "b"),
        ("len(self.config.tags)", 2),
        ("self.kind", "ppo"),
        ("self.last", None),
        ("len(self.stages)", 2),
        ("batch[1]", 20),
        ("len(batch)", 3),
        ("'prefill'", "prefill"),
        ("-3", -3),
        ("count", 4),
        ("flag", False),
    ],
)
def test_reads_parameters_attributes_items_and_lengths(text: str, expected: object) -> None:
    found = value(text, Trainer(), (10, 20, 30))

    assert found == expected and type(found) is type(expected)


def test_a_parameter_is_found_by_keyword_then_by_position_then_by_its_default() -> None:
    assert value("count", 0, 0, 1) == 1
    assert value("count", 0, count=2) == 2
    assert value("count", 0, 0) == 4
    assert value("flag", 0, flag=True) is True


def test_a_default_that_is_more_than_a_value_is_not_carried_around() -> None:
    with pytest.raises(Unreadable):
        value("where", 0)


def test_star_parameters_hold_what_no_other_parameter_takes() -> None:
    assert value("args[0]", 0, 0, 0, "first", "second") == "first"
    assert value("len(args)", 0, 0) == 0
    assert value("kwargs['lr']", 0, 0, flag=True, lr=2) == 2
    assert value("len(kwargs)", 0, 0, flag=True, lr=2) == 1


def test_a_positional_only_parameter_is_not_taken_from_kwargs() -> None:
    def only(step, /, **kwargs):
        """As it says."""

    assert compile_expression("step", inspect.signature(only))((5,), {"step": 6}) == 5


def test_a_slot_is_read_and_one_that_is_not_set_is_unreadable() -> None:
    class Slotted:
        __slots__ = ("empty", "step")

        def __init__(self) -> None:
            self.step = 3

    assert value("self.step", Slotted()) == 3
    with pytest.raises(Unreadable):
        value("self.empty", Slotted())


def test_a_cached_property_is_read_once_it_is_cached_and_is_never_computed() -> None:
    class Lazy:
        computed = 0

        @functools.cached_property
        def size(self) -> int:
            Lazy.computed += 1
            return 7

    lazy = Lazy()

    with pytest.raises(Unreadable):
        value("self.size", lazy)
    assert Lazy.computed == 0
    assert lazy.size == 7
    assert value("self.size", lazy) == 7


@pytest.mark.parametrize(
    "text",
    [
        "",
        "self.",
        "self + 1",
        "self.step()",
        "print(self)",
        "len()",
        "len(self, batch)",
        "len(obj=self)",
        "len(*batch)",
        "batch[:]",
        "batch[count]",
        "batch[0, 1]",
        "batch[True]",
        "batch[0.5]",
        "[x for x in batch]",
        "lambda: 1",
        "f'{self}'",
        "self if flag else batch",
        "None",
        "True",
        "1.5",
        "b'x'",
        "...",
        "(self)[~1]",
        "--1",
        "-'x'",
        "x := 1",
        "await self",
        "unknown",
        "__import__('os')",
        "9" * 25,
        "9" * 5000,
        "self" + ".a" * 30,
        "self\0",
        "(" * 300,
        "-" * 400 + "1",
    ],
)
def test_what_is_not_in_the_language_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(text, FIT)


@pytest.mark.parametrize("text", [None, 5, ["self"], b"self"])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(text, FIT)


def test_an_unknown_parameter_is_told_with_the_nearest_and_all_there_are() -> None:
    with pytest.raises(PatchError, match=r"no parameter batsh; did you mean batch\? It has: self, batch, count"):
        compile_expression("len(batsh)", FIT)


def test_check_accepts_any_parameter_and_refuses_the_rest() -> None:
    expressions.check("anything.at_all['x']")

    with pytest.raises(ExpressionError):
        expressions.check("anything + 1")


@given(st.text(max_size=40))
@settings(max_examples=soak.rounds(3000, 100))
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    try:
        expression = compile_expression(text, FIT)
    except ExpressionError:
        return
    try:
        expression((Trainer(), [1]), {})
    except Unreadable:
        pass

    assert expression.text == text


# Pieces of the language, so that most texts made of them parse.
_PIECES = st.sampled_from(
    ["self", "batch", "len(", ")", "(", ".step", ".config", "[0]", "['a']", "[-1]", "count", "1", "'x'", "-", " ", "."]
)


@given(st.lists(_PIECES, max_size=10).map("".join))
@settings(max_examples=soak.rounds(4000, 100))
@example("len(self.config.tags)")
def test_an_expression_that_went_through_pickle_is_the_same(text: str) -> None:
    try:
        expression = compile_expression(text, FIT)
    except ExpressionError:
        return

    assert pickle.loads(pickle.dumps(expression)) == expression


_TEXTS = [
    "self", "self.step", "self.plain", "self.size", "self.missing", "self.inner", "self.inner[0]", "len(self.inner)",
    "self.inner[1].step", "len(self)", "self[0]", "self[-1]", "self['a']", "self['a'].step", "self[0].step",
    "self.__class__", "self.__dict__", "self.__dict__['step']", "self.__len__", "self.__class__.__name__",
    "self.__doc__", "self.__mro__", "len(self[0])", "self[0].inner[1].inner", "kwargs['x'].step", "args[0].size",
    "self.__name__",
]  # fmt: skip


@pytest.mark.parametrize("index", range(13))
@pytest.mark.parametrize("text", _TEXTS)
def test_no_code_of_the_values_runs(text: str, index: int) -> None:
    hostile, other = everything()[index], everything()[0]
    expression = compile_expression(text, FIT)

    with trapped():
        try:
            kind = type(expression((hostile, 0, 0, other), {"x": other}))
        except Unreadable:
            return
        is_plain = any(kind is one for one in (bool, int, float, str, type(None)))

    assert is_plain


def test_the_traps_of_the_test_above_do_go_off() -> None:
    hostile, touched = everything()[0], 0
    touches: list[Callable[[], object]] = [
        lambda: hostile.step, lambda: len(hostile), lambda: hostile == 1, lambda: {hostile}, lambda: hostile.__class__,
        lambda: type(hostile).__mro__, lambda: {type(hostile)}, lambda: isinstance(1, type(hostile)),
    ]  # fmt: skip

    with trapped():
        for touch in touches:
            try:
                touch()
            except Sprung:
                touched += 1

    assert touched == len(touches)


def test_plain_attributes_of_hostile_objects_are_read() -> None:
    hostile = everything()[0]

    with trapped():
        read = [value(text, hostile) for text in ("self.step", "self.inner[1].step", "self.plain")]

    assert read == [3, 3, 5]


def test_a_dict_whose_keys_could_run_code_when_compared_is_unreadable() -> None:
    class Same:
        def __hash__(self) -> int:
            return hash("a")

        def __eq__(self, other: object) -> bool:
            raise Sprung

    with pytest.raises(Unreadable, match="Same among its keys"):
        value("batch['a']", 0, {Same(): 1})


def test_a_dict_too_large_to_look_at_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="more than"):
        value("batch[0]", 0, dict.fromkeys(range(plain_paths.LARGEST_DICT + 1)))


@pytest.mark.parametrize("text", ["batch", "batch[0]", "batch['a']", "len(batch)", "batch.step"])
def test_subclasses_of_containers_are_not_asked(text: str) -> None:
    class Lazy(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: object) -> int:
            raise Sprung

        __len__ = __getattr__ = __getitem__

    with pytest.raises(Unreadable):
        value(text, 0, Lazy({"a": 1, 0: 2}))


@pytest.mark.parametrize("handed_in", [object(), [], {}, (), b"x", 1j, type("Int", (int,), {})(3), Config])
def test_only_exact_scalars_are_values(handed_in: object) -> None:
    with pytest.raises(Unreadable):
        value("batch", 0, handed_in)


def test_a_range_longer_than_a_length_can_be_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        value("len(batch)", 0, range(1 << 70))


def test_a_proxy_that_claims_another_class_is_read_as_what_it_is() -> None:
    from wrapt import ObjectProxy

    with pytest.raises(Unreadable):
        value("len(batch)", 0, ObjectProxy([1, 2]))
    with pytest.raises(Unreadable):
        value("self.step", ObjectProxy(Trainer()))


@pytest.mark.frameworks
def test_a_lazily_resolving_configuration_is_not_asked() -> None:
    import omegaconf

    config = omegaconf.OmegaConf.create({"a": 1, "b": "${a}"})

    for text in ("self.a", "self['b']", "len(self)"):
        with pytest.raises(Unreadable):
            value(text, config)


def test_array_scalars_are_not_read() -> None:
    numpy = pytest.importorskip("numpy")

    for handed_in in (numpy.int64(3), numpy.arange(3), numpy.array(5.0)):
        for text in ("batch", "len(batch)", "batch[0]", "batch.shape[0]", "batch.size"):
            with pytest.raises(Unreadable):
                value(text, 0, handed_in)
