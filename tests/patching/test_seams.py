"""A framework's own range decorator: its ranges become ours, one each, and come back when patching is undone."""

from __future__ import annotations

from typing import Any

import pytest

from mstxkit import Seam
from mstxkit.patching import registry
from mstxkit.testing import captured

MARKS = """
from functools import wraps
calls = []
def timed(func):
    @wraps(func)
    def wrapper(*args, **kwargs):
        calls.append("+" + func.__qualname__)
        result = func(*args, **kwargs)
        calls.append("-" + func.__qualname__)
        return result
    return wrapper
"""
MODEL = """
from functools import wraps
from ACME.marks import timed
def inference(func):
    @wraps(func)
    def without_gradient(*args, **kwargs): return func(*args, **kwargs)
    return without_gradient
class Model:
    @timed
    def forward(self, x):
        if x is None: raise ValueError("x")
        return self.inner(x)
    @timed
    def inner(self, x): return x + 1
    @timed
    def undeclared(self): return "fine"
    @inference
    @timed
    def rollout(self): return "rolled"
@timed
def pad(batch): return len(batch)
"""


@pytest.fixture
def framework(acme: Any, install: Any, when: str) -> Any:
    acme.write("marks", MARKS)
    acme.write("model", MODEL)
    acme.write("user", "from ACME.model import pad")
    if when == "after import":
        acme.load("user")
    seam = Seam(f"{acme.name}.marks:timed", "wrapper", f"{acme.name}/marks.py")
    acme.states = install(
        acme.patch(
            acme.target("ACME.model:Model.forward", name="forward", stage="actor_update"),
            acme.target("ACME.model:Model.inner", kind="delegate"),
            "ACME.model:pad",
            "ACME.model:Model.rollout",
            seam=seam,
        )
    )
    acme.load("user")
    return acme


def test_a_decorated_function_has_one_range_and_none_of_the_frameworks(framework: Any) -> None:
    marks, model, user = (framework.load(name) for name in ("marks", "model", "user"))

    with captured() as recorded:
        assert (model.Model().forward(1), user.pad([1, 2])) == (2, 2)

    assert [(one.name, one.stage) for one in recorded.ranges] == [("forward", "actor_update"), ("pad", None)]
    assert marks.calls == []


def test_a_body_that_raises_closes_the_range(framework: Any) -> None:
    model = framework.load("model")

    with captured() as recorded, pytest.raises(ValueError):
        model.Model().forward(None)

    assert [(one.name, one.error) for one in recorded.ranges] == [("forward", True)]


def test_what_is_decorated_but_not_declared_is_a_range_of_its_own_name(framework: Any, when: str) -> None:
    model, marks = framework.load("model"), framework.load("marks")

    with captured() as recorded:
        assert model.Model().undeclared() == "fine"

    # Imported before: nothing declares it, and it keeps the range that the framework gave it.
    expected = ["Model.undeclared"] if when == "before import" else []
    assert [one.name for one in recorded.ranges] == expected
    assert bool(marks.calls) is not bool(expected)


def test_a_range_beneath_another_decorator_is_ours_alone_too(framework: Any) -> None:
    marks, model = framework.load("marks"), framework.load("model")

    with captured() as recorded:
        assert model.Model().rollout() == "rolled"

    assert [one.name for one in recorded.ranges] == ["Model.rollout"]
    assert marks.calls == []
    registry.remove_patches()
    with captured() as recorded:
        model.Model().rollout()
    assert (recorded.ranges, marks.calls) == ([], ["+Model.rollout", "-Model.rollout"])


def test_without_us_the_frameworks_own_ranges_are_back(framework: Any) -> None:
    marks, model, user = (framework.load(name) for name in ("marks", "model", "user"))

    registry.remove_patches()
    with captured() as recorded:
        model.Model().forward(1)
        model.Model().undeclared()
        user.pad([])

    assert not recorded.ranges
    assert marks.calls == [
        "+Model.forward", "+Model.inner", "-Model.inner", "-Model.forward", "+Model.undeclared", "-Model.undeclared",
        "+pad", "-pad",
    ]  # fmt: skip
    assert user.pad is model.pad
    assert not hasattr(marks.timed, "__wrapped__")


CALLED = """
from functools import wraps
calls = []
def timed(name=None, *, color="red"):
    def decorate(func):
        @wraps(func)
        def wrapper(*args, **kwargs):
            calls.append(f"{name} {color}")
            return func(*args, **kwargs)
        return wrapper
    return decorate
"""
CALLS = """
from ACME.marks import timed
@timed(color="blue")
def declared(): return 1
@timed("named")
def undeclared(): return 2
"""


def test_a_decorator_that_is_called_for_one_works_as_before(acme: Any, install: Any) -> None:
    """The framework's import does not fail: what is declared has our range alone, all else that of the framework."""
    acme.write("marks", CALLED)
    acme.write("model", CALLS)
    seam = Seam(f"{acme.name}.marks:timed", "wrapper", f"{acme.name}/marks.py")
    install(acme.patch("ACME.model:declared", seam=seam))
    model, marks = acme.load("model"), acme.load("marks")

    with captured() as recorded:
        assert (model.declared(), model.undeclared()) == (1, 2)

    assert [one.name for one in recorded.ranges] == ["declared"]
    assert marks.calls == ["named red"]
    registry.remove_patches()
    assert (model.declared(), marks.calls) == (1, ["named red", "None blue"])
