"""Ranges, stages, marks and steps as a user writes them, each read back from what was recorded."""

from __future__ import annotations

import copy
import inspect
import pickle
from contextlib import suppress
from typing import Any, Callable

import pytest

from mstxkit import at_step, current_stage, current_step, mark, mstx_range, stage, step
from mstxkit.testing import captured


def one(got: Any, name: str) -> Any:
    """The only range of that name."""
    (found,) = [r for r in got.ranges if r.name == name]
    return found


def encloses(outer: Any, inner: Any) -> bool:
    return outer.start_ns <= inner.start_ns and inner.start_ns + inner.duration_ns <= outer.start_ns + outer.duration_ns


def test_a_body_that_raises_ends_its_range_with_error_and_keeps_its_exception() -> None:
    """torch_npu's `mstx_range` and verl's `marked_timer` leave such a range open."""
    with captured() as got:
        with mstx_range("before"):
            pass
        with pytest.raises(ZeroDivisionError) as raised, mstx_range("step"):
            raise ZeroDivisionError("mine")
        with mstx_range("after"):
            pass

    assert one(got, "step").error
    assert str(raised.value) == "mine"
    assert raised.value.__context__ is None
    assert not one(got, "before").error
    assert (one(got, "after").error, one(got, "after").depth) == (False, 0)


def test_five_calls_after_one_that_raised_are_all_recorded() -> None:
    """viztracer's `ignore_function` stays paused after a body that raises."""
    with captured() as got:
        with suppress(ValueError), mstx_range("raises"):
            raise ValueError
        for _ in range(5):
            with mstx_range("later"):
                pass

    assert len([r for r in got.ranges if r.name == "later"]) == 5


def test_an_object_entered_twice_is_two_ranges_and_leaks_neither() -> None:
    """torch_npu's `mstx.annotate` leaks the outer range."""
    shared = mstx_range("shared")
    with captured() as got:
        with shared, shared:
            pass
        with mstx_range("after"):
            pass

    assert sorted(r.depth for r in got.ranges if r.name == "shared") == [0, 1]
    assert one(got, "after").depth == 0


def test_one_object_shared_by_loaders_that_stop_at_any_time_leaks_nothing() -> None:
    """torch_npu's dataloader patch keeps one range id for all loaders, and skips the end at StopIteration."""
    shared = mstx_range("next batch")

    def epoch(batches: int) -> None:
        loader = iter(range(batches))
        while True:
            with shared:
                next(loader)

    with captured() as got:
        for batches in (2, 3):
            with pytest.raises(StopIteration):
                epoch(batches)

    assert [r.error for r in got.ranges].count(True) == 0
    assert [r.depth for r in got.ranges] == [0] * 7


def test_one_object_as_decorator_of_two_functions_ranges_both() -> None:
    """torch_npu's `mstx.annotate` gives both the name of the first."""
    shared = mstx_range("shared")

    @shared
    def first() -> str:
        return "first"

    @shared
    def second() -> str:
        return "second"

    with captured() as got:
        answers = first(), second()

    assert answers == ("first", "second")
    assert (first.__name__, second.__name__) == ("first", "second")
    assert [r.name for r in got.ranges] == ["shared", "shared"]


def test_the_marking_names_are_the_engines_own() -> None:
    """So that a call costs no Python frame of ours."""
    from mstxkit.engine.choose import engine

    assert (mstx_range, stage, mark) == (engine.mstx_range, engine.stage, engine.mark)
    assert (step, at_step, current_stage, current_step) == (
        engine.step, engine.at_step, engine.current_stage, engine.current_step
    )  # fmt: skip


@pytest.mark.parametrize("call", [mstx_range, stage, mark])
def test_help_shows_how_a_marking_name_is_called(call: Any) -> None:
    """By its signature, or in its text where the signature that is quickest to call says less."""
    shown = f"{inspect.signature(call)} {call.__doc__}"
    assert "domain" in shown
    assert "**attributes" in shown
    assert ("stage=None" in shown) == (call is mstx_range)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda held: pickle.loads(pickle.dumps(held))])
def test_a_copy_of_a_range_is_one_like_it_that_is_not_open(copied: Callable[[Any], Any]) -> None:
    """A model that holds a range can be copied, and an actor that holds one be sent to another process."""
    with captured() as got:
        for held in (mstx_range("plain"), mstx_range("full", domain="d", name="n"), stage("reward", prompts=3)):
            with held, copied(held):
                pass

    made = [(r.name, r.stage, r.domain, r.attributes) for r in got.ranges]
    assert made == [
        made_twice for one in (
            ("plain", None, "default", {}), ("full", None, "d", {"name": "n"}),
            ("reward", "reward", "default", {"prompts": 3}),
        ) for made_twice in (one, one)
    ]  # fmt: skip
    assert got.open == []
