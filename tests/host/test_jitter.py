"""Processes that a job starts together do nothing at the same moments for long, however late they look."""

from __future__ import annotations

import random
from typing import Any

import pytest
from builders import lives

from mstxkit.host import identity, jitter


def process(number: int) -> dict[str, Any]:
    """One of a job's: all have started in the same tick of the kernel, on four hosts with the same pids."""
    return {"host": f"host{number % 4}", "boot": "b", "pid": 100 + number // 4, "pid_start": 7000, "pidns": 1}


def schedule(number: int, monkeypatch: pytest.MonkeyPatch, period_s: float = 30.0, until_s: int = 600) -> list[int]:
    """The seconds at which it is due, in a process that looks each second."""
    monkeypatch.setattr(identity, "of_life", lambda: process(number))
    every = jitter.Every(period_s, "seal", 0.0)
    return [second for second in range(until_s) if every.is_due(second)]


def period(number: int, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(identity, "of_life", lambda: process(number))
    return jitter.own_period_s(30.0, "seal")


def test_a_period_is_shorter_by_a_quarter_at_most_and_each_process_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    periods = [period(number, monkeypatch) for number in range(1000)]

    assert len(set(periods)) == 1000
    assert all(22.5 < period <= 30 for period in periods)
    tenths = [sum(22.5 + 0.75 * part < period <= 23.25 + 0.75 * part for period in periods) for part in range(10)]
    assert sum(tenths) == 1000 and max(tenths) < 150


def test_what_a_process_does_besides_has_another_period() -> None:
    assert jitter.own_period_s(1, "seal") != jitter.own_period_s(1, "poll")


def test_a_process_keeps_its_period() -> None:
    assert jitter.own_period_s(1, "seal") == jitter.own_period_s(1, "seal")


def test_two_processes_that_started_together_are_not_in_lock_step(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = schedule(0, monkeypatch), schedule(1, monkeypatch)

    assert min(len(first), len(second)) >= 600 / 30 - 1
    assert len(set(first) & set(second)) < len(first) / 4


def test_a_thousand_that_started_together_come_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once would be 1,000 in a second of every thirty; evenly spread they are about 38 in each."""
    at = [second for number in range(1000) for second in schedule(number, monkeypatch)]
    busiest = {start: max(map(at.count, range(start, start + 60))) for start in (0, 60, 300, 540)}

    assert busiest[0] < 200 and busiest[60] < 110 and busiest[300] < 70 and busiest[540] < 70


def test_a_long_pause_is_made_up_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    every = jitter.Every(30.0, "seal", 0.0)

    assert [every.is_due(1000.0), every.is_due(1000.0), every.is_due(1000.1), every.is_due(1020.0)].count(True) == 2


def test_the_random_numbers_of_the_program_stay_as_they_are() -> None:
    before = random.getstate()
    jitter.Every(30.0, "seal", 0.0)

    assert random.getstate() == before


def test_a_forked_child_draws_anew() -> None:
    out = lives.run(
        """
        import os
        from mstxkit.host import jitter
        jitter.own_period_s(1.0, "seal")
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        print(jitter.own_period_s(1.0, "seal"), flush=True)
        """
    )

    assert len(set(out.split())) == 2
