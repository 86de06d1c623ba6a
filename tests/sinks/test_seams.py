"""A wrapped function behaves as before, also when we do not."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

from mstxkit import faults
from mstxkit.sinks import seams


class Profiler:
    """Stands for somebody's profiler."""

    def start(self, level: int, *, path: str = ".") -> str:
        """Start it."""
        if level < 0:
            raise ValueError("level")
        return f"{level}{path}"


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    yield
    seams.undo_all()


def test_both_listeners_hear_of_a_call_and_its_result_is_the_same() -> None:
    heard: list[Any] = []
    seams.listen_at(
        Profiler, "start", before=lambda *a: heard.append(("before", a[1:])), after=lambda *a: heard.append("after")
    )

    result = Profiler().start(1, path="x")

    assert result == "1x"
    assert heard == [("before", (1,)), "after"]


def test_name_signature_and_documentation_stay() -> None:
    original = Profiler.start
    before = inspect.signature(original)

    seams.listen_at(Profiler, "start", after=lambda *_: None)

    assert Profiler.start is not original
    assert inspect.signature(Profiler.start) == before
    assert (Profiler.start.__qualname__, Profiler.start.__doc__) == ("Profiler.start", "Start it.")


def test_an_exception_of_the_function_passes_and_what_comes_after_does_not_run() -> None:
    heard: list[str] = []
    seams.listen_at(Profiler, "start", after=lambda *_: heard.append("after"))

    with pytest.raises(ValueError, match="level"):
        Profiler().start(-1)

    assert heard == []


def test_a_wrong_call_is_the_same_error_as_before() -> None:
    seams.listen_at(Profiler, "start", before=lambda *_: None)

    with pytest.raises(TypeError, match="start"):
        Profiler().start()  # type: ignore[call-arg]


def test_a_listener_that_raises_is_a_fault_and_the_call_goes_on() -> None:
    seams.listen_at(Profiler, "start", before=lambda *_: 1 / 0, after=lambda *_: 1 / 0)

    result = Profiler().start(2)

    assert result == "2."
    assert faults.counts == {"the sink that listens to start": 2}


def test_undo_puts_the_very_functions_back_last_one_first() -> None:
    original = Profiler.start
    seams.listen_at(Profiler, "start", before=lambda *_: None)
    seams.listen_at(Profiler, "start", before=lambda *_: None)

    seams.undo_all()

    assert Profiler.start is original


def test_undo_leaves_what_somebody_else_has_put_there_since() -> None:
    module = SimpleNamespace(stop=lambda: "original")
    seams.listen_at(module, "stop", before=lambda: None)
    theirs = module.stop = lambda: "theirs"

    seams.undo_all()

    assert module.stop is theirs


def test_a_missing_function_is_an_error_and_changes_nothing() -> None:
    with pytest.raises(AttributeError):
        seams.listen_at(Profiler, "begin", after=lambda *_: None)

    assert not hasattr(Profiler, "begin")
