"""A forked child of a process that records, on both engines."""

from __future__ import annotations

from typing import Any

import pytest
from builders.forked_child import in_child
from builders.threads import elsewhere
from builders.written_banks import Written

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_a_child_is_off_until_it_has_a_file_of_its_own(engine: Any, recorded: Written) -> None:
    def child() -> bool:
        was_on = engine.recording()
        before = bytes(recorded.view)
        with engine.mstx_range("x"), engine.mstx_range("full", n=1), engine.stage("s"):
            engine.mark("m")
        return not was_on and bytes(recorded.view) == before

    for _ in range(3):
        with engine.mstx_range("x"):
            pass

    assert in_child(child)


def test_a_child_tells_its_parents_tools_nothing(engine: Any) -> None:
    """Neither of its own ranges nor of the end of one that the parent began."""
    told: list[str] = []
    engine.set_sink(0, lambda message, domain: told.append(message) or 1, lambda token, domain: told.append("end"))
    around = engine.mstx_range("of the parent")

    def child() -> bool:
        before = list(told)
        with engine.mstx_range("of the child"):
            engine.mark("m")
        around.__exit__(None, None, None)
        return told == before

    with around:
        silent = in_child(child)

    assert silent
    assert told == ["of the parent", "end"]


def test_a_child_has_no_step_of_its_parents_until_it_is_set_there(engine: Any, recorded: Written) -> None:
    def child() -> bool:
        own = Written(engine)
        for step in (None, 0, 7):
            if step is not None:
                engine.step(step or None)
            with engine.mstx_range(f"at {step}"):
                seen.append(engine.current_step())
        return seen == [None, 0, 7] == [found.step for found in own.ranges]

    seen: list[Any] = []
    engine.step(10)

    assert in_child(child)
    assert engine.current_step() == 10


def test_nothing_that_the_parent_is_inside_of_is_around_a_child(engine: Any, recorded: Written) -> None:
    """Neither its stage, nor its `at_step`, nor the depth of its ranges; a stage of its own is."""

    def child() -> bool:
        own = Written(engine)
        before = engine.current_stage(), engine.current_step()
        for _ in range(3):
            with engine.mstx_range("plain"):
                pass
        with engine.stage("own"), engine.mstx_range("inner"):
            pass
        found = [(one.name, one.stage, one.step, one.depth) for one in own.ranges[2:]]
        return before == (None, None) and found == [
            ("plain", None, None, 0), ("inner", "own", None, 1), ("own", "own", None, 0)
        ]  # fmt: skip

    engine.step(3)
    with engine.stage("outer"), engine.at_step(50), engine.mstx_range("plain"):
        assert in_child(child)
        with engine.mstx_range("in the parent"):
            pass

    after = recorded.one("in the parent")
    assert (after.stage, after.step, after.depth) == ("outer", 50, 2)


def test_a_child_that_leaves_what_its_parent_was_inside_of_is_in_its_own(engine: Any, recorded: Written) -> None:
    def child() -> bool:
        own = Written(engine)
        mine = engine.stage("mine")
        mine.__enter__()
        inner.__exit__(None, None, None)
        at.__exit__(None, None, None)
        outer.__exit__(None, None, None)
        with engine.mstx_range("x"):
            seen = engine.current_stage(), engine.current_step()
        mine.__exit__(None, None, None)
        found = [(one.name, one.stage, one.depth) for one in own.ranges]
        return seen == ("mine", None) and found == [("x", "mine", 1), ("mine", "mine", 0)]

    outer, at, inner = engine.stage("s"), engine.at_step(50), engine.stage("mine")
    with engine.at_step(40):
        for one in (outer, at, inner):
            one.__enter__()
        assert in_child(child)
        for one in (inner, at, outer):
            one.__exit__(None, None, None)


def test_a_thread_of_a_child_is_outside_too(engine: Any, recorded: Written) -> None:
    def child() -> bool:
        elsewhere(lambda: seen.append((engine.current_stage(), engine.current_step())))
        return seen == [(None, None)]

    seen: list[Any] = []
    engine.step(3)
    with engine.stage("s"):
        assert in_child(child)


def test_a_child_has_its_own_stage_times_only(engine: Any, recorded: Written) -> None:
    def child() -> bool:
        Written(engine)
        before = engine.stage_times(), engine.stage_times(3)
        engine.step(3)
        with engine.stage("s"):
            engine.set_fake_ticks(engine.now() + 2_000_000_000)
        return before == ({}, {}) and engine.stage_times(3) == {"s": 2.0}

    engine.step(3)
    with engine.stage("s"):
        engine.set_fake_ticks(engine.now() + 1_000_000_000)
    with engine.stage("s"):
        assert in_child(child)


def test_a_child_of_a_child_starts_outside_as_well(engine: Any, recorded: Written) -> None:
    def child() -> bool:
        Written(engine)
        engine.step(4)
        with engine.stage("of the child"):
            return in_child(lambda: (engine.current_stage(), engine.current_step()) == (None, None))

    assert in_child(child)
