"""What attributes of decorated functions cost is added to their sites, by samples that one stall does not spoil."""

from __future__ import annotations

import itertools
from typing import Any, Callable

import pytest

from mstxkit import mstx_timer
from mstxkit.marking import calls, state
from mstxkit.testing import captured

Added = list[tuple[Any, float]]


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Added:
    """What is added to which site, with samples from the first call on."""
    found: Added = []
    monkeypatch.setattr(state, "add_cost", lambda site, ns: found.append((site.name, ns)))
    monkeypatch.setattr(calls, "_is_turn", itertools.cycle([True] + [False] * 63).__next__)
    monkeypatch.setattr(calls, "_closely", 0)
    return found


def takes(monkeypatch: pytest.MonkeyPatch, lengths_ns: list[int]) -> Callable[[], object]:
    """A decorated function whose attributes take so long in those calls that are measured."""
    readings = itertools.accumulate(itertools.chain([0], *[(ns, 0) for ns in lengths_ns]))
    monkeypatch.setattr(calls, "thread_time_ns", lambda: next(readings))

    @mstx_timer("costing", attributes=lambda: {"a": 1})
    def function() -> None:
        pass

    return function


def test_one_in_sixty_four_is_measured_and_stands_for_them(monkeypatch: pytest.MonkeyPatch, added: Added) -> None:
    function = takes(monkeypatch, [1000, 3000])
    with captured():
        for _ in range(128):
            function()

    assert added == [("costing", 64_000), ("costing", 192_000)]


def test_a_dear_one_stands_for_itself_and_the_next_are_measured_too(
    monkeypatch: pytest.MonkeyPatch, added: Added
) -> None:
    function = takes(monkeypatch, [5_000_000] + [1000] * 64)
    with captured():
        for _ in range(66):
            function()

    assert added == [("costing", 5_000_000)] + [("costing", 1000)] * 64


def test_while_nothing_records_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, added: Added) -> None:
    function = takes(monkeypatch, [])
    for _ in range(200):
        function()

    assert added == []
