"""Conditions on a call's arguments: what they say, what they refuse, and that they run nobody's code."""

from __future__ import annotations

import enum
import inspect
import pickle
from typing import Any

import pytest

from mstxkit.patching import expressions
from mstxkit.patching.expressions import ExpressionError, Unreadable


class Mode(enum.IntEnum):
    DECODE = 2
    IDLE = 4


class Batch:
    def __init__(self, mode: Mode, tokens: Any = 0) -> None:
        self.mode, self.tokens = mode, tokens

    @property
    def made(self) -> int:
        raise AssertionError("asked")


def forward(self: Any, batch: Batch, only: bool = False) -> None:
    """What the conditions below are read of."""


def holds(text: str, *args: Any, **kwargs: Any) -> bool:
    condition = pickle.loads(pickle.dumps(expressions.compile_condition(text, inspect.signature(forward))))
    given: bool = condition((None, *args), kwargs)
    return given


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch.mode._name_ == 'IDLE'", True),
        ("batch.mode._name_ != 'IDLE'", False),
        ("batch.tokens == 0", False),
        ("batch.tokens > 2", True),
        ("batch.tokens >= 3 and batch.tokens <= 3 and batch.tokens < 4", True),
        ("batch.tokens", True),
        ("only", False),
        ("not only", True),
        ("only or batch.mode._name_ == 'IDLE'", True),
        ("not only and batch.tokens == 1", False),
        ("not (only or batch.tokens == 1)", True),
    ],
)
def test_a_condition_says_what_python_would(text: str, expected: bool) -> None:
    assert holds(text, Batch(Mode.IDLE, 3)) is expected


def test_what_decides_already_is_not_read_on() -> None:
    assert holds("not only and batch.made > 1", Batch(Mode.IDLE), True) is False
    assert holds("batch.mode._name_ == 'IDLE' or batch.made", Batch(Mode.IDLE)) is True


@pytest.mark.parametrize(
    "text", ["batch.made", "batch.made == 1", "batch.absent > 0", "batch > 1", "batch.tokens < 'a'"]
)
def test_what_cannot_be_read_or_compared_is_told_and_nobodys_code_runs(text: str) -> None:
    with pytest.raises(Unreadable):
        holds(text, Batch(Mode.IDLE, 3))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("batch.tokens is None", "one int or str"),
        ("batch.tokens == None", "one int or str"),
        ("batch.tokens == only", "one int or str"),
        ("0 < batch.tokens < 4", "one int or str"),
        ("batch.tokens + 1 == 4", "no part of this language"),
        ("batch.idle()", "no part of this language"),
        ("absent == 1", "no parameter absent"),
        ("batch ==", "invalid syntax|unexpected EOF"),
        ("not " * 30 + "only", "levels"),
        ("x" * 600, "at most 500"),
        (7, "a condition is a str"),
    ],
)
def test_a_mistake_is_told(text: Any, part: str) -> None:
    with pytest.raises(ExpressionError, match=part):
        expressions.compile_condition(text, inspect.signature(forward))


def test_check_takes_any_name_for_a_parameter() -> None:
    expressions.check_condition("absent == 1 and not other.one")

    with pytest.raises(ExpressionError):
        expressions.check_condition("absent()")
