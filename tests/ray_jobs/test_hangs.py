"""A driver that waits in `ray.get` for an actor that never answers: the actor is named where it says what it does."""

from __future__ import annotations

import pytest
from builders.ray_jobs import Start

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_the_actor_is_named_where_it_is_inside_of_a_range(start: Start) -> None:
    said = start("hangs", "marked", MSTXKIT_HANG_S="3").said

    assert [row[:4] for row in said["incidents"]] == [["hang", "reward", "score", said["pid"]]]


def test_the_range_that_waits_in_ray_get_is_named_where_no_actor_says_what_it_does(start: Start) -> None:
    said = start("hangs", "not", MSTXKIT_HANG_S="3").said
    (incident,) = said["incidents"]

    assert incident[:4] == ["hang", "collect_scores", "collect_scores", said["driver"]]
    assert "waits for another process" in incident[4]
