"""Planned windows on a rank on duty, on both engines; and that a process goes on duty with its first stage."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from builders import lives
from builders.rank_on_duty import GENERATE, QUICK, UPDATE, NewRank, Recording

import mstxkit
from mstxkit.escalation.duty import duty as duties
from mstxkit.escalation.duty import first_step
from mstxkit.store.request import WHOLE_STEPS

PLANNED = QUICK._replace(planned=1)
OWN = {"mstxkit": {"enabled": True, "stages": [UPDATE], "window": {"steps": 3}, "ranks": [0]}}


def test_the_stages_of_the_first_step_are_recorded_as_they_come(new_rank: NewRank) -> None:
    rank = new_rank(PLANNED)
    rank.ask(stage=[GENERATE, UPDATE], planned={"first_step": 1}, steps=2)
    for step in (1, 2, 3):
        rank.engine.step(step)
        for stage in (GENERATE, UPDATE):
            rank.once(stage)

    assert rank.session.did == [f"{sign}{stage}" for _ in range(2) for stage in (GENERATE, UPDATE) for sign in "+-"]


def test_a_window_does_not_wait_for_what_the_profiler_imports(
    new_rank: NewRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps do not move."""
    monkeypatch.setattr(duties, "import_ahead", lambda begins=True: True)
    rank = new_rank(PLANNED)
    rank.ask(stage=UPDATE, planned={"first_step": 1}, steps=1)
    rank.engine.step(1)
    rank.once(UPDATE)

    assert rank.session.did == ["+actor_update", "-actor_update"]


def test_nothing_is_watched_between_the_first_step_and_the_window(new_rank: NewRank) -> None:
    rank = new_rank(PLANNED)
    rank.ask(planned={"first_step": 3})
    watches = []
    for step in (1, 2, 3, 4):
        rank.engine.step(step)
        watches.append(rank.duty._machine.watches)
        rank.once(UPDATE)

    assert watches == [True, False, True, False]
    assert rank.session.did == ["+actor_update", "-actor_update"]


def test_a_session_of_whole_steps_says_which(new_rank: NewRank) -> None:
    rank = new_rank(PLANNED)
    rank.ask(stage=WHOLE_STEPS, planned={"first_step": 2}, steps=2)
    for step in (1, 2, 3, 4):
        rank.engine.step(step)
        rank.once(UPDATE)

    assert rank.session.ends == [("its stage or sample is complete", [2, 3])]


def test_a_run_folder_that_hangs_costs_the_first_window_and_never_the_training(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first stage goes on while the process is still going on duty."""
    answers, waited_s = threading.Event(), []

    class SlowDuty(duties.Duty):
        def look(self) -> None:
            answers.wait(lives.FINISHES_WITHIN_S)
            super().look()

    monkeypatch.setattr(duties, "Duty", SlowDuty)
    monkeypatch.setattr(duties, "OneSession", Recording)
    with mstxkit.capture(run, config=OWN):
        for number in (1, 2):
            mstxkit.step(number)
            before_s = time.monotonic()
            with mstxkit.stage(UPDATE):
                waited_s.append(time.monotonic() - before_s)
            assert not answers.is_set()
        answers.set()

    assert len(waited_s) == 2  # it came through, though nothing answered
    assert first_step.WAITS_AT_MOST_S == 0.05
