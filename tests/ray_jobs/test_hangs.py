"""A driver that waits in `ray.get` for an actor that never answers: stage, range and rank are named where known."""

from __future__ import annotations

import re

import pytest
from builders.ray_jobs import Start

pytestmark = [pytest.mark.daily(1), pytest.mark.ray, pytest.mark.slow]


def test_the_actor_is_named_with_its_rank_where_it_is_inside_of_a_range(start: Start) -> None:
    (incident,) = start("hangs", "marked", MSTXKIT_HANG_S="3").said["incidents"]

    assert incident[:4] == ["hang", "reward", "score", 1]
    assert re.search(r"driver \(pid \d+\) waits for rank 1 Scorer in collect_scores$", incident[5])


def test_the_range_that_waits_in_ray_get_is_named_where_no_actor_says_what_it_does(start: Start) -> None:
    said = start("hangs", "not", MSTXKIT_HANG_S="3").said
    (incident,) = said["incidents"]

    assert incident[:5] == ["hang", "collect_scores", "collect_scores", None, said["driver"]]
    assert "waits for another process" in incident[6]
    assert incident[6].endswith("in its own code, inside of no range: rank 1 Scorer")


def test_of_two_that_wait_in_ray_get_the_one_with_a_rank_is_named_and_not_the_driver_that_waits_for_it(
    start: Start,
) -> None:
    (incident,) = start("hangs", "between", MSTXKIT_HANG_S="3").said["incidents"]

    assert incident[:4] == ["hang", "reward", "score", 0]
    assert "waits for another process" in incident[6]
