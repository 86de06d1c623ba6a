"""Exchanges of stamps: plain values both ways, few of them, and none from an answer that is none."""

from __future__ import annotations

import json
from typing import Any, Mapping

import pytest

from mstxkit.cluster import clocks
from mstxkit.cluster.clocks import BURST, Exchanges
from mstxkit.host import identity


def over_the_wire() -> Mapping[str, Any]:
    """As any transport would carry it."""
    answer: dict[str, Any] = json.loads(json.dumps(clocks.answer_exchange()))
    return answer


def test_a_burst_gives_its_two_quickest_exchanges() -> None:
    exchanged = Exchanges().burst(over_the_wire)

    assert len(exchanged) == 2
    for boot, sent, reached, answered, back in json.loads(json.dumps(exchanged)):
        assert boot == identity.boot_id()
        assert sent <= reached <= answered <= back


def test_bursts_are_due_now_and_then() -> None:
    exchanges = Exchanges()
    was_due = exchanges.is_due()
    exchanges.burst(over_the_wire)

    assert was_due
    assert not exchanges.is_due()


@pytest.mark.parametrize("answer", [None, 3, {}, {"boot": 1, "reached_ns": 1, "answered_ns": 2}, {"boot": "x"}])
def test_after_an_answer_that_is_none_nothing_more_is_asked(answer: Any) -> None:
    asked = []

    def ask() -> Any:
        asked.append(answer)
        return answer

    assert Exchanges().burst(ask) == []
    assert len(asked) == 1 < BURST
