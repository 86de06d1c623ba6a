"""Attributes and marks: rule 8 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
from builders.written_banks import Written

from mstxkit.store import livefile


class Count(int):
    """An int that does all it can to be in the way."""

    def __lt__(self, other: object) -> bool:
        raise RuntimeError

    __le__ = __gt__ = __ge__ = __lt__  # type: ignore[assignment]

    def __and__(self, other: object) -> Any:
        raise RuntimeError


class Ratio(float):
    pass


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def encode(self, *args: Any) -> bytes:
        raise RuntimeError


class Colour(enum.IntEnum):
    RED = 3


class Unhelpful:
    """Raises whatever one asks of it."""

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError


VALUES = {
    "zero": (0, 0),
    "int": (42, 42),
    "smallest": (-(1 << 63), -(1 << 63)),
    "largest": ((1 << 63) - 1, (1 << 63) - 1),
    "true": (True, True),
    "false": (False, False),
    "float": (0.1, 0.1),
    "negative zero": (-0.0, -0.0),
    "infinite": (math.inf, math.inf),
    "text": ("π ≈ 3", "π ≈ 3"),
    "empty text": ("", ""),
    "surrogate": ("\ud800", "\\ud800"),
    "newlines and NUL": ("a\nb\0c", "a\nb\0c"),
    "none": (None, None),
    "int subclass": (Count(7), 7),
    "float subclass": (Ratio(2.5), 2.5),
    "str subclass": (Text("mine"), "mine"),
    "enum": (Colour.RED, 3),
}
NOT_TAKEN = {
    "too large": (1 << 63, "int"),
    "too small": (-(1 << 63) - 1, "int"),
    "list": ([1, 2], "list"),
    "bytes": (b"x", "bytes"),
    "complex": (1j, "complex"),
    "unhelpful": (Unhelpful(), "Unhelpful"),
    "class": (Unhelpful, "type"),
    "function": (math.sqrt, "builtin_function_or_method"),
}


@pytest.mark.parametrize("case", [*VALUES, *NOT_TAKEN])
def test_a_value_of_any_type_is_recorded_and_never_an_error(engine: Any, recorded: Written, case: str) -> None:
    value, written = {**VALUES, **NOT_TAKEN}[case]
    with engine.mstx_range("x", given=value) as entered:
        entered.set(added=value)
    engine.mark("m", given=value)

    for attributes in (recorded.one("x").attributes, recorded.marks[0].attributes):
        assert attributes["given"] == written
        assert type(attributes["given"]) is type(written)
    assert recorded.one("x").attributes["added"] == written
    assert engine.counters()["faults"] == 0
    assert engine.counters()["attributes_lost"] == (2 if case in NOT_TAKEN else 0)


def test_negative_zero_and_nan_keep_their_bits(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x", zero=-0.0, nan=math.nan, subclass=Ratio(-0.0)):
        pass

    attributes = recorded.one("x").attributes
    assert math.copysign(1, attributes["zero"]) == math.copysign(1, attributes["subclass"]) == -1
    assert math.isnan(attributes["nan"])


def test_later_values_replace_earlier_ones_in_their_place(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x", a=1, b=2) as entered:
        entered.set(c=3)
        entered.set(a=4, c=5)

    assert recorded.one("x").attributes == {"a": 4, "b": 2, "c": 5}


def test_attributes_belong_to_their_own_range(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("outer", of="outer"):
        with engine.mstx_range("inner", of="inner"):
            pass
        with engine.mstx_range("bare"):
            pass
        engine.mark("mark", of="mark")

    assert {found.name: found.attributes for found in recorded.ranges + recorded.marks} == {
        "outer": {"of": "outer"}, "inner": {"of": "inner"}, "bare": {}, "mark": {"of": "mark"}
    }  # fmt: skip


@pytest.mark.parametrize("count", [64, 65, 200])
def test_at_most_64_attributes_a_range_and_the_loss_is_counted(engine: Any, recorded: Written, count: int) -> None:
    with engine.mstx_range("x", **{f"k{number}": number for number in range(count)}):
        pass

    assert len(recorded.one("x").attributes) == 64
    assert engine.counters()["attributes_lost"] == int(count > 64)


def test_a_text_is_cut_at_4096_bytes_and_says_so(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x", long="é" * 5000):
        pass

    text = recorded.one("x").attributes["long"]
    assert len(text.encode()) == 4096
    assert "[10000 bytes, " in text
    assert engine.counters()["texts_cut"] == 1


def test_equal_texts_are_kept_once_a_bank(engine: Any, recorded: Written) -> None:
    for _ in range(100):
        with engine.mstx_range("x", key="value" * 100):
            pass

    bank = recorded.banks[0]
    assert sorted(livefile.read_texts(bank.text, bank.salt)[0].texts.values()) == ["key", "value" * 100]
    assert [found.attributes for found in recorded.ranges] == [{"key": "value" * 100}] * 100


def test_the_attributes_of_timed_are_read_at_the_end(engine: Any, recorded: Written) -> None:
    attributes = {"a": 1}
    with engine.timed(engine.intern("timed"), None, attributes) as entered:
        attributes["b"] = 2
        entered.set(c=3)

    assert recorded.one("timed").attributes == {"a": 1, "b": 2, "c": 3}
    assert attributes == {"a": 1, "b": 2}


def test_keys_of_any_text_are_kept(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x", **{"": 1, "a b\n": 2, "\udfff": 3, "k" * 5000: 4}):
        pass

    keys = list(recorded.one("x").attributes)
    assert keys[:3] == ["", "a b\n", "\\udfff"]
    assert keys[3].startswith("kkk")


def test_a_mark_is_an_instant_where_it_is(engine: Any, recorded: Written) -> None:
    engine.step(4)
    with engine.stage("s"), engine.mstx_range("x"):
        recorded.tick(5)
        for _ in range(2):
            engine.mark("here", domain="mine", size=1)
            recorded.tick(1)

    first, second = recorded.marks
    assert first == second._replace(start=first.start)
    assert (first.name, first.domain, first.stage, first.own_stage) == ("here", "mine", "s", None)
    assert (first.step, first.depth, first.duration, first.start) == (4, 2, 0, 1_000_005)
    assert first.track == recorded.one("x").track
    assert first.attributes == {"size": 1}


def test_off_a_mark_is_nothing(engine: Any, recorded: Written) -> None:
    engine.set_recording(False)
    engine.mark("nothing", size=1)

    assert recorded.marks == []


def test_ranges_and_marks_keep_the_order_of_their_ends(engine: Any, recorded: Written) -> None:
    for number in range(20):
        with engine.mstx_range("plain"):
            recorded.tick(1)
        with engine.mstx_range("full", n=number):
            recorded.tick(1)
        with engine.stage("stage"):
            recorded.tick(1)

    ends = [found.start + found.duration for found in recorded.ranges]
    assert ends == sorted(ends)
    assert len(ends) == 60
