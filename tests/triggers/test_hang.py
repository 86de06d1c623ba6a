"""Is a range stuck? From values alone."""

from __future__ import annotations

import pytest

from mstxkit.triggers.hang import SLOW_STAGES, Hang, QuietRange, limit_s, of_values, p99_s, patience_s


def test_without_a_history_the_limit_is_what_capture_was_told() -> None:
    assert limit_s(Hang(), 30, QuietRange(0)) == 30


def test_a_range_that_lasts_as_a_rule_may_last_three_times_as_long_as_its_longest_in_a_hundred() -> None:
    assert limit_s(Hang(), 30, QuietRange(0, [20.0] * 99 + [40.0])) == 120
    assert limit_s(Hang(), 30, QuietRange(0, [20.0] * 199 + [400.0])) == 60


@pytest.mark.parametrize("seen", [QuietRange(0, works=True), *(QuietRange(0, stage=stage) for stage in SLOW_STAGES)])
def test_who_works_and_slow_stages_have_ten_times_as_long(seen: QuietRange) -> None:
    assert limit_s(Hang(), 30, seen) == 300


def test_the_first_three_waits_of_a_kind_have_ten_times_as_long_as_nobody_knows_yet_what_they_take() -> None:
    assert [patience_s(Hang(), 30, ended) for ended in range(5)] == [300, 300, 300, 30, 30]


def test_settings_of_a_running_job_are_taken_where_they_are_allowed() -> None:
    settings = of_values({"hang.after_s": 60.0, "hang.p99": 0.0, "slow_rank.effect": 1.0, "hang.other": 1.0})

    assert settings == Hang(after_s=60.0)
    assert limit_s(settings, 30, QuietRange(0)) == 60


def test_of_no_earlier_ranges_nothing_is_known() -> None:
    assert p99_s([]) == 0
