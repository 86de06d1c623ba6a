"""A forked child of a process that records, on both engines."""

from __future__ import annotations

import os
from typing import Any

import pytest
from builders.forked_child import in_child
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


def test_a_range_across_a_fork_is_written_by_the_parent_only(engine: Any, recorded: Written) -> None:
    for _ in range(3):
        with engine.mstx_range("x"):
            pass
    outer, inner = engine.mstx_range("x"), engine.mstx_range("full", n=1)
    outer.__enter__()
    inner.__enter__()

    def child() -> bool:
        before = bytes(recorded.view)
        inner.__exit__(None, None, None)
        outer.__exit__(None, None, None)
        return bytes(recorded.view) == before

    silent = in_child(child)
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)

    assert silent
    assert recorded.names == ["x"] * 3 + ["full", "x"]


def test_a_child_may_attach_a_file_of_its_own(engine: Any, recorded: Written) -> None:
    def child() -> bool:
        own = Written(engine)
        for _ in range(3):
            with engine.mstx_range("of the child"):
                pass
        return own.names == ["of the child"] * 3 and own.ranges[0].thread == os.getpid()

    with engine.mstx_range("around"):
        worked = in_child(child)

    assert worked
    assert recorded.names == ["around"]


def test_a_child_tells_its_parents_tools_nothing(engine: Any) -> None:
    told: list[str] = []
    engine.set_sink(0, lambda message, domain: told.append(message) or 1, lambda token, domain: None)

    def child() -> bool:
        before = list(told)
        with engine.mstx_range("of the child"):
            engine.mark("m")
        return told == before

    with engine.mstx_range("of the parent"):
        silent = in_child(child)

    assert silent
    assert told == ["of the parent"]
