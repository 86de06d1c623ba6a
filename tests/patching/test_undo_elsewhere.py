"""Undoing where others have taken a patched function further: into a wrapper of theirs, or a module with two names."""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any, Callable

import pytest

from mstxkit.patching import registry
from mstxkit.testing import captured


def hooked(function: Callable[..., Any]) -> Callable[..., Any]:
    """As frameworks do: torch around `step` of an optimizer's class, when its first instance is made."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@pytest.mark.parametrize("layers", [1, 2])
def test_what_is_wrapped_around_a_patched_method_is_left_around_the_original(
    acme: Any, install: Any, caplog: pytest.LogCaptureFixture, layers: int
) -> None:
    acme.write("optim", "class Adam:\n    def step(self): return 'stepped'\n")
    adam = acme.load("optim").Adam
    plain = vars(adam)["step"]
    install(acme.patch("ACME.optim:Adam.step"))
    for _ in range(layers):
        adam.step = hooked(adam.step)

    with caplog.at_level(logging.WARNING):
        registry.remove_patches()
    with captured() as seen:
        stepped = adam().step()

    assert (stepped, seen.ranges, caplog.records) == ("stepped", [], [])
    innermost = adam.step
    for _ in range(layers):
        innermost = innermost.__wrapped__
    assert innermost is plain


def test_what_takes_the_place_of_a_patched_method_is_left_alone(acme: Any, install: Any) -> None:
    acme.write("optim", "class Adam:\n    def step(self): return 'stepped'\n")
    adam = acme.load("optim").Adam
    install(acme.patch("ACME.optim:Adam.step"))

    def other(self: object) -> str:
        return "other"

    adam.step = other
    registry.remove_patches()

    assert vars(adam)["step"] is other


def test_a_module_with_two_names_is_patched_and_put_back_once(
    acme: Any, install: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme.write("saving", "def save(): return 'saved'\n")
    acme.write("user", "from ACME.saving import save\n")
    user = acme.load("user")
    plain = user.save
    monkeypatch.setitem(sys.modules, f"{acme.name}.alias", user)

    install(acme.patch("ACME.saving:save"))
    with caplog.at_level(logging.WARNING):
        registry.remove_patches()

    assert user.save is plain
    assert caplog.records == []


def test_a_class_that_arrives_by_value_is_put_back_and_so_is_its_modules_own(acme: Any, install: Any) -> None:
    """As with a handle to a Ray actor whose class is under @ray.remote."""
    text = "class Adam:\n    def step(self): return 'stepped'\n"
    acme.write("optim", text)
    own = acme.load("optim").Adam
    copy: dict[str, Any] = {"__name__": own.__module__}
    exec(text, copy)
    arrived = copy["Adam"]
    plain = vars(own)["step"], vars(arrived)["step"]

    install(acme.patch("ACME.optim:Adam.step"))
    registry.patch_travelled(arrived)
    with captured() as seen:
        own().step(), arrived().step()
    registry.remove_patches()

    assert len(seen.ranges) == 2
    assert (vars(own)["step"], vars(arrived)["step"]) == plain
