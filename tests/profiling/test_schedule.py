"""Schedules of light capture: from words to steps."""

from __future__ import annotations

import pytest

from mstxkit.errors import ConfigError
from mstxkit.profiling.schedule import Schedule


def steps(text: str, until: int) -> list[int]:
    schedule = Schedule.parse(text)
    return [step for step in range(until) if schedule.wants(step)]


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("every 100 steps, 1 step", Schedule(100, 1)),
        ("every 1 step, 1 step", Schedule(1, 1)),
        ("  Every 10  steps ,2 steps ", Schedule(10, 2)),
        ("every 50 steps, 3 steps, any device", Schedule(50, 3, True)),
    ],
)
def test_words_become_a_schedule(text: str, schedule: Schedule) -> None:
    assert Schedule.parse(text) == schedule
    assert Schedule.parse(str(schedule)) == schedule


def test_windows_begin_at_multiples_and_the_first_steps_are_in_none() -> None:
    assert steps("every 4 steps, 1 step", 10) == [4, 8]
    assert steps("every 4 steps, 2 steps", 10) == [4, 5, 8, 9]
    assert steps("every 1 step, 1 step", 4) == [1, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "on",
        "100",
        "every 100 steps",
        "every 100 steps, 1 step, cpu",
        "every -1 steps, 1 step",
        "every 1.5 steps, 1 step",
        "every 100 steps, 1 step; more",
        "every 99999999999 steps, 1 step",
        "every \u0663 steps, 1 step",
        "each 100 steps, 1 step",
    ],
)
def test_other_words_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigError, match='is no schedule; allowed: "every 100 steps, 1 step"'):
        Schedule.parse(text)


@pytest.mark.parametrize("text", ["every 0 steps, 1 step", "every 10 steps, 0 steps", "every 10 steps, 11 steps"])
def test_numbers_that_leave_nothing_or_everything_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be recorded; allowed:"):
        Schedule.parse(text)
